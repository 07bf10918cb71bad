"""Is the capacity of a reserved grant in place, and what is amiss on nodes. Pure.

A job is released and a pod ungated only when nothing is pending here.
"""

from collections.abc import Mapping, Sequence

from bridge.capacity.causes import gpu_mismatch, slurm_mismatch
from bridge.capacity.demand import Demand, demands
from bridge.capacity.model import NodeView, PodPhase, Problem, SlurmView, WorkerView
from bridge.workloads.model import Grant, NodeName, System

REPORTED_FAILURES = 3  # failed workers in a row before a person is told
USABLE_STATES = ("IDLE", "ALLOCATED", "MIXED")
UNUSABLE_FLAGS = frozenset({"NOT_RESPONDING", "INVALID_REG", "MAINTENANCE", "FAIL"})


def ready_for(grant: Grant, nodes: Sequence[NodeView]) -> bool:
    """Return whether the grant's capacity is in place on all of its nodes."""
    return not pending(grant, nodes)


def pending(grant: Grant, nodes: Sequence[NodeView]) -> str:
    """Say what the grant still waits for, node by node; "" when everything is in place."""
    by_name = {view.name: view for view in nodes}
    if not grant.placement:
        return "no nodes are chosen for it"
    missing = (_pending(grant.system, by_name.get(name), name, gpus) for name, gpus in sorted(grant.placement.items()))
    return "; ".join(text for text in missing if text)


def problems(nodes: Sequence[NodeView], grants: Sequence[Grant], *, now_ms: int) -> tuple[Problem, ...]:
    """List what only a person can put right, the same text as long as it lasts."""
    demand = demands(nodes, grants)
    found = []
    for view in sorted(nodes, key=lambda view: view.name):
        found += [Problem(view.name, text) for text in _problems(view, demand, now_ms=now_ms)]
    return tuple(found)


def _pending(system: System, view: NodeView | None, name: NodeName, gpus: int) -> str:
    if view is None:
        return f"node {name} is gone"
    if view.unusable:
        return f"{name}: {view.unusable}"
    if system is System.KUBERNETES:
        return _pending_pods(view, gpus)
    if view.worker is None:
        return _pending_creation(view, gpus)
    return _pending_worker(view, view.worker, gpus)


def _pending_pods(view: NodeView, gpus: int) -> str:
    if view.worker is not None:
        return f"{view.name}: its worker is being drained and removed"
    if view.taint_ours:
        return f"{view.name}: its taint is being lifted"
    if view.allocatable - view.unmanaged < gpus:
        return f"{view.name}: has {view.allocatable - view.unmanaged} GPUs for pods, {gpus} are granted"
    return ""


def _pending_creation(view: NodeView, gpus: int) -> str:
    if view.nodeset is None:
        return f"{view.name}: no node set covers it"
    if view.nodeset.deleting:
        return f"{view.name}: node set {view.nodeset.name} is being deleted"
    if view.allocatable < gpus:
        return f"{view.name}: has {view.allocatable} GPUs, {gpus} are granted"
    if view.pods_granted or view.unmanaged:
        return f"{view.name}: {view.pods_granted + view.unmanaged} GPUs are still with pods"
    if view.worker_failures:
        return f"{view.name}: the last worker failed there; another one will be made"
    return f"{view.name}: a worker is being created"


def _pending_worker(view: NodeView, worker: WorkerView, gpus: int) -> str:
    if worker.phase is PodPhase.TERMINATING:
        return f"{view.name}: its former worker is stopping"
    if worker.phase is PodPhase.FAILED:
        return f"{view.name}: its worker failed and is being replaced"
    if worker.slurm is None or worker.phase is PodPhase.PENDING:
        return f"{view.name}: its worker is starting"
    if min(worker.gpus, worker.slurm.gpus) < gpus:
        return f"{view.name}: its worker has {min(worker.gpus, worker.slurm.gpus)} GPUs, {gpus} are granted"
    return _pending_record(view, worker.slurm)


def _pending_record(view: NodeView, record: SlurmView) -> str:
    if record.drained:
        return f"{view.name}: its worker is drained ({record.reason or 'no reason given'})"
    if record.state not in USABLE_STATES or record.flags & UNUSABLE_FLAGS:
        state = "+".join([record.state, *sorted(record.flags)])
        return f"{view.name}: its worker is {state} in Slurm"
    return ""


def _problems(view: NodeView, demand: Mapping[NodeName, Demand], *, now_ms: int) -> list[str]:
    want, worker = demand[view.name], view.worker
    found = []
    if want.mixed:
        found.append(
            f"Slurm is granted {want.slurm} and pods {want.pods} of its GPUs; a node serves one system at a time"
        )
    if want.slurm and view.nodeset is None and worker is None:
        found.append("Slurm work is granted here and no NodeSet covers the node; widen a NodeSet's nodeSelector")
    found += [mismatch for mismatch in (gpu_mismatch(view, want), slurm_mismatch(view)) if mismatch]
    if view.capacity is not None and view.capacity > view.allocatable:
        found.append(f"{view.capacity - view.allocatable} of {view.capacity} GPUs are unhealthy")
    if view.worker_failures >= REPORTED_FAILURES:
        found.append(f"{REPORTED_FAILURES} or more workers failed here in a row; see the events of the last one")
    if worker is not None and _unregistered_too_long(view, worker, now_ms=now_ms):
        grace_s = view.nodeset.startup_grace_s if view.nodeset is not None else 0
        found.append(f"worker {worker.pod} has not registered with Slurm within {grace_s} s; see its log")
    return found


def _unregistered_too_long(view: NodeView, worker: WorkerView, *, now_ms: int) -> bool:
    if worker.slurm is not None or not worker.live or worker.created_ms is None or view.nodeset is None:
        return False
    return now_ms - worker.created_ms > view.nodeset.startup_grace_s * 1000
