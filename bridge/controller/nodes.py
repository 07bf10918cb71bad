"""Kubernetes nodes, worker pods and Slurm's node records, joined into what the capacity planner sees. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from bridge import wellknown
from bridge.capacity import columns, model
from bridge.capacity.demand import demands
from bridge.capacity.model import NodeView, PodPhase, SlurmView, WorkerView
from bridge.controller import workers
from bridge.controller.world import NodeSetView, World
from bridge.kube.port import Object
from bridge.ledger.port import CapacityRow
from bridge.quota.model import FlavorName
from bridge.slurm.model import SlurmNode
from bridge.workloads import pods
from bridge.workloads.flavors import FlavorSpec
from bridge.workloads.model import Grant, NodeName

_NOT_READY_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"


def views(world: World, grants: tuple[Grant, ...]) -> tuple[NodeView, ...]:
    """Return one view per GPU node, by name. Empty while Kubernetes is unknown."""
    if not world.kube.ok:
        return ()
    pods_by_node = _worker_by_node(world)
    unmanaged = _unmanaged(world, grants)
    bound = _bound(world, grants)
    found = []
    for name in sorted(world.kube.nodes):
        node = world.kube.nodes[name]
        flavor = world.settings.flavors.for_node(node["metadata"].get("labels") or {})
        if flavor is not None:
            found.append(_view(name, node, flavor, pods_by_node.get(name), world, unmanaged[name], bound[name]))
    return tuple(found)


def orphans(world: World, seen: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
    """Return Slurm records whose Kubernetes node and worker pod are both gone, as nodes that have nothing left."""
    known = {view.record.name for view in seen if view.record is not None}
    alive = {pod["metadata"]["name"] for pod in workers.every(world.kube)}
    return tuple(
        NodeView(
            name=NodeName(name),
            flavor=FlavorName(""),
            nodeset=None,
            allocatable=0,
            ready=False,
            cause="node is gone",
            slurm_record=_record(record),
        )
        for name, record in sorted(world.slurm.nodes.items())
        if name not in known and name not in alive
    )


def rows(world: World, grants: tuple[Grant, ...], seen: tuple[NodeView, ...]) -> tuple[CapacityRow, ...]:
    """Return who holds each node's devices; a node that is unknown keeps its last row in the ledger."""
    if not (world.kube.ok and world.slurm.ok):
        return ()
    demand = demands(seen, grants)
    return tuple(
        CapacityRow(node=view.name, flavor=view.flavor, **asdict(columns.columns(view, demand[view.name])))
        for view in seen
    )


def _view(
    name: NodeName,
    node: Object,
    flavor: FlavorSpec,
    worker: Object | None,
    world: World,
    unmanaged: int,
    bound: int,
) -> NodeView:
    status = node.get("status") or {}
    ready, cordoned, cause = _health(node)
    failures, last_failure_ms = world.memory.failures.get(name, (0, None))
    taints = (node.get("spec") or {}).get("taints") or []
    nodeset = nodeset_of(name, node, flavor, world)
    return NodeView(
        name=name,
        flavor=flavor.name,
        nodeset=_nodeset(nodeset) if nodeset else None,
        allocatable=int((status.get("allocatable") or {}).get(flavor.resource, 0)),
        ready=ready,
        cordoned=cordoned,
        cause=cause,
        taint_ours=any(taint["key"] == wellknown.DRAINED_TAINT for taint in taints),
        worker=_worker(worker, flavor, world) if worker else None,
        slurm_record=None if worker else _orphan_record(name, nodeset, world),
        pods_granted=bound,
        unmanaged=unmanaged,
        capacity=int((status.get("capacity") or {}).get(flavor.resource, 0)),
        worker_failures=failures,
        last_failure_ms=last_failure_ms,
    )


def nodeset_of(name: NodeName, node: Object, flavor: FlavorSpec, world: World) -> NodeSetView | None:
    """Return the first node set (by name) of this flavor whose selector the node's labels match."""
    labels = {**(node["metadata"].get("labels") or {}), wellknown.HOSTNAME_LABEL: name}
    for nodeset in world.settings.nodesets:
        if nodeset.flavor == flavor.name and all(labels.get(k) == v for k, v in nodeset.node_selector.items()):
            return nodeset
    return None


