"""All that admission knows of one flavor: who waits, who holds what where, and what is earmarked. Pure.

Changed step by step; `version` counts the changes. Invariants: balances and nodes count every holding, and every
earmark that has not lapsed and whose workload waits; in a queue is exactly who waits and holds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from sortedcontainers import SortedList

from bridge.admission import forecast
from bridge.admission.forecast import KNOWN, Forecast, Outlook
from bridge.admission.model import Earmark, Holding
from bridge.admission.queues import Queue, Shape, limit_ms, shape_of
from bridge.admission.racks import NOWHERE, Racks
from bridge.admission.supply import NodeSupply, Placement
from bridge.quota.fairshare import FairShare
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import Grant, GrantState, NodeName, Workload, WorkloadId

Attempt = tuple[WorkloadId, int]

STARTED, EARMARKED = 0, -1
"""Attempts of what a pass starts, and of what an earmark will hold: the ledger's begin at 1."""


def expected(workload: Workload, placement: Placement, attempt: int, now_ms: int | None = None) -> Holding:
    """Return what a waiting workload will hold; with the time of its start, also when it ends."""
    limit = None if now_ms is None else limit_ms(workload)
    grant = Grant(
        workload.id,
        attempt,
        workload.team,
        workload.flavor,
        workload.system,
        sum(placement.values()),
        GrantState.RESERVED,
        placement,
    )
    ends_ms = None if now_ms is None or limit is None else now_ms + limit
    return Holding(grant, workload.priority, ends_ms, workload.endless)


