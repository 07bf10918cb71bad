"""GPU pods to workloads, and what a pod's own status says about its life. Times in milliseconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from bridge import wellknown
from bridge.quota.model import TeamName
from bridge.workloads import scheduling
from bridge.workloads.flavors import Flavors, FlavorSpec
from bridge.workloads.model import NodeName, System, Workload, WorkloadId
from bridge.workloads.reasons import Reason, Waiting
from bridge.workloads.tenants import Tenants

Object = dict[str, Any]


class PodLife(StrEnum):
    """Where a pod stands with regard to its charge."""

    GATED = "gated"
    STARTING = "starting"  # ungated, no container has run yet
    RUNNING = "running"  # a container has started; deletion in progress is still running
    ENDED = "ended"  # phase Succeeded or Failed: its containers have stopped


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Devices of one resource that a pod asks for."""

    resource: str
    gpus: int


def workload_id(pod: Object) -> WorkloadId:
    """Name a pod's workload by its UID."""
    return WorkloadId(f"pod/{pod['metadata']['uid']}")


def request(pod: Object, resources: Iterable[str]) -> PodRequest | None:
    """Return the effective GPU request: the larger of all containers together and any init container.

    The rule is Kubernetes' own for init containers (restartable ones count with the containers).
    """
    wanted: dict[str, int] = {}
    for resource in resources:
        running = sum(_asks(c, resource) for c in _containers(pod))
        sidecars = sum(_asks(c, resource) for c in _init_containers(pod) if c.get("restartPolicy") == "Always")
        initial = max((_asks(c, resource) for c in _init_containers(pod)), default=0)
        total = max(running + sidecars, initial)
        if total:
            wanted[resource] = total
    if not wanted:
        return None
    resource = min(wanted)
    return PodRequest(resource, wanted[resource])


def life(pod: Object) -> PodLife:
    """Classify a pod by its phase, gates and container statuses."""
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return PodLife.ENDED
    if gated(pod):
        return PodLife.GATED
    return PodLife.STARTING if started_ms(pod) is None else PodLife.RUNNING


def gated(pod: Object) -> bool:
    """Return whether the quota gate still holds the pod."""
    gates = pod.get("spec", {}).get("schedulingGates") or []
    return any(gate.get("name") == wellknown.QUOTA_GATE for gate in gates)


def deleting(pod: Object) -> bool:
    """Return whether deletion has begun; the pod still holds what it holds."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def node(pod: Object) -> NodeName | None:
    """Return the node a pod is bound to."""
    name = pod.get("spec", {}).get("nodeName")
    return NodeName(name) if name else None


def started_ms(pod: Object) -> int | None:
    """Return when the first container (init ones included) started, None before."""
    times = [t for status in _statuses(pod) for t in _times(status, "startedAt")]
    return min(times, default=None)


def ended_ms(pod: Object) -> int | None:
    """Return when the last container stopped; None while one may still run or none has ended."""
    statuses = _statuses(pod)
    if any((status.get("state") or {}).get("running") for status in statuses):
        return None
    return max((t for status in statuses for t in _times(status, "finishedAt")), default=None)


def flavor_of(pod: Object, flavors: Flavors) -> tuple[FlavorSpec, int] | Waiting:
    """Return the flavor a pod means and how many devices, or why there is no such flavor."""
    asked = request(pod, flavors.resources)
    if asked is None:
        known = ", ".join(sorted(flavors.resources)) or "none"
        told = f"asks for no GPU resource that a flavor counts; counted: {known}"
        return Waiting(Reason.NO_SUCH_FLAVOR, told, final=True)
    flavor = flavors.for_pod(asked.resource, pod["spec"].get("nodeSelector") or {})
    if flavor is None:
        known = ", ".join(sorted(flavors.names)) or "none"
        told = f"resource {asked.resource} with this nodeSelector is no flavor's; set one's nodeSelector: {known}"
        return Waiting(Reason.NO_SUCH_FLAVOR, told, final=True)
    return flavor, asked.gpus


def team_of(pod: Object, namespaces: Mapping[str, Object]) -> str:
    """Return the team a pod belongs to: its stamped label, else its namespace's."""
    labels = pod["metadata"].get("labels") or {}
    if wellknown.TEAM_LABEL in labels:
        return str(labels[wellknown.TEAM_LABEL])
    space = namespaces.get(pod["metadata"]["namespace"], {})
    return str((space.get("metadata", {}).get("labels") or {}).get(wellknown.TEAM_LABEL, ""))