def _nodeset(nodeset: NodeSetView) -> model.NodeSetView:
    return model.NodeSetView(
        name=nodeset.name,
        min=nodeset.min,
        max=nodeset.max,
        idle_after_s=nodeset.idle_after_s,
        deleting=nodeset.deleting,
    )


def _health(node: Object) -> tuple[bool, bool, str]:
    """Return (ready, cordoned, cause) from conditions, taints and deletion; our own taint does not count."""
    spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    if not ready:
        return False, bool(spec.get("unschedulable")), "node not ready"
    if node["metadata"].get("deletionTimestamp"):
        return True, True, "node being deleted"
    if spec.get("unschedulable"):
        return True, True, "node cordoned"
    for taint in spec.get("taints") or []:
        ours = taint["key"] in (wellknown.DRAINED_TAINT, _CORDON_TAINT, *_NOT_READY_TAINTS)
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not ours:
            return True, True, f"node tainted {taint['key']}"
    return True, False, ""


def _worker_by_node(world: World) -> dict[NodeName, Object]:
    """Return the worker pod of each node; while one terminates and another exists, the living one."""
    found: dict[NodeName, Object] = {}
    for pod in workers.every(world.kube):
        node = NodeName(workers.labels(pod)[wellknown.WORKER_NODE_LABEL])
        if node not in found or pods.deleting(found[node]):
            found[node] = pod
    return found


def _worker(pod: Object, flavor: FlavorSpec, world: World) -> WorkerView:
    meta, phase = pod["metadata"], (pod.get("status") or {}).get("phase", "Pending")
    seen = {"Running": PodPhase.RUNNING, "Failed": PodPhase.FAILED, "Succeeded": PodPhase.FAILED}
    asked = pods.request(pod, [flavor.resource])
    record = world.slurm.nodes.get(meta["name"])
    return WorkerView(
        pod=meta["name"],
        uid=meta["uid"],
        phase=PodPhase.TERMINATING if pods.deleting(pod) else seen.get(phase, PodPhase.PENDING),
        gpus=asked.gpus if asked else 0,
        slurm=_record(record) if record else None,
        idle_since_ms=world.memory.idle_since_ms.get(meta["name"]),
        created_ms=pods.parse_ms(meta["creationTimestamp"]),
    )


def _record(node: SlurmNode) -> SlurmView:
    return SlurmView(
        name=node.name,
        state=node.state,
        flags=node.flags,
        reason=node.reason,
        reason_ours=node.reason.startswith(wellknown.DRAIN_REASON_PREFIX),
        busy=node.busy,
        completing="COMPLETING" in node.flags,
        gpus=sum(node.gpus.values()),
    )


def _orphan_record(name: NodeName, nodeset: NodeSetView | None, world: World) -> SlurmView | None:
    """Return Slurm's record of a node's worker that has no pod any more."""
    if nodeset is None:
        return None
    from bridge.cluster import names

    record = world.slurm.nodes.get(names.worker(nodeset.name, name))
    return _record(record) if record else None


def _unmanaged(world: World, grants: Iterable[Grant]) -> Counter[NodeName]:
    """Count devices of bound pods that are neither workers nor charged to a grant, by node."""
    charged = {grant.workload for grant in grants}
    count: Counter[NodeName] = Counter()
    for pod, node, gpus in _holding(world):
        if not workers.is_worker(pod, world.kube.worker_namespace) and pods.workload_id(pod) not in charged:
            count[node] += gpus
    return count


def _bound(world: World, grants: Iterable[Grant]) -> Counter[NodeName]:
    """Count devices of bound pods that a grant is charged for, by node."""
    charged = {grant.workload for grant in grants}
    count: Counter[NodeName] = Counter()
    for pod, node, gpus in _holding(world):
        if pods.workload_id(pod) in charged:
            count[node] += gpus
    return count


def _holding(world: World) -> Iterable[tuple[Object, NodeName, int]]:
    for pod in world.kube.pods:
        node = pods.node(pod)
        if node is None or pods.life(pod) is pods.PodLife.ENDED:
            continue
        asked = pods.request(pod, world.settings.flavors.resources)
        if asked is not None:
            yield pod, node, asked.gpus
