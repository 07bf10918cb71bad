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
from bridge.admission.roll import Roll
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
        self._roll_waiting: Roll[Workload] = Roll()
        self._roll_holdings: Roll[Holding] = Roll()
        self._roll_nodes: Roll[NodeSupply] = Roll()
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
        section = self._section(workload.flavor)
        self._roll_waiting.swap(section.waiting.get(workload.id), workload)
        section.submit(workload)
        self._bar(workload.id)

    def withdraw(self, name: WorkloadId) -> None:
        """Forget a waiting workload; nothing happens when it does not wait."""
        flavor = self._waiting.pop(name, None)
        if flavor is not None:
            section = self._sections[flavor]
            self._roll_waiting.swap(section.waiting[name], None)
            section.withdraw(name)

    def hold(self, holding: Holding) -> None:
        """Add a grant that holds, or replace what is known of it; one that holds no longer is freed."""
        grant = holding.grant
        if not grant.holds:
            self.free(grant.workload, grant.attempt)
            return
        section = self._section(grant.flavor)
        self._roll_holdings.swap(section.holdings.get(grant.workload, {}).get(grant.attempt), holding)
        section.hold(holding)
        self._bar(grant.workload)

    def free(self, name: WorkloadId, attempt: int | None = None) -> None:
        """Forget what an attempt of a workload holds (None: all attempts); nothing happens when it holds nothing."""
        for section in self._sections.values():
            for number in [each for each in section.holdings.get(name, ()) if attempt in (None, each)]:
                self._roll_holdings.swap(section.holdings[name][number], None)
                section.free(name, number)
        self._bar(name)

    def node(self, supply: NodeSupply) -> None:
        """Add a node, or replace what is known of it."""
        known = self._nodes.get(supply.name)
        if known is not None and known != supply.flavor:
            self.remove_node(supply.name)
        self._nodes[supply.name] = supply.flavor
        section = self._section(supply.flavor)
        self._roll_nodes.swap(section.supplies.get(supply.name), supply)
        section.put_node(supply)

    def remove_node(self, name: NodeName) -> None:
        """Forget a node; nothing happens when it is not known."""
        flavor = self._nodes.pop(name, None)
        if flavor is not None:
            section = self._sections[flavor]
            self._roll_nodes.swap(section.supplies[name], None)
            section.remove_node(name)

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
        waiting: Collection[Workload],
        holdings: Collection[Holding],
        nodes: Collection[NodeSupply],
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
            self.pause(name, 0)
            del self._pauses[name]

    def _sync_nodes(self, nodes: Collection[NodeSupply]) -> None:
        fresh, gone = self._roll_nodes.differences(nodes)
        for node in fresh:
            flavor = self._nodes.get(node.name)
            old = None if flavor is None else self._sections[flavor].supplies[node.name]
            if old != node:
                self.node(node)
            else:
                self._roll_nodes.swap(old, node)
                self._section(node.flavor).supplies[node.name] = node
        for node in gone:
            flavor = self._nodes.get(node.name)
            if flavor is not None and self._sections[flavor].supplies[node.name] is node:
                self.remove_node(node.name)

    def _sync_holdings(self, holdings: Collection[Holding]) -> None:
        fresh, gone = self._roll_holdings.differences(holdings)
        for holding in fresh:
            grant = holding.grant
            if not grant.holds:
                continue
            section = self._section(grant.flavor)
            old = section.holdings.get(grant.workload, {}).get(grant.attempt)
            if old != holding:
                self.hold(holding)
            else:
                self._roll_holdings.swap(old, holding)
                section.replace(holding)
        for holding in gone:
            grant = holding.grant
            if self._section(grant.flavor).holdings.get(grant.workload, {}).get(grant.attempt) is holding:
                self.free(grant.workload, grant.attempt)

    def _sync_earmarks(self, earmarks: Iterable[Earmark]) -> None:
        wanted = {earmark.workload: earmark for earmark in earmarks}
        for name in [name for name in self._marks if name not in wanted]:
            self.unmark(name)
        for name, earmark in wanted.items():
            flavor = self._marks.get(name)
            if flavor is None or self._sections[flavor].earmarks[name] != earmark:
                self.earmark(earmark)

    def _sync_waiting(self, waiting: Collection[Workload]) -> None:
        fresh, gone = self._roll_waiting.differences(waiting)
        left = {id(workload) for workload in gone}
        for workload in fresh:
            flavor = self._waiting.get(workload.id)
            old = None if flavor is None else self._sections[flavor].waiting[workload.id]
            twice = old is not None and id(old) not in left  # both are asked: the first in the order counts
            if old == workload:
                self._roll_waiting.swap(old, workload)
                self._section(workload.flavor).waiting[workload.id] = workload
            elif old is None or not twice or _order(workload) < _order(old):
                self.submit(workload)
        for workload in gone:
            flavor = self._waiting.get(workload.id)
            if flavor is not None and self._sections[flavor].waiting[workload.id] is workload:
                self.withdraw(workload.id)

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


def _order(workload: Workload) -> tuple[tuple[int, int, WorkloadId], int]:
    return rank_of(workload), workload.gpus