class Section:
    """One flavor's part of the desk."""

    def __init__(self, flavor: FlavorName, tree: Tree, history: Mapping[TeamName, float], *, known: bool) -> None:
        """Start empty. `known`: the platform has the flavor."""
        self.flavor = flavor
        self.version = 0
        self.reorganised = 0  # how often the quotas changed
        self.waiting: dict[WorkloadId, Workload] = {}
        self.queues: dict[TeamName, Queue] = {}
        self.holdings: dict[WorkloadId, dict[int, Holding]] = {}
        self.elsewhere: dict[WorkloadId, int] = {}  # waiting ones that hold another flavor, and their attempt
        self.by_team: dict[TeamName, dict[Attempt, Holding]] = {}
        self.leaving: set[Attempt] = set()
        self.earmarks: dict[WorkloadId, Earmark] = {}
        self.supplies: dict[NodeName, NodeSupply] = {}  # as they were told
        self.racks = Racks()
        self._shapes: dict[WorkloadId, Shape] = {}  # of those in a queue
        self._marked: dict[WorkloadId, tuple[Earmark, Holding]] = {}  # charged ones, and what they will hold
        self._on: dict[NodeName, dict[Attempt, Holding]] = {}
        self._known: dict[Attempt, Holding] = {}  # all that is on nodes
        self._ending: SortedList[tuple[int, WorkloadId, int]] = SortedList()
        self._outlook = Forecast(self.racks, self._on)
        self.reorganise(tree, history, known=known)

    def reorganise(self, tree: Tree, history: Mapping[TeamName, float], *, known: bool) -> None:
        """Take another quota tree; what is held and waits stays."""
        self.version += 1
        self.reorganised += 1
        self.known = known
        self.tree = tree
        self.balances = Balances(tree, {})
        self.staying = Balances(tree, {})  # holdings whose end is not waited for
        self.fairshare = FairShare(tree, self.flavor, history)
        self._ceilings: dict[TeamName, int] = {}
        for holding in self.all_holdings():
            self._charge(holding, 1)
        for _, expected in self._marked.values():
            self._charge(expected, 1)

    def remember(self, history: Mapping[TeamName, float]) -> None:
        """Take another history."""
        self.version += 1
        self.fairshare = FairShare(self.tree, self.flavor, history)

    # Who waits.

    def submit(self, workload: Workload) -> None:
        """Add a workload, or replace what it asks."""
        self.version += 1
        self._leave(workload.id)
        self.waiting[workload.id] = workload
        self._enter(workload.id)

    def withdraw(self, name: WorkloadId) -> None:
        """Forget a waiting workload."""
        self.version += 1
        self._leave(name)
        del self.waiting[name]
        self.elsewhere.pop(name, None)
        self._charge_mark(name)

    def bar(self, name: WorkloadId, attempt: int | None) -> None:
        """Keep a waiting workload out of its queue while an attempt of it holds another flavor (None: no longer)."""
        if self.elsewhere.get(name) != attempt:
            self.version += 1
            self._leave(name)
            if attempt is None:
                del self.elsewhere[name]
            else:
                self.elsewhere[name] = attempt
            self._enter(name)

    def holds(self, name: WorkloadId) -> int | None:
        """Return the newest attempt of a workload that holds; None when it holds nothing."""
        return max(self.holdings[name]) if name in self.holdings else self.elsewhere.get(name)

    def shape(self, name: WorkloadId) -> Shape | None:
        """Return the shape of a workload that is in a queue."""
        return self._shapes.get(name)

    def _enter(self, name: WorkloadId) -> None:
        """Put a workload that waits and holds nothing into its queue."""
        workload = self.waiting.get(name)
        if workload is not None and self.holds(name) is None:
            shape = self._shapes[name] = shape_of(workload, alone=name in self.earmarks)
            queue = self.queues.get(workload.team)
            if queue is None:
                queue = self.queues[workload.team] = Queue(workload.team)
            queue.add(workload, shape)
        self._charge_mark(name)

    def _leave(self, name: WorkloadId) -> None:
        shape = self._shapes.pop(name, None)
        if shape is not None:
            queue = self.queues[shape.team]
            queue.discard(self.waiting[name], shape)
            if not queue.groups:
                del self.queues[shape.team]

    # Who holds.

    def all_holdings(self) -> Iterator[Holding]:
        """Return everything that holds."""
        return (holding for attempts in self.holdings.values() for holding in attempts.values())

    def hold(self, holding: Holding) -> None:
        """Add a holding, or replace what is known of it."""
        self.version += 1
        name = holding.grant.workload
        self._leave(name)
        attempts = self.holdings.setdefault(name, {})
        if holding.grant.attempt in attempts:
            self._drop(attempts.pop(holding.grant.attempt))
        attempts[holding.grant.attempt] = holding
        self._place(holding)
        self._charge_mark(name)

    def replace(self, holding: Holding) -> None:
        """Take another object for an equal holding."""
        grant = holding.grant
        key = (grant.workload, grant.attempt)
        self.holdings[grant.workload][grant.attempt] = holding
        self.by_team[grant.team][key] = self._known[key] = holding
        for node in grant.placement:
            self._on[node][key] = holding

    def free(self, name: WorkloadId, attempt: int | None = None) -> None:
        """Forget one attempt that held, or all of a workload's."""
        self.version += 1
        attempts = self.holdings[name]
        for number in list(attempts) if attempt is None else [attempt]:
            self._drop(attempts.pop(number))
        if not attempts:
            del self.holdings[name]
            self._enter(name)

    def _place(self, holding: Holding) -> None:
        key = (holding.grant.workload, holding.grant.attempt)
        self.by_team.setdefault(holding.grant.team, {})[key] = holding
        if holding.leaving:
            self.leaving.add(key)
        self._charge(holding, 1)
        self._expect(holding)
        self.racks.occupy(holding.grant.placement, holding.grant.system)

    def _drop(self, holding: Holding) -> None:
        key = (holding.grant.workload, holding.grant.attempt)
        del self.by_team[holding.grant.team][key]
        self.leaving.discard(key)
        self._charge(holding, -1)
        self._forget(holding)
        self.racks.occupy(holding.grant.placement, holding.grant.system, -1)

    def start(self, holding: Holding) -> None:
        """Count what is to hold beside all that is counted already, until `stop`: a pass's starts, and earmarks."""
        self._charge(holding, 1)
        self._expect(holding)
        self.racks.mark(holding.grant.placement, holding.grant.system)

    def stop(self, holding: Holding) -> None:
        """Undo `start`."""
        self._charge(holding, -1)
        self._forget(holding)
        self.racks.mark(holding.grant.placement, holding.grant.system, -1)

    def _expect(self, holding: Holding) -> None:
        """Let forecasts see when it ends."""
        key = (holding.grant.workload, holding.grant.attempt)
        self._known[key] = holding
        for node in holding.grant.placement:
            self._on.setdefault(node, {})[key] = holding
        if holding.ends_ms is not None:
            self._ending.add((holding.ends_ms, *key))

    def _forget(self, holding: Holding) -> None:
        key = (holding.grant.workload, holding.grant.attempt)
        del self._known[key]
        for node in holding.grant.placement:
            del self._on[node][key]
        if holding.ends_ms is not None:
            self._ending.remove((holding.ends_ms, *key))

    def _charge(self, holding: Holding, sign: int) -> None:
        grant = holding.grant
        self.move(self.balances, grant.team, sign * grant.gpus)
        if holding.endless:
            self.move(self.staying, grant.team, sign * grant.gpus)

    def move(self, balances: Balances, team: TeamName, gpus: int) -> None:
        """Charge a team with more, or with less; one that is not in the tree is a stray."""
        if team not in balances.tree:
            key = (team, self.flavor)
            left = balances.strays.get(key, 0) + gpus
            if left:
                balances.strays[key] = left
            else:
                balances.strays.pop(key, None)
        elif gpus >= 0:
            balances.charge(team, self.flavor, gpus)
        else:
            balances.refund(team, self.flavor, -gpus)

    # What is earmarked.

    def earmark(self, earmark: Earmark) -> None:
        """Keep capacity for a workload, or replace what is kept."""
        self.version += 1
        self._leave(earmark.workload)
        self.earmarks[earmark.workload] = earmark
        self._enter(earmark.workload)

    def unmark(self, name: WorkloadId) -> None:
        """Keep it no longer."""
        self.version += 1
        self._leave(name)
        del self.earmarks[name]
        self._enter(name)

    def lapse(self, now_ms: int) -> None:
        """Charge earmarks until they lapse, not longer."""
        for name, earmark in self.earmarks.items():
            if (name in self._marked) and earmark.lapses_ms <= now_ms:
                self.version += 1
                self._charge_mark(name, lapsed=True)

    def marked(self, name: WorkloadId) -> Earmark | None:
        """Return what is kept and charged for a workload."""
        found = self._marked.get(name)
        return None if found is None else found[0]

    def lift(self, name: WorkloadId) -> None:
        """Take a charged earmark off balances and nodes, until `lower`."""
        self.stop(self._marked[name][1])

    def lower(self, name: WorkloadId) -> None:
        """Put a lifted earmark back."""
        self.start(self._marked[name][1])

    def _charge_mark(self, name: WorkloadId, *, lapsed: bool = False) -> None:
        """Charge a workload's earmark exactly while it waits and holds nothing."""
        earmark, workload = self.earmarks.get(name), self.waiting.get(name)
        wanted = None
        if earmark is not None and workload is not None and self.holds(name) is None and not lapsed:
            wanted = (earmark, expected(workload, earmark.placement, EARMARKED))
        if self._marked.get(name) == wanted:
            return
        if name in self._marked:
            self.lift(name)
            del self._marked[name]
        if wanted is not None:
            self._marked[name] = wanted
            self.lower(name)

    # Nodes.

    def put_node(self, supply: NodeSupply) -> None:
        """Add a node, or replace what is known of it."""
        self.version += 1
        self.supplies[supply.name] = supply
        self.racks.put(supply)

    def remove_node(self, name: NodeName) -> None:
        """Forget a node."""
        self.version += 1
        del self.supplies[name]
        self.racks.remove(name)

    def nodes(self) -> list[NodeSupply]:
        """Return every node with what is on it now, by name."""
        return sorted(self.racks.supplies().values(), key=lambda node: node.name)

    # What is derived.

    def ceiling(self, team: TeamName) -> int:
        """Most that the team could ever hold, were everyone else idle."""
        if team not in self._ceilings:
            self._ceilings[team] = self.balances.ceiling(team, self.flavor)
        return self._ceilings[team]

    def outlooks(self, shape: Shape, closed: frozenset[NodeName] | set[NodeName] = NOWHERE) -> list[Outlook]:
        """Return as many nodes as the shape asks, those that have room for it first; fewer when there are no more."""
        found: Iterable[Outlook] = self._outlook.nodes(shape.share, shape.within_nodes)
        return list(islice((each for each in found if each.name not in closed), shape.nodes))

    def earliest_ms(self, shape: Shape) -> int | None:
        """Return the earliest time at which nodes and quota suffice by the ends that are known; None: unknown."""
        outlooks = self.outlooks(shape)
        if len(outlooks) < shape.nodes or any(each.certainty != KNOWN for each in outlooks):
            return None
        ending = (self._known[name, attempt] for _, name, attempt in self._ending)
        quota_ms = forecast.quota_ms(self.balances, (shape.team, self.flavor, shape.gpus), ending)
        return None if quota_ms is None else max(quota_ms, *(each.at_ms for each in outlooks))

    def quota_ends(self, shape: Shape) -> bool:
        """Return whether quota would admit the shape once all work that ends has ended."""
        return self.staying.available(shape.team, self.flavor) >= shape.gpus
