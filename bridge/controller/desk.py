"""The controller's use of the admission desk: kept between cycles, brought to each world by differences.

A desk that was kept decides as a fresh one would, so a plan stays a function of its world. What waits is written out
here, in the cycle's own thread: the desk explains from its present state, and is changed by the next cycle.
"""

from collections.abc import Sequence

from bridge.admission.decisions import Decisions
from bridge.admission.desk import Desk
from bridge.capacity import supply
from bridge.capacity.model import NodeView
from bridge.controller import acts, holdings, preempt
from bridge.controller.preempt import Preempting
from bridge.controller.world import World
from bridge.workloads.model import Grant, Workload, WorkloadId
from bridge.workloads.reasons import Waiting


class AdmissionDesk:
    """Decides once per cycle. Used by one thread."""

    def __init__(self) -> None:
        self._desk: Desk | None = None
        self._last: Decisions | None = None
        self._waits: dict[WorkloadId, Waiting] = {}

    def decide(
        self,
        world: World,
        waiting: Sequence[Workload],
        grants: tuple[Grant, ...],
        views: Sequence[NodeView],
        tries: Preempting,
    ) -> tuple[list[acts.LedgerWrite], dict[WorkloadId, Waiting]]:
        """Return what to grant and what to take back, and why the rest waits. Both systems must be known."""
        settings = world.settings
        desk = self._desk or Desk(settings.tree, settings.flavors.names, settings.policy, world.history)
        self._desk = desk
        desk.reorganise(settings.tree, settings.policy, settings.flavors.names)
        desk.remember(world.history)
        desk.sync(
            waiting=waiting,
            holdings=holdings.holdings(world, grants, tries.earmarks),
            nodes=supply.supplies(views, grants, now_ms=world.now_ms),
            earmarks=tries.earmarks,
            pauses=tries.pauses_ms,
        )
        decisions = desk.decide(world.now_ms)
        if decisions is not self._last:
            self._last, self._waits = decisions, dict(decisions.waiting)
        writes: list[acts.LedgerWrite] = [acts.Reserve(made.workload, made.placement) for made in decisions.admitted]
        return [*writes, *preempt.record(decisions.preemptions, tries)], self._waits
