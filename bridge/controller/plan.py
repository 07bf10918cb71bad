"""The plan of one cycle, from one frozen world. Pure, deterministic, total: the product on one screen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.capacity import plan as capacity
from bridge.controller import acts, cancel, demand, nodes, preempt, route, settle, start, stranded, tell
from bridge.controller.desk import AdmissionDesk
from bridge.controller.world import World
from bridge.workloads.model import Grant, GrantState, WorkloadId
from bridge.workloads.reasons import Reason, Waiting


@dataclass(frozen=True, slots=True)
class Plan:
    """What to record, then what to do, and why each waiting workload waits."""

    writes: tuple[acts.LedgerWrite, ...]
    acts: tuple[Any, ...]
    waits: Mapping[WorkloadId, Waiting]
    grants: tuple[Grant, ...]  # those that hold once the writes are recorded
    demand: demand.Demand
    capacity: tuple[Any, ...]  # one NodeView per GPU node
    moving: bool  # granted work is on its way: read Slurm faster

    @property
    def changes_intents(self) -> bool:
        """Return whether carrying this out opens or settles an intent."""
        kinds = (acts.Intend, acts.Settle, acts.SubmitJob, acts.SignalJob)
        return any(isinstance(step, kinds) for step in (*self.writes, *self.acts))


def plan(world: World, desk: AdmissionDesk | None = None) -> Plan:
    """Decide everything that one cycle does. `desk` only saves work: a fresh one decides the same."""
    # 1. What ended, started or was lost since the last look.
    settled, holds = settle.settle(world)
    grants = settle.project(world.grants, settled)
    settled += stranded.stranded(world, grants, nodes.views(world, grants))
    grants = settle.project(world.grants, settled)
    # 2. Batch Jobs: their Slurm jobs and their status.
    routed = route.route(world)
    # 3. What is being taken back: victims told, requeued and evicted.
    tries = preempt.preempt(world, grants)
    grants = settle.project(grants, tries.writes)
    # 4. Who gets in, and who must make way: quota, order and feasible nodes.
    asked = demand.demand(world, grants)
    views = nodes.views(world, grants)
    admitted, why = _admit(world, asked, grants, views, tries, desk or AdmissionDesk())
    grants = settle.project(grants, admitted)
    # 5. Where capacity must go: workers made, drained and removed; drains kept in step both ways.
    views = nodes.views(world, grants)
    moves: tuple[Any, ...] = ()
    if _known(world):
        moves = capacity.plan((*views, *nodes.orphans(world, views)), grants, now_ms=world.now_ms)
    # 6. Granted work whose capacity is in place starts; the rest is told that it moves.
    started, moving = start.start(world, grants, views)
    waits = {**why, **moving}
    # 7. Cancels that were asked for, until their end is seen.
    cancels = cancel.cancel(world)
    # 8. Tell people where they look.
    told = [*tell.annotations(world, waits, grants), *tell.conditions(world, waits, grants)]
    # 9. Account for every GPU of every node.
    changed = tuple(row for row in nodes.rows(world, grants, views) if row != world.rows.get(row.node))
    columns = (acts.RecordCapacity(changed),) if changed else ()
    return Plan(
        writes=(*settled, *routed.writes, *tries.writes, *admitted, *cancels.writes, *columns),
        acts=(*holds, *cancels.acts, *tries.acts, *moves, *started, *routed.slurm, *routed.kube, *told),
        waits=waits,
        grants=grants,
        demand=asked,
        capacity=views,
        moving=any(grant.state is GrantState.RESERVED for grant in grants),
    )


def _known(world: World) -> bool:
    return world.kube.ok and world.slurm.ok


def _admit(
    world: World,
    asked: demand.Demand,
    grants: tuple[Grant, ...],
    views: tuple[Any, ...],
    tries: preempt.Preempting,
    desk: AdmissionDesk,
) -> tuple[list[acts.LedgerWrite], dict[WorkloadId, Waiting]]:
    """Admit over what both systems are known to hold; with one of them unknown nobody can be placed safely."""
    if not _known(world):
        which = world.kube.error or world.slurm.error
        out = Waiting(Reason.OUTAGE, f"nothing is admitted while a system cannot be read: {which}")
        return [], {**{w.id: out for w in asked.waiting}, **asked.refused}
    writes, waits = desk.decide(world, asked.waiting, grants, views, tries)
    return writes, {**waits, **asked.refused}
