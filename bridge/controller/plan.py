"""The plan of one cycle, from one frozen world. Pure, deterministic, total: the product on one screen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.admission import plan as admission
from bridge.capacity import plan as capacity
from bridge.capacity import supply as capacity_supply
from bridge.controller import acts, cancel, demand, nodes, route, settle, start, stranded, tell
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
        kinds = (acts.Intend, acts.Settle, acts.SubmitJob)
        return any(isinstance(step, kinds) for step in (*self.writes, *self.acts))


def plan(world: World) -> Plan:
    """Decide everything that one cycle does."""
    # 1. What ended, started or was lost since the last look.
    settled, holds = settle.settle(world)
    grants = settle.project(world.grants, settled)
    settled += stranded.stranded(world, grants, nodes.views(world, grants))
    grants = settle.project(world.grants, settled)
    # 2. Batch Jobs: their Slurm jobs and their status.
    routed = route.route(world)
    # 3. Who gets in: quota, order and feasible nodes.
    asked = demand.demand(world, grants)
    views = nodes.views(world, grants)
    admitted, waits = _admit(world, asked, grants, views)
    grants = settle.project(grants, admitted)
    # 4. Where capacity must go: workers made, drained and removed; drains kept in step both ways.
    views = nodes.views(world, grants)
    moves: tuple[Any, ...] = ()
    if _known(world):
        moves = capacity.plan((*views, *nodes.orphans(world, views)), grants, now_ms=world.now_ms)
    # 5. Granted work whose capacity is in place starts; the rest is told that it moves.
    started, moving = start.start(world, grants, views)
    waits = {**waits, **moving}
    # 6. Cancels that were asked for, until their end is seen.
    cancels = cancel.cancel(world)
    # 7. Tell people where they look.
    told = [*tell.annotations(world, waits, grants), *tell.conditions(world, waits, grants)]
    # 8. Account for every GPU of every node.
    changed = tuple(row for row in nodes.rows(world, grants, views) if row != world.rows.get(row.node))
    columns = (acts.RecordCapacity(changed),) if changed else ()
    return Plan(
        writes=(*settled, *routed.writes, *admitted, *cancels.writes, *columns),
        acts=(*holds, *cancels.acts, *moves, *started, *routed.slurm, *routed.kube, *told),
        waits=waits,
        grants=grants,
        demand=asked,
        capacity=views,
        moving=any(grant.state is GrantState.RESERVED for grant in grants),
    )


def _known(world: World) -> bool:
    return world.kube.ok and world.slurm.ok


def _admit(
    world: World, asked: demand.Demand, grants: tuple[Grant, ...], views: tuple[Any, ...]
) -> tuple[list[acts.LedgerWrite], dict[WorkloadId, Waiting]]:
    """Admit over what both systems are known to hold; with one of them unknown nobody can be placed safely."""
    if not _known(world):
        which = world.kube.error or world.slurm.error
        out = Waiting(Reason.OUTAGE, f"nothing is admitted while a system cannot be read: {which}")
        return [], {**{w.id: out for w in asked.waiting}, **asked.refused}
    supply = capacity_supply.supplies(views, grants, now_ms=world.now_ms)
    names = world.settings.flavors.names
    decisions = admission.admit(asked.waiting, world.settings.tree, grants, supply, flavors=names)
    writes: list[acts.LedgerWrite] = [acts.Reserve(placed.workload, placed.placement) for placed in decisions.admitted]
    return writes, {**decisions.waiting, **asked.refused}
