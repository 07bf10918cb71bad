"""The preemptions of one pass over one flavor: who may look for victims, and whom it found. Pure.

In the order of the pass, and of each queue: none before one that is blocked without an earmark. A pass makes a
bounded number of searches; what is not looked for now is looked for in the next pass.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from bridge.admission import hopes, reclaim
from bridge.admission.model import Earmark, Holding, Policy, WithinTeam
from bridge.admission.queues import Shape
from bridge.admission.racks import Share
from bridge.admission.section import Attempt, Section
from bridge.admission.supply import NodeSupply
from bridge.quota.model import TeamName
from bridge.workloads.model import NodeName, Workload, WorkloadId

SEARCHES = 8  # most searches for victims of one flavor in one pass, so at most as many preemptions


class Reclaims:
    """What is taken back. `wakes_ms`: when a search that is in vain now may have an answer."""

    def __init__(self, section: Section, policy: Policy, pauses: Mapping[WorkloadId, int], now_ms: int) -> None:
        """Start with what open earmarks take back already. `pauses`: who reclaims nothing before that time."""
        self.earmarks: dict[WorkloadId, Earmark] = {}
        self.wakes_ms: list[int] = []
        self._section = section
        self._policy = policy
        self._pauses = pauses
        self._now_ms = now_ms
        self._searches = 0
        self._hopes: dict[tuple[tuple[TeamName, ...], Share], int] = {}
        self._stuck: set[TeamName] = set()
        self._going: set[Attempt] = set()
        for name in section.earmarks:
            own = section.marked(name)
            if own is not None:
                self.wakes_ms.append(own.lapses_ms)
                self._going.update((victim.workload, victim.attempt) for victim in own.victims)

    def stop(self, team: TeamName) -> None:
        """Let nobody of the queue reclaim any more in this pass: one is blocked without an earmark."""
        self._stuck.add(team)

    def ended(self, team: TeamName) -> bool:
        """Return whether nobody of the queue may reclaim any more in this pass."""
        return not self._policy.preempts or team in self._stuck or self._searches >= SEARCHES

    def find(self, workload: Workload, shape: Shape, closed: Collection[NodeName]) -> Earmark | None:
        """Find victims for a blocked workload, and keep what they free for it; None when there are none.

        `closed`: nodes kept for others, who come before it.
        """
        if self.ended(shape.team) or workload.id in self._section.earmarks:
            return None
        if not reclaim.can_help(workload, self._section.balances, self._policy):
            return None
        until_ms = self._pauses.get(workload.id, 0)
        if until_ms > self._now_ms:
            self.wakes_ms.append(until_ms)
            return None
        return self._search(workload, shape, closed)

    def _search(self, workload: Workload, shape: Shape, closed: Collection[NodeName]) -> Earmark | None:
        section, swaps = self._section, self._policy.of(shape.team).within_team is WithinTeam.LOWER_PRIORITY
        teams = hopes.prey(section, shape.team, shape.gpus)
        if not swaps and self._clearable(teams, shape) < shape.nodes:
            return None
        self._searches += 1
        seen = self._seen((*teams, shape.team) if swaps else teams)
        found = reclaim.find(
            workload,
            balances=section.balances,
            holdings=seen,
            nodes=self._nodes(shape, seen, closed),
            policy=self._policy,
            now_ms=self._now_ms,
        )
        if found is None:
            self._wait_for_victims()
            return None
        self._going.update((victim.workload, victim.attempt) for victim in found.victims)
        self._hopes.clear()
        self.wakes_ms.append(found.lapses_ms)
        earmark = Earmark(
            workload.id,
            workload.team,
            section.flavor,
            found.placement,
            found.victims,
            self._now_ms,
            found.lapses_ms,
        )
        self.earmarks[workload.id] = earmark
        return earmark

    def _clearable(self, teams: tuple[TeamName, ...], shape: Shape) -> int:
        key = (teams, shape.share)
        if key not in self._hopes:
            self._hopes[key] = hopes.clearable(self._section, teams, self._going, shape.share)
        return self._hopes[key]

    def _seen(self, teams: tuple[TeamName, ...]) -> list[Holding]:
        """Return the holdings that a search has to see; victims of open earmarks, and of this pass, are leaving."""
        return [
            replace(each, leaving=True)
            if not each.leaving and (each.grant.workload, each.grant.attempt) in self._going
            else each
            for each in hopes.holdings(self._section, teams, self._going)
        ]

    def _nodes(self, shape: Shape, seen: Iterable[Holding], closed: Collection[NodeName]) -> dict[NodeName, NodeSupply]:
        """Return the nodes that a search has to see: those that could be cleared, and as many free ones as it needs."""
        racks = self._section.racks
        names = set(racks.best(shape.share, shape.nodes, closed, shape.within_nodes))
        for holding in seen:
            names.update(holding.grant.placement)
        names.difference_update(closed)
        nodes = ((name, racks.supply(name)) for name in names)
        return {name: node for name, node in nodes if node is not None}

    def _wait_for_victims(self) -> None:
        """Look again when the minimum runtime of a possible victim has passed."""
        spans = {team: terms.min_runtime_ms for team, terms in self._policy.preemption.items() if terms.min_runtime_ms}
        for team, span in spans.items():
            for holding in self._section.by_team.get(team, {}).values():
                if holding.grant.running_ms is not None:
                    self.wakes_ms.append(holding.grant.running_ms + span)
