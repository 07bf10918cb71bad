"""One pass over one flavor: who starts, who keeps, and what is taken back for whom. Pure.

The best head of all queues is judged, again and again until every queue is through. What starts is charged at once,
so that later ones see it; the pass undoes its charges at its end: its answer is a proposal.

The first blocked workload of each queue keeps what it waits for (bridge.admission.keeping); those that may reclaim
get an earmark and victims instead (bridge.admission.reclaims). Who is not judged is closed by one of the same shape
that comes before it.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bridge.admission import refusals
from bridge.admission.ahead import Kept
from bridge.admission.decisions import Placed
from bridge.admission.judgement import Verdict, judge
from bridge.admission.keeping import KEEPERS, Keeper, Trials, keeper
from bridge.admission.line import Line
from bridge.admission.model import Earmark, Holding, Policy
from bridge.admission.order import Key, key_of
from bridge.admission.queues import Rank, Shape, limit_ms, rank_of
from bridge.admission.racks import Share
from bridge.admission.reclaims import Reclaims
from bridge.admission.section import EARMARKED, STARTED, Section, expected
from bridge.errors import BrokenInvariantError
from bridge.quota.model import TeamName
from bridge.workloads.model import NodeName, Workload, WorkloadId
from bridge.workloads.reasons import Reason


@dataclass(frozen=True, slots=True)
class Closure:
    """Which workloads of a shape were passed over: those with a time limit above the bound, all when it is None."""

    rank: Rank  # who was judged
    bound_ms: int | None
    keepers: int  # how many kept before it
    reason: Reason


class Round:
    """The pass. After `run`, its answer; `replay` brings back the state that it ended with."""

    def __init__(self, section: Section, policy: Policy, pauses: Mapping[WorkloadId, int], now_ms: int) -> None:
        """Take the flavor as it is. `pauses`: workloads that reclaim nothing before that time."""
        self.section = section
        self.now_ms = now_ms
        self.placed: list[Placed] = []
        self.keepers: list[Keeper] = []
        self._ahead = Kept(())
        self.closures: dict[Shape, list[Closure]] = {}
        self.next_ms: int | None = None
        self._wakes_ms: list[int] = []
        self._reclaims = Reclaims(section, policy, pauses, now_ms)
        self._kept: set[TeamName] = set()
        self._undo: list[Callable[[], None]] = []
        self._trials = Trials(section)
        self._full: dict[Share, int] = {}  # so many nodes have no room for such a share any more

    @property
    def earmarks(self) -> Mapping[WorkloadId, Earmark]:
        """What is taken back, by whom it is kept for."""
        return self._reclaims.earmarks

    def run(self) -> None:
        """Decide; the section is as before afterwards."""
        try:
            self._walk()
        finally:
            self._restore()
        self._wakes_ms += self._reclaims.wakes_ms
        self.next_ms = min((at_ms for at_ms in self._wakes_ms if at_ms > self.now_ms), default=None)

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Bring back the state that the pass ended with, as far as it is not recorded meanwhile."""
        section = self.section
        try:
            for placed in self.placed:
                if section.shape(placed.workload.id) is not None:
                    self._grant(placed)
            for name, earmark in self.earmarks.items():
                if section.shape(name) is not None and name not in section.earmarks:
                    self._mark(section.waiting[name], earmark)
            yield
        finally:
            self._restore()

    def _walk(self) -> None:
        lines = {team: Line(queue, self.section.waiting) for team, queue in self.section.queues.items()}
        heads: list[tuple[Key, TeamName, int]] = []  # with how much was charged when the key was made
        for team, line in lines.items():
            heads += self._next(team, line)
        heapq.heapify(heads)
        while heads:
            key, team, charged = heads[0]
            line = lines[team]
            head = line.head
            if head is None:
                raise BrokenInvariantError(f"team {team} has a place in the order and nobody who waits")
            workload, group = head
            if charged != len(self._undo) and (actual := key_of(self.section, workload)) != key:
                heapq.heapreplace(heads, (actual, team, len(self._undo)))  # another grant moved it back
                continue
            heapq.heappop(heads)
            self._decide(workload, group.shape, line)
            for entry in self._next(team, line):
                heapq.heappush(heads, entry)

    def _next(self, team: TeamName, line: Line) -> list[tuple[Key, TeamName, int]]:
        """Return the place in the order of a line's next; nothing when nobody of it is left who could start.

        Once nobody of a line may keep or reclaim any more, who is blocked now is passed over without his turn: by
        then there will be no more room, and no fewer keepers.
        """
        while (head := line.head) is not None:
            workload, group = head
            if refusals.of_group(self.section, group) is not None:
                line.close(None)
            elif not (self._is_over(team) and self._is_blocked(workload, group.shape, line)):
                return [(key_of(self.section, workload), team, len(self._undo))]
        return []

    def _is_over(self, team: TeamName) -> bool:
        """Return whether nobody of a queue may keep or reclaim any more in this pass."""
        return (team in self._kept or len(self.keepers) >= KEEPERS) and self._reclaims.ended(team)

    def _is_blocked(self, workload: Workload, shape: Shape, line: Line) -> bool:
        """Pass over a head that is blocked already; False when it has to wait for its turn."""
        if shape.alone is not None:
            return False
        full = shape.within_nodes is None and shape.nodes >= self._full.get(shape.share, shape.nodes + 1)
        if full or shape.gpus > self.section.balances.available(shape.team, self.section.flavor):
            self._close(workload, shape, Reason.QUOTA, line, None)
            return True
        verdict = self._judge(workload, shape)
        if verdict.placement is not None:
            return False
        self._close(workload, shape, verdict.reason, line, verdict.bound_ms)
        return True

    def _judge(self, workload: Workload, shape: Shape) -> Verdict:
        verdict = judge(self.section, workload, shape, self._ahead, self.now_ms, self._trials)
        if verdict.passes_ms is not None:
            self._wakes_ms.append(verdict.passes_ms + 1)
        if verdict.reason is Reason.CAPACITY and shape.within_nodes is None:
            self._full[shape.share] = min(shape.nodes, self._full.get(shape.share, shape.nodes))
        return verdict

    def _decide(self, workload: Workload, shape: Shape, line: Line) -> None:
        section = self.section
        verdict = self._judge(workload, shape)
        if verdict.placement is not None:
            drains = section.racks.drains(verdict.placement, shape.share)
            placed = Placed(workload, verdict.placement, drains)
            self.placed.append(placed)
            self._grant(placed)
            line.advance()
        elif section.marked(workload.id) is not None:
            self._close(workload, shape, verdict.reason, line, None)  # its earmark keeps for it
        elif verdict.reason in (Reason.QUOTA, Reason.CAPACITY) and (
            found := self._reclaims.find(workload, shape, self._closed(verdict))
        ):
            self._mark(workload, found)
            line.advance()
        else:
            if verdict.reason is not Reason.GUARANTEE_ONLY:
                self._reclaims.stop(shape.team)
            self._close(workload, shape, verdict.reason, line, verdict.bound_ms)
            self._keep(workload, shape, verdict)

    def _close(self, workload: Workload, shape: Shape, reason: Reason, line: Line, bound_ms: int | None) -> None:
        closure = Closure(rank_of(workload), bound_ms, len(self.keepers), reason)
        self.closures.setdefault(shape, []).append(closure)
        line.close(bound_ms)

    def closure(self, workload: Workload, shape: Shape) -> Closure | None:
        """Return what the workload was passed over by, or judged as; None when the pass did not get to it."""
        limit = limit_ms(workload)
        for closure in self.closures.get(shape, ()):
            if closure.bound_ms is None or limit is None or limit > closure.bound_ms:
                return closure if rank_of(workload) >= closure.rank else None
            if rank_of(workload) == closure.rank:
                return closure
        return None

    def _closed(self, verdict: Verdict) -> frozenset[NodeName]:
        """Return the nodes that are kept for those ahead of a blocked workload."""
        return verdict.closed | self._ahead.binding(within=verdict.within).closed

    def _keep(self, workload: Workload, shape: Shape, verdict: Verdict) -> None:
        """Keep for the first blocked of its queue, unless it waits in vain."""
        if verdict.reason is Reason.GUARANTEE_ONLY or shape.team in self._kept or len(self.keepers) >= KEEPERS:
            return
        by_quota = verdict.reason is Reason.QUOTA
        found = keeper(self.section, workload, shape, verdict.closed, within=verdict.within, quota=by_quota)
        if found is not None:
            self._kept.add(shape.team)
            self.keepers.append(found)
            self._ahead = Kept(self.keepers)

    def _grant(self, placed: Placed) -> None:
        """Charge what starts."""
        section, workload = self.section, placed.workload
        if section.marked(workload.id) is not None:
            section.lift(workload.id)
            self._trials = Trials(section)
            self._undo.append(lambda: section.lower(workload.id))
        self._charge(expected(workload, placed.placement, STARTED, self.now_ms))

    def _mark(self, workload: Workload, earmark: Earmark) -> None:
        """Charge what is taken back, beside those who still hold it."""
        self._charge(expected(workload, earmark.placement, EARMARKED))

    def _charge(self, holding: Holding) -> None:
        self.section.start(holding)
        self._trials.charge(holding.grant.team, holding.grant.gpus)
        self._undo.append(lambda: self.section.stop(holding))

    def _restore(self) -> None:
        self._trials = Trials(self.section)
        while self._undo:
            self._undo.pop()()
