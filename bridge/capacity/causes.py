"""Why a worker is drained, and which of these causes also remove it. Pure.

Each cause is a sentence behind the bridge's prefix in the Slurm node's reason. It depends on the world alone, never
on what was done before, so that a cause that ends is undone and one that lasts is set again after any restart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bridge import wellknown
from bridge.capacity.demand import Demand
from bridge.capacity.model import NodeSetView, NodeView, PodPhase, WorkerView
from bridge.workloads.model import NodeName

MOVING = "gpus move to kubernetes"
SCALE_IN = "scale in"
DELETED = "node set deleted"
FAILED = "worker failed"
STOPPING = "worker is stopping"
GONE = "worker is gone"


@dataclass(frozen=True, slots=True)
class Causes:
    """Why this worker takes no new job (`stay`, it is kept) and why it goes (`leave`); "" is no cause."""

    stay: str = ""
    leave: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons that may stand on the Slurm node now, the one to write first."""
        return tuple(f"{wellknown.DRAIN_REASON_PREFIX}{cause}" for cause in (self.stay, self.leave) if cause)


def causes(nodes: Sequence[NodeView], demand: Mapping[NodeName, Demand], *, now_ms: int) -> Mapping[NodeName, Causes]:
    """Return each worker's causes; nodes without a worker have none."""
    found = {view.name: _causes(view, demand[view.name]) for view in nodes if view.worker is not None}
    for name in _surplus(nodes, demand, found, now_ms=now_ms):
        found[name] = Causes(stay=found[name].stay, leave=SCALE_IN)
    return found


def gpu_mismatch(view: NodeView, demand: Demand) -> str:
    """Say that a worker's GPUs are not what the node has or its grants need; "" when replacing it gains nothing."""
    worker = view.worker
    if worker is None:
        return ""
    if worker.gpus > view.allocatable or worker.gpus < demand.slurm <= view.allocatable:
        return f"gpu count changed (worker {worker.gpus}, node {view.allocatable})"
    return ""


def slurm_mismatch(view: NodeView) -> str:
    """Say that Slurm counts other GPUs than the worker holds.

    Such a worker is kept out, not replaced: a new one would be counted the same way, and replaced for ever.
    """
    worker = view.worker
    if worker is None or worker.slurm is None or worker.slurm.gpus == worker.gpus:
        return ""
    return f"gpu counts differ (slurm {worker.slurm.gpus}, worker {worker.gpus})"


def _causes(view: NodeView, demand: Demand) -> Causes:
    worker = view.worker
    if worker is None:
        return Causes()
    if worker.phase is PodPhase.TERMINATING:
        return Causes(stay=STOPPING)
    if worker.phase is PodPhase.FAILED:
        return Causes(stay=view.trouble, leave=FAILED)
    deleted = view.nodeset is not None and view.nodeset.deleting
    leave = DELETED if deleted else gpu_mismatch(view, demand)
    if not leave and demand.pods and not demand.slurm:
        leave = MOVING
    return Causes(stay=view.trouble or slurm_mismatch(view), leave=leave)


def _surplus(
    nodes: Sequence[NodeView], demand: Mapping[NodeName, Demand], found: Mapping[NodeName, Causes], *, now_ms: int
) -> list[NodeName]:
    """Workers to scale in: idle for long enough, or in the way of a grant where the node set is at its maximum."""
    out: list[NodeName] = []
    for nodeset in {view.nodeset.name: view.nodeset for view in nodes if view.nodeset is not None}.values():
        mine = [view for view in nodes if view.nodeset is not None and view.nodeset.name == nodeset.name]
        staying = [view for view in mine if _stays(view, found)]
        idle = [view for view in staying if _idle(view, demand[view.name])]
        expired = {view.name for view in idle if _expired(view, nodeset, now_ms=now_ms)}
        urgent = _wanted(mine, demand) - room_for_workers(nodeset, mine)
        shed = max(len(expired), min(len(idle), urgent))
        spare = max(0, len(staying) - nodeset.min)
        # One that is going already goes first, so that the choice does not wander; then the longest idle.
        idle.sort(key=lambda view: (view.name not in expired, not _scaling_in(view), _idle_since(view), view.name))
        out += [view.name for view in idle[: min(shed, spare)]]
    return out


def room_for_workers(nodeset: NodeSetView, nodes: Sequence[NodeView]) -> int:
    """How many more workers the node set may have; one that still stops counts, for it holds its GPUs."""
    if nodeset.max is None:
        return len(nodes)
    existing = [view.worker for view in nodes if view.worker is not None and view.nodeset is not None]
    return max(0, nodeset.max - len([worker for worker in existing if worker.phase is not PodPhase.FAILED]))


def _wanted(nodes: Sequence[NodeView], demand: Mapping[NodeName, Demand]) -> int:
    """Nodes where Slurm grants wait for a worker to be made."""
    return len(
        [v for v in nodes if v.worker is None and demand[v.name].slurm and not demand[v.name].pods and not v.trouble]
    )


def _stays(view: NodeView, found: Mapping[NodeName, Causes]) -> bool:
    return view.worker is not None and view.worker.live and not found[view.name].leave


def _idle(view: NodeView, demand: Demand) -> bool:
    worker = view.worker
    if worker is None or worker.slurm is None or worker.idle_since_ms is None:
        return False
    return not demand.slurm and not worker.slurm.occupied and not worker.slurm.foreign


def _expired(view: NodeView, nodeset: NodeSetView, *, now_ms: int) -> bool:
    return now_ms - _idle_since(view) >= nodeset.idle_after_s * 1000


def _idle_since(view: NodeView) -> int:
    return view.worker.idle_since_ms or 0 if view.worker is not None else 0


def _scaling_in(view: NodeView) -> bool:
    """Its scale-in has begun."""
    worker: WorkerView | None = view.worker
    return worker is not None and worker.slurm is not None and worker.slurm.drained_by_us
