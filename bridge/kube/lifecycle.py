"""How one object of the in-memory API server comes, changes and goes. Pure."""

import copy
import random
import string
import uuid
from datetime import UTC, datetime
from typing import Final

from bridge.errors import ConflictError, InvalidInputError, RejectedError
from bridge.kube import answers, port
from bridge.kube.port import Kind, Object

_WITH_STATUS: Final = frozenset(
    {
        port.PODS,
        port.NODES,
        port.JOBS,
        port.STATEFULSETS,
        port.DEPLOYMENTS,
        port.PDBS,
        port.FLAVORS,
        port.TEAMS,
        port.SLURMCLUSTERS,
        port.NODESETS,
    }
)
_NOBODY_WRITES: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_POD_GRACE_S: Final = 30


def key(obj: Object) -> tuple[str, str]:
    """Return (namespace or "", name)."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def chosen(obj: Object, namespace: str | None, selector: str) -> bool:
    """Return whether a list or watch of this namespace (None: all) and label selector shows the object."""
    if namespace is not None and obj["metadata"].get("namespace", namespace) != namespace:
        return False
    labels = obj["metadata"].get("labels") or {}
    for term in filter(None, (part.strip() for part in selector.split(","))):
        name, equals, value = term.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    return True


def created(kind: Kind, wanted: Object, namespace: str | None) -> Object:
    """Return the object as it is stored."""
    obj = copy.deepcopy(wanted)
    meta = obj.setdefault("metadata", {})
    if kind.namespaced:
        meta["namespace"] = namespace or meta.get("namespace")
        if not meta["namespace"]:
            raise InvalidInputError(f"{kind.kind} {meta.get('name')!r} is in a namespace: name it")
    if not meta.get("name"):
        if not meta.get("generateName"):
            raise RejectedError("name or generateName is required")
        letters = string.ascii_lowercase + string.digits
        meta["name"] = meta["generateName"] + "".join(random.choices(letters, k=5))  # noqa: S311 -- no secret
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = _now()
    meta["generation"] = 1
    obj.setdefault("apiVersion", answers.api_version(kind))
    obj.setdefault("kind", kind.kind)
    if kind in _WITH_STATUS:
        obj.pop("status", None)
    if kind == port.PODS:
        obj["status"] = {"phase": "Pending"}
        obj.setdefault("spec", {}).setdefault("terminationGracePeriodSeconds", _POD_GRACE_S)
    return obj


def updated(kind: Kind, known: Object, wanted: Object, subresource: str) -> Object:
    """Return what becomes of a patch: status and the rest are written separately, identity never."""
    for field in ("uid", "resourceVersion"):
        if wanted["metadata"].get(field, known["metadata"][field]) != known["metadata"][field]:
            raise ConflictError(f"the object has been modified: {field} is {known['metadata'][field]}")
    if subresource not in ("", "status"):
        raise RejectedError(f"the fake does not patch {kind.plural}/{subresource}")
    written, kept = (wanted, known) if subresource else (known, wanted)
    result = copy.deepcopy(kept)
    if kind in _WITH_STATUS:
        result.pop("status", None)
        if "status" in written:
            result["status"] = copy.deepcopy(written["status"])
    for field in _NOBODY_WRITES:
        result["metadata"].pop(field, None)
        if field in known["metadata"]:
            result["metadata"][field] = known["metadata"][field]
    if result.get("spec") != known.get("spec"):
        result["metadata"]["generation"] = known["metadata"]["generation"] + 1
    return result


def deleting(kind: Kind, known: Object, grace_s: int | None) -> Object:
    """Return the object with its deletion begun (or shortened); `finished` says whether that ends it."""
    meta = known["metadata"]
    if grace_s is None:
        grace_s = known["spec"]["terminationGracePeriodSeconds"] if kind == port.PODS else 0
    on_a_node = kind == port.PODS and known["spec"].get("nodeName")
    if not on_a_node or (known.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        grace_s = 0
    if "deletionTimestamp" in meta and grace_s >= meta["deletionGracePeriodSeconds"]:
        return known
    going = copy.deepcopy(known)
    going["metadata"].setdefault("deletionTimestamp", _now())
    going["metadata"]["deletionGracePeriodSeconds"] = grace_s
    return going


def finished(obj: Object) -> bool:
    """Return whether nothing keeps a deleted object any more."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    return not meta["deletionGracePeriodSeconds"]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
