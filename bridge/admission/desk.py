"""The one admission decision, kept up to date change by change. Pure: no clock, no I/O; deterministic.

The desk is told what waits, what holds, which nodes there are and what is earmarked. `decide` proposes; the caller
tells the desk what it recorded (`hold`, `earmark`) - nothing else changes by deciding. A desk after any sequence of
changes decides as a fresh one that is told the same state.

Each flavor is decided by itself, and only when something of it changed, or when its time has come.
"""

from collections.abc import Collection, Iterable, Mapping

from bridge.admission.decisions import Decisions
from bridge.admission.model import Earmark, History, Holding, Policy
from bridge.admission.queues import rank_of
from bridge.admission.round import Round
from bridge.admission.section import Section
from bridge.admission.supply import NodeSupply
from bridge.admission.waits import SectionWaits, Waits
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Tree
from bridge.workloads.model import NodeName, Workload, WorkloadId


class Desk:
    """Everything that admission knows, by flavor."""

    def __init__(
        self,
        tree: Tree,
        flavors: Collection[FlavorName],
        policy: Policy | None = None,
        history: History | None = None,
    ) -> None:
        """Start with nobody waiting, nothing held and no nodes."""
        self._tree = tree
        self._flavors = frozenset(flavors)
        self._policy = policy or Policy()
        self._history: History = dict(history or {})
        self._sections: dict[FlavorName, Section] = {}
        self._rounds: dict[FlavorName, tuple[int, Round]] = {}  # the section's version, and what was decided on it
        self._waiting: dict[WorkloadId, FlavorName] = {}
        self._nodes: dict[NodeName, FlavorName] = {}
        self._marks: dict[WorkloadId, FlavorName] = {}
        self._pauses: dict[WorkloadId, int] = {}
        self._last: tuple[tuple[Round, ...], Decisions] | None = None

    # Changes, one by one.

    def submit(self, workload: Workload) -> None:
        """Let a workload wait, or replace what a waiting one asks. One that holds is never granted again."""
        known = self._waiting.get(workload.id)
        if known is not None and known != workload.flavor:
            self.withdraw(workload.id)
        self._waiting[workload.id] = workload.flavor
        self._section(workload.flavor).submit(workload)
        self._bar(workload.id)

    def withdraw(self, name: WorkloadId) -> None:
        """Forget a waiting workload; nothing happens when it does not wait."""
        flavor = self._waiting.pop(name, None)
        if flavor is not None:
            self._sections[flavor].withdraw(name)

    def hold(self, holding: Holding) -> None:
        """Add a grant that holds, or replace what is known of it; one that holds no longer is freed."""
        grant = holding.grant
        if not grant.holds:
            self.free(grant.workload, grant.attempt)
            return
        self._section(grant.flavor).hold(holding)
        self._bar(grant.workload)

    def free(self, name: WorkloadId, attempt: int | None = None) -> None:
        """Forget what an attempt of a workload holds (None: all attempts); nothing happens when it holds nothing."""
        for section in self._sections.values():
            held = section.holdings.get(name)
            if held is not None and (attempt is None or attempt in held):
                section.free(name, attempt)
        self._bar(name)

    def node(self, supply: NodeSupply) -> None:
        """Add a node, or replace what is known of it."""
        known = self._nodes.get(supply.name)
        if known is not None and known != supply.flavor:
            self.remove_node(supply.name)
        self._nodes[supply.name] = supply.flavor
        self._section(supply.flavor).put_node(supply)

    def remove_node(self, name: NodeName) -> None:
        """Forget a node; nothing happens when it is not known."""
        flavor = self._nodes.pop(name, None)
        if flavor is not None:
            self._sections[flavor].remove_node(name)

    def earmark(self, earmark: Earmark) -> None:
        """Keep capacity for a workload: an open intent of kind `preempt`."""
        self.unmark(earmark.workload)
        self._marks[earmark.workload] = earmark.flavor
        self._section(earmark.flavor).earmark(earmark)

    def unmark(self, name: WorkloadId) -> None:
        """Keep it no longer; nothing happens when nothing is kept for it."""
        flavor = self._marks.pop(name, None)
        if flavor is not None:
            self._sections[flavor].unmark(name)

    def pause(self, name: WorkloadId, until_ms: int) -> None:
        """Let a workload reclaim nothing before that time: its last earmark lapsed without a start."""
        self._pauses[name] = until_ms
        self._rounds.pop(self._waiting.get(name, FlavorName("")), None)

    def reorganise(self, tree: Tree, policy: Policy, flavors: Collection[FlavorName]) -> None:
        """Take another quota tree, other rules, or other flavors."""
        known = frozenset(flavors)
        if tree is not self._tree or known != self._flavors:
            self._tree, self._flavors = tree, known
            for flavor, section in self._sections.items():
                section.reorganise(tree, self._past(flavor), known=flavor in known)
            self._rounds.clear()
        if policy != self._policy:
            self._policy = policy
            self._rounds.clear()

    def remember(self, history: History) -> None:
        """Take another decayed usage history."""
        if history == self._history:
            return
        self._history = dict(history)
        for flavor, section in self._sections.items():
            section.remember(self._past(flavor))

    # Changes, as differences from whole snapshots.

    def sync(
        self,
        *,
        waiting: Iterable[Workload],
        holdings: Iterable[Holding],
        nodes: Iterable[NodeSupply],
        earmarks: Iterable[Earmark] = (),
        pauses: Mapping[WorkloadId, int] | None = None,
    ) -> None:
        """Bring the desk to this state. Of two waiting with the same id, the first in the order of a queue counts."""
        self._sync_nodes(nodes)
        self._sync_holdings(holdings)
        self._sync_earmarks(earmarks)
        self._sync_waiting(waiting)
        for name, until_ms in (pauses or {}).items():
            if self._pauses.get(name) != until_ms:
                self.pause(name, until_ms)
        for name in self._pauses.keys() - (pauses or {}).keys():
            del self._pauses[name]

    def _sync_nodes(self, nodes: Iterable[NodeSupply]) -> None:
        seen: set[NodeName] = set()
        for node in nodes:
            seen.add(node.name)
            flavor = self._nodes.get(node.name)
            old = None if flavor is None else self._sections[flavor].supplies[node.name]
            if old is not node and old != node:
                self.node(node)
        for name in [name for name in self._nodes if name not in seen]:
            self.remove_node(name)

    def _sync_holdings(self, holdings: Iterable[Holding]) -> None:
        seen: set[tuple[FlavorName, WorkloadId, int]] = set()
        for holding in holdings:
            grant = holding.grant
            if not grant.holds:
                continue
            seen.add((grant.flavor, grant.workload, grant.attempt))
            section = self._sections.get(grant.flavor)
            old = None if section is None else section.holdings.get(grant.workload, {}).get(grant.attempt)
            if old is not holding and old != holding:
                self.hold(holding)
        for flavor, section in self._sections.items():
            gone = [
                (name, attempt)
                for name, attempts in section.holdings.items()
                for attempt in attempts
                if (flavor, name, attempt) not in seen
            ]
            for name, attempt in gone:
                section.free(name, attempt)
                self._bar(name)

    def _sync_earmarks(self, earmarks: Iterable[Earmark]) -> None:
        wanted = {earmark.workload: earmark for earmark in earmarks}
        for name in [name for name in self._marks if name not in wanted]:
            self.unmark(name)
        for name, earmark in wanted.items():
            flavor = self._marks.get(name)
            if flavor is None or self._sections[flavor].earmarks[name] != earmark:
                self.earmark(earmark)

    def _sync_waiting(self, waiting: Iterable[Workload]) -> None:
        wanted: dict[WorkloadId, Workload] = {}
        for workload in waiting:
            other = wanted.get(workload.id)
            if other is None or (*rank_of(workload), workload.gpus) < (*rank_of(other), other.gpus):
                wanted[workload.id] = workload
        for name in [name for name in self._waiting if name not in wanted]:
            self.withdraw(name)
        for name, workload in wanted.items():
            flavor = self._waiting.get(name)
            old = None if flavor is None else self._sections[flavor].waiting[name]
            if old is not workload and old != workload:
                self.submit(workload)

    # Deciding.

    def decide(self, now_ms: int) -> Decisions:
        """Decide every waiting workload: each is in exactly one of admitted and waiting.

        Nothing of the state changes. When nothing has changed since, the last answer is returned itself.
        """
        rounds = tuple(self._decide(flavor, now_ms) for flavor in sorted(self._sections))
        if self._last is None or self._last[0] != rounds:
            times = [ended.next_ms for ended in rounds if ended.next_ms is not None]
            decisions = Decisions(
                tuple(placed for ended in rounds for placed in ended.placed),
                Waits([SectionWaits(ended, self._flavors) for ended in rounds]),
                tuple(earmark for ended in rounds for earmark in ended.earmarks.values()),
                min(times, default=None),
            )
            self._last = rounds, decisions
        return self._last[1]

    def _decide(self, flavor: FlavorName, now_ms: int) -> Round:
        """Return the last pass while nothing has changed and its time has not come, else a new one."""
        section = self._sections[flavor]
        section.lapse(now_ms)
        found = self._rounds.get(flavor)
        if found is not None:
            version, ended = found
            due = ended.next_ms is not None and now_ms >= ended.next_ms
            proposes = bool(ended.placed or ended.earmarks)
            if version == section.version and not due and (not proposes or ended.now_ms == now_ms):
                return ended
        ended = Round(section, self._policy, self._pauses, now_ms)
        ended.run()
        self._rounds[flavor] = section.version, ended
        return ended

    def _section(self, flavor: FlavorName) -> Section:
        if flavor not in self._sections:
            known = flavor in self._flavors
            self._sections[flavor] = Section(flavor, self._tree, self._past(flavor), known=known)
        return self._sections[flavor]

    def _past(self, flavor: FlavorName) -> dict[TeamName, float]:
        return {team: gpus for (team, of), gpus in self._history.items() if of == flavor}

    def _bar(self, name: WorkloadId) -> None:
        """Nothing that holds is granted again, not of another flavor either."""
        flavor = self._waiting.get(name)
        if flavor is not None:
            attempts = [
                attempt
                for other, section in self._sections.items()
                if other != flavor
                for attempt in section.holdings.get(name, ())
            ]
            self._sections[flavor].bar(name, max(attempts, default=None))
