"""Everything that one SlurmCluster is in Kubernetes, keys and workers apart. Pure and deterministic.

Each object carries the hash of its own content: equal to the live one's, nothing needs to be written (N15).
"""

from dataclasses import dataclass
from typing import Any, Final

from bridge import wellknown
from bridge.cluster import configuration, login, names, restd, slurmctld, users, worker
from bridge.cluster.images import Images
from bridge.cluster.membership import Ceilings
from bridge.crd.flavor import Flavor
from bridge.crd.slurmcluster import SlurmCluster
from bridge.crd.team import Team

Object = dict[str, Any]

BRIDGE_URL: Final = f"http://{wellknown.NAMESPACE}.{wellknown.NAMESPACE}.svc:8080"


@dataclass(frozen=True, slots=True)
class Rendered:
    """Objects in the order to apply them; `config_hash` for slurmctld's pod; what was left out, in sentences."""

    objects: tuple[Object, ...]
    config_hash: str
    problems: tuple[str, ...] = ()


def render(
    cluster: SlurmCluster,
    *,
    teams: tuple[Team, ...],
    flavors: tuple[Flavor, ...],
    ceilings: Ceilings,
    images: Images,
    bridge_url: str = BRIDGE_URL,
) -> Rendered:
    """Render a cluster. When only its configuration changed, only the two ConfigMaps differ."""
    directory = users.directory(teams)
    files = configuration.files(cluster, teams=teams, flavors=flavors, ceilings=ceilings)
    people = {"passwd": directory.passwd, "group": directory.group}
    objects = [
        _users(cluster, people),
        configuration.config_map(cluster, files),
        slurmctld.service(cluster),
        worker.disruption_budget(cluster),
        slurmctld.stateful_set(cluster, images),
        login.deployment(cluster, images, bridge_url),
        *restd.objects(cluster, images),
    ]
    return Rendered(
        objects=tuple(hashed(obj) for obj in objects),
        config_hash=configuration.digest([files, people]),
        problems=directory.problems,
    )


def hashed(obj: Object) -> Object:
    """Return the object with the hash of its content as an annotation."""
    meta = obj["metadata"]
    annotations = {**(meta.get("annotations") or {}), wellknown.HASH_ANNOTATION: configuration.digest(obj)}
    return {**obj, "metadata": {**meta, "annotations": annotations}}


def changed(wanted: Object, live: Object | None) -> bool:
    """Return whether the live object (None: it does not exist) needs a write."""
    if live is None:
        return True
    annotations = live["metadata"].get("annotations") or {}
    expected = wanted["metadata"]["annotations"][wellknown.HASH_ANNOTATION]
    return bool(annotations.get(wellknown.HASH_ANNOTATION) != expected)


def _users(cluster: SlurmCluster, data: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.USERS,
            "namespace": cluster.metadata.namespace,
            "labels": names.labels("users", cluster.metadata.name),
        },
        "data": data,
    }