def unknown_team(team: str, tenants: Tenants) -> Waiting:
    """Refuse what a namespace of a team that does not exist holds."""
    known = ", ".join(tenant.name for tenant in tenants.teams) or "none"
    told = f"namespace label names team {team!r}, which does not exist; teams: {known}"
    return Waiting(Reason.UNKNOWN_TEAM, told, final=True)


def workload(
    pod: Object, namespaces: Mapping[str, Object], nodes: Mapping[NodeName, Object], tenants: Tenants, flavors: Flavors
) -> Workload | Waiting:
    """Translate a pod's request, or say in one sentence why it cannot be admitted."""
    team = team_of(pod, namespaces)
    tenant = tenants.named(team)
    if tenant is None:
        return unknown_team(team, tenants)
    found = flavor_of(pod, flavors)
    if isinstance(found, Waiting):
        return found
    flavor, gpus = found
    return Workload(
        id=workload_id(pod),
        system=System.KUBERNETES,
        team=TeamName(team),
        flavor=flavor.name,
        nodes=1,
        gpus_per_node=gpus,
        submitted_ms=parse_ms(pod["metadata"]["creationTimestamp"]),
        priority=priority(pod),
        user=str((pod["metadata"].get("annotations") or {}).get(wellknown.SUBMITTED_BY, "")),
        name=f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
        time_limit_s=deadline_s(pod),
        within_nodes=scheduling.allowed_nodes(pod["spec"], nodes),
        preemptible=preemptible(pod),
        endless=deadline_s(pod) is None,
    )


def priority(pod: Object) -> int:
    """Return the priority that its PriorityClass gave it."""
    return int(pod["spec"].get("priority") or 0)


def deadline_s(pod: Object) -> int | None:
    """Return activeDeadlineSeconds; None for a pod that serves until somebody stops it."""
    told = pod["spec"].get("activeDeadlineSeconds")
    return int(told) if told is not None else None


def preemptible(pod: Object) -> bool:
    """Return whether the pod may be evicted for what others are guaranteed: unless its annotation says "false"."""
    annotations = pod["metadata"].get("annotations") or {}
    return str(annotations.get(wellknown.PREEMPTIBLE_ANNOTATION, "true")).lower() != "false"


def admitted_ms(pod: Object) -> int | None:
    """Return when the kubelet took the pod, which its deadline counts from."""
    stamp = (pod.get("status") or {}).get("startTime")
    return parse_ms(stamp) if stamp else None


def deleted_ms(pod: Object) -> int | None:
    """Return when a pod that is being deleted will have had its grace; None while nobody deletes it."""
    stamp = pod["metadata"].get("deletionTimestamp")
    return parse_ms(stamp) if stamp else None


def parse_ms(stamp: str) -> int:
    """Parse an RFC 3339 time of the API server into milliseconds since the epoch."""
    return int(datetime.fromisoformat(stamp).timestamp() * 1000)


def _containers(pod: Object) -> list[Object]:
    return pod.get("spec", {}).get("containers") or []


def _init_containers(pod: Object) -> list[Object]:
    return pod.get("spec", {}).get("initContainers") or []


def _asks(container: Object, resource: str) -> int:
    resources = container.get("resources") or {}
    amount = (resources.get("limits") or {}).get(resource, (resources.get("requests") or {}).get(resource, 0))
    return int(amount)


def _statuses(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _times(status: Object, field: str) -> list[int]:
    """Collect `startedAt` or `finishedAt` of a container's current and last state."""
    found = []
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        for kind in ("running", "terminated"):
            stamp = (state.get(kind) or {}).get(field)
            if stamp:
                found.append(parse_ms(stamp))
    return found
