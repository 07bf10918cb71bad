"""The port to one Kubernetes API server. Objects are raw JSON dicts: no field newer than us is ever dropped.

Reads raise UnknownStateError when the server could not be asked or answered something that is no list;
writes raise OutcomeUnknownError when the answer was lost, ConflictError (409), RejectedError (4xx with the
server's sentence), NotFoundError (404 with a Status body).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource of the API: `plural` is the path segment, `group` is "" for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool


PODS = Kind("", "v1", "pods", "Pod", namespaced=True)
NODES = Kind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = Kind("", "v1", "events", "Event", namespaced=True)
SERVICES = Kind("", "v1", "services", "Service", namespaced=True)
SECRETS = Kind("", "v1", "secrets", "Secret", namespaced=True)
CONFIGMAPS = Kind("", "v1", "configmaps", "ConfigMap", namespaced=True)
PVCS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
JOBS = Kind("batch", "v1", "jobs", "Job", namespaced=True)
STATEFULSETS = Kind("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", namespaced=True)
PDBS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
FLAVORS = Kind("slurmbridge.dev", "v1alpha1", "flavors", "Flavor", namespaced=False)
TEAMS = Kind("slurmbridge.dev", "v1alpha1", "teams", "Team", namespaced=False)
SLURMCLUSTERS = Kind("slurmbridge.dev", "v1alpha1", "slurmclusters", "SlurmCluster", namespaced=True)
NODESETS = Kind("slurmbridge.dev", "v1alpha1", "nodesets", "NodeSet", namespaced=True)


class EventType(StrEnum):
    """Watch event types. ERROR is turned into an exception by the gateway."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class Listing:
    """A whole, consistent list at `resource_version`."""

    items: tuple[Object, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change after the version that the watch began at."""

    type: EventType
    object: Object


class PatchType(StrEnum):
    """Content types of PATCH."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Gateway(Protocol):
    """Verbs towards the API server. Thread safe; each call is bounded by (connect, read) timeouts."""

    def list(self, kind: Kind, *, namespace: str | None = None, label_selector: str = "") -> Listing:
        """List all pages; a failure on any page raises, so a partial list is never returned."""
        ...

    def watch(
        self,
        kind: Kind,
        resource_version: str,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        timeout_s: int = 300,
    ) -> Iterator[WatchEvent]:
        """Stream changes with bookmarks. Ends at the timeout; ExpiredError on 410, UnknownStateError when torn."""
        ...

    def get(self, kind: Kind, name: str, *, namespace: str | None = None) -> Object:
        """Return the object; NotFoundError only on a positive 404."""
        ...

    def create(self, kind: Kind, obj: Object, *, namespace: str | None = None) -> Object:
        """Create; ConflictError when the name exists."""
        ...

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        type: PatchType = PatchType.MERGE,  # noqa: A002 -- the API's own word
        subresource: str = "",
        force: bool = False,
    ) -> Object:
        """Patch (APPLY is server-side apply with our field manager; `force` takes ownership)."""
        ...

    def delete(
        self, kind: Kind, name: str, *, namespace: str | None = None, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        """Delete with a UID precondition; NotFoundError when gone, ConflictError when the UID differs."""
        ...

    def post(self, path: str, body: Object) -> Object:
        """POST to a raw path: subresources (eviction, token) and reviews (TokenReview, SubjectAccessReview)."""
        ...

    def version(self) -> tuple[int, int]:
        """(major, minor) of the server."""
        ...


class ExpiredError(Exception):
    """410: the resource version is too old; list again."""
