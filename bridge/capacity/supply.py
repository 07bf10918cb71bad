"""Nodes and workers as supply for admission: one rule for what is usable, here and in the worker plan. Pure."""

from collections.abc import Mapping, Sequence

from bridge.admission.supply import NodeSupply
from bridge.capacity.causes import room_for_workers, slurm_mismatch
from bridge.capacity.demand import Demand, demands
from bridge.capacity.model import NodeView
from bridge.capacity.plan import retry_at_ms
from bridge.workloads.model import Grant, NodeName


def supplies(nodes: Sequence[NodeView], grants: Sequence[Grant], *, now_ms: int) -> tuple[NodeSupply, ...]:
    """Return every node for admission, by name."""
    views = sorted(nodes, key=lambda view: view.name)
    demand = demands(views, grants)
    creatable = _creatable(views, demand)
    return tuple(_supply(view, demand[view.name], creatable, now_ms=now_ms) for view in views)


def _supply(view: NodeView, demand: Demand, creatable: frozenset[NodeName], *, now_ms: int) -> NodeSupply:
    live = view.worker if view.worker is not None and view.worker.live else None
    no_worker = slurm_mismatch(view)
    if view.nodeset is not None and view.nodeset.deleting:
        no_worker = f"node set {view.nodeset.name} is being deleted"
    elif live is None and not demand.slurm:
        no_worker = _no_worker(view, creatable, now_ms=now_ms)
    return NodeSupply(
        name=view.name,
        flavor=view.flavor,
        total=view.allocatable,
        usable=not view.unusable,
        cause=view.unusable or no_worker,
        slurm=demand.slurm,
        pods=demand.pods,
        unmanaged=view.unmanaged,
        worker_gpus=None if live is None else live.gpus,
        slurm_ok=not no_worker,
    )


def _no_worker(view: NodeView, creatable: frozenset[NodeName], *, now_ms: int) -> str:
    """Say why no worker can be made here now; "" when one can."""
    if view.nodeset is None:
        return "no node set covers it"
    if now_ms < retry_at_ms(view):
        return "its last worker failed"
    if view.name not in creatable:
        return f"node set {view.nodeset.name} is at its maximum of {view.nodeset.max} workers"
    return ""


def _creatable(views: Sequence[NodeView], demand: Mapping[NodeName, Demand]) -> frozenset[NodeName]:
    """Nodes without a worker that their node set's maximum still allows one on; emptiest names first."""
    chosen: set[NodeName] = set()
    for nodeset in {view.nodeset.name: view.nodeset for view in views if view.nodeset is not None}.values():
        mine = [view for view in views if view.nodeset is not None and view.nodeset.name == nodeset.name]
        coming = len([v for v in mine if v.worker is None and demand[v.name].slurm])
        free = [v for v in mine if v.worker is None and not demand[v.name].slurm]
        free.sort(key=lambda v: (bool(v.trouble), demand[v.name].pods + v.unmanaged, v.name))
        chosen.update(view.name for view in free[: max(0, room_for_workers(nodeset, mine) - coming)])
        chosen.update(view.name for view in mine if view.worker is not None)
    return frozenset(chosen)
