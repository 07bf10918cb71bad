"""The life of workers on whole nodes: where one is made, drained, brought back, removed. Pure.

What always holds, and the property tests check:
 - a worker pod is deleted only when Slurm says DRAIN and no sign of a job is on it and the ledger has nothing
   running there; or when it cannot have a job: its containers never ran or have all ended;
 - a drain or a DOWN that somebody else set is never changed, and neither is the record that carries it; meanwhile
   the Kubernetes node is tainted, so that pods do not land on a bad GPU either;
 - the plan depends on the world alone: a restart changes nothing, and a world at rest asks for nothing.
"""

from collections.abc import Mapping, Sequence

from bridge import wellknown
from bridge.capacity.causes import GONE, Causes, causes, room_for_workers
from bridge.capacity.demand import Demand, demands
from bridge.capacity.model import (
    Action,
    CreateWorker,
    DeleteWorker,
    DrainWorker,
    ForgetNode,
    NodeSetView,
    NodeView,
    PodPhase,
    SlurmView,
    TaintNode,
    UndrainWorker,
    UntaintNode,
    WorkerView,
)
from bridge.workloads.model import Grant, NodeName


def plan(nodes: Sequence[NodeView], grants: Sequence[Grant], *, now_ms: int) -> tuple[Action, ...]:
    """Return what to do now, in this order; empty when the world is as it should be."""
    views = sorted(nodes, key=lambda view: view.name)
    demand = demands(views, grants)
    why = causes(views, demand, now_ms=now_ms)
    actions: list[Action] = []
    for view in views:
        actions += _taint(view)
        if view.worker is not None:
            actions += _worker(view, view.worker, demand[view.name], why[view.name])
        elif view.slurm_record is not None:
            actions += _orphan(view, view.slurm_record)
    return (*actions, *_creations(views, demand, why, now_ms=now_ms))


def retry_at_ms(view: NodeView) -> int:
    """Return when a worker may be tried again on a node where the last ones failed."""
    if view.nodeset is None or not view.worker_failures or view.last_failure_ms is None:
        return 0
    pause_s = min(view.nodeset.retry_max_s, view.nodeset.retry_base_s << min(view.worker_failures - 1, 16))
    return view.last_failure_ms + pause_s * 1000


def _taint(view: NodeView) -> list[Action]:
    """Keep pods off what Slurm's side drained. A worker unknown to slurmctld says nothing: the taint stays."""
    record = view.record
    if record is not None and record.foreign:
        word = "drained" if record.drained else "down"
        return (
            [] if view.taint_ours else [TaintNode(view.name, f"{word} in Slurm: {record.reason or 'no reason given'}")]
        )
    unknown = view.worker is not None and view.worker.slurm is None
    return [UntaintNode(view.name)] if view.taint_ours and not unknown else []


def _worker(view: NodeView, worker: WorkerView, demand: Demand, why: Causes) -> list[Action]:
    record = worker.slurm
    if record is not None and record.foreign:
        return []
    if why.leave and view.ready and worker.phase is not PodPhase.TERMINATING and _removable(worker, demand):
        return [DeleteWorker(view.name, worker.pod, worker.uid)]
    if record is None:
        return []
    if why.reasons:
        right = record.drained and record.reason in why.reasons
        return [] if right else [DrainWorker(view.name, record.name, why.reasons[0])]
    # A DOWN node waits until slurmd is back; one whose pod has not started would look usable and is not.
    lift = record.drained_by_us and record.state != "DOWN" and worker.phase is PodPhase.RUNNING
    return [UndrainWorker(view.name, record.name)] if lift else []


def _removable(worker: WorkerView, demand: Demand) -> bool:
    """No job is on this worker and none can come."""
    if demand.running:
        return False
    if worker.slurm is not None:
        return worker.slurm.drained and not worker.slurm.occupied
    if worker.phase is PodPhase.FAILED:
        return True
    # slurmctld may have lost its state: an unknown worker counts as empty only if it cannot have registered.
    never = worker.phase is PodPhase.PENDING or not worker.registered_before
    return never and not demand.slurm


def _orphan(view: NodeView, record: SlurmView) -> list[Action]:
    """Bring the record of a worker that is gone to the truth; a foreign drain on it is kept for who set it."""
    if record.foreign:
        return []
    if not record.occupied:
        return [ForgetNode(view.name, record.name)]
    if record.drained:
        return []
    return [DrainWorker(view.name, record.name, f"{wellknown.DRAIN_REASON_PREFIX}{GONE}")]


def _creations(
    views: Sequence[NodeView], demand: Mapping[NodeName, Demand], why: Mapping[NodeName, Causes], *, now_ms: int
) -> list[Action]:
    """Make workers where Slurm grants are, then up to each node set's minimum, never beyond its maximum."""
    actions: list[Action] = []
    by_set: dict[str, list[NodeView]] = {}
    for view in views:
        if view.nodeset is not None:
            by_set.setdefault(view.nodeset.name, []).append(view)
    for _, mine in sorted(by_set.items()):
        nodeset = mine[0].nodeset
        if nodeset is None or nodeset.deleting:
            continue
        free = [view for view in mine if _may_create(view, demand[view.name], now_ms=now_ms)]
        wanted = [view for view in free if 0 < demand[view.name].smallest <= view.allocatable]
        spare = [view for view in free if not demand[view.name].slurm]
        chosen = [*wanted, *spare[: _below_min(nodeset, mine, why, len(wanted))]]
        actions += [
            CreateWorker(view.name, nodeset.name, view.allocatable)
            for view in chosen[: room_for_workers(nodeset, mine)]
        ]
    return actions


def _below_min(nodeset: NodeSetView, mine: Sequence[NodeView], why: Mapping[NodeName, Causes], coming: int) -> int:
    staying = [v for v in mine if v.worker is not None and v.worker.live and not why[v.name].leave]
    return max(0, nodeset.min - len(staying) - coming)


def _may_create(view: NodeView, demand: Demand, *, now_ms: int) -> bool:
    """Whole nodes: a worker takes all of it, so nobody else may hold any."""
    if view.worker is not None or view.trouble or demand.pods or view.unmanaged or not view.allocatable:
        return False
    record = view.slurm_record
    if record is not None and (record.foreign or record.occupied):
        return False
    return now_ms >= retry_at_ms(view)
