"""Which waiting workloads start now, and on which nodes. Pure, deterministic in the input's order, total.

Order. Each team has one queue per flavor: priority, then age, then id. Of the queues' heads, those that stay
within their team's guarantee come first, then borrowers; within each class priority, age, id. A workload that
quota blocks leaves its queue for this pass and blocks nobody. (Decayed fair share replaces the plain order among
borrowers, in `Entrant.key`; preemption asks for victims where `_Pass.decide` now answers QUOTA or CAPACITY.)

No starvation. The first workload of each queue that quota admits but no set of nodes can hold keeps a target: the
nodes nearest to being free for it, and its quota. What comes later in the order may not use either,
 - if it is of the same team, or
 - if only Slurm work, which ends, is in the target's way, or
 - if the target's owner is within its guarantee and the later one borrows.
Then what is in the way of a target can only shrink, so its owner starts when that has ended; then the next one
of its queue keeps a target. Pods may serve for ever, therefore a target with pods in its way does not close
nodes to other teams beyond these rules. The first workload of each queue that is within its guarantee and waits for
quota that others borrowed keeps that quota from borrowers. There is no backfill yet, and no keeping of quota inside
a team: `Kept.binds` is where both will be said.

Every input workload is in exactly one of admitted and waiting; a workload that holds a grant is never granted again.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge.admission import explain, supply
from bridge.admission.supply import NodeSupply, Placement
from bridge.errors import BrokenInvariantError
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import Grant, NodeName, System, Workload, WorkloadId
from bridge.workloads.reasons import Waiting

Queue = tuple[TeamName, FlavorName]


@dataclass(frozen=True, slots=True)
class Placed:
    """A workload to grant, and its devices on each node."""

    workload: Workload
    placement: Placement


@dataclass(frozen=True, slots=True)
class Decisions:
    """The whole answer: what to grant in this order, and why everything else waits."""

    admitted: tuple[Placed, ...]
    waiting: Mapping[WorkloadId, Waiting]


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept for a waiting workload: its quota, and nodes where it waits for those."""

    workload: Workload
    within: bool  # it would stay within its team's guarantee
    nodes: frozenset[NodeName] = frozenset()
    ends: bool = False  # only Slurm work is in the way

    def binds(self, later: Workload, *, within: bool) -> bool:
        """Return whether `later` must leave alone what is kept."""
        mine = self.workload
        if later.flavor != mine.flavor:
            return False
        siblings = later.team == mine.team and bool(self.nodes)
        return siblings or self.ends or (self.within and not within)


def admit(
    waiting: Sequence[Workload],
    tree: Tree,
    grants: Sequence[Grant],
    nodes: Sequence[NodeSupply],
    *,
    flavors: Collection[FlavorName],
) -> Decisions:
    """Decide every waiting workload. Of two with the same id, the first in the order counts."""
    decided = _Pass(tree, grants, nodes)
    queues: dict[Queue, list[Workload]] = {}
    for workload in sorted(waiting, key=_age):
        if workload.id in decided.seen:
            continue
        decided.seen.add(workload.id)
        refusal = decided.refuse(workload, flavors)
        if refusal is not None:
            decided.waiting[workload.id] = refusal
        else:
            queues.setdefault((workload.team, workload.flavor), []).append(workload)
    decided.run(queues)
    return Decisions(tuple(decided.admitted), decided.waiting)


def _age(workload: Workload) -> tuple[int, int, str, int]:
    """Order within a queue."""
    return -workload.priority, workload.submitted_ms, workload.id, workload.gpus


class _Pass:
    """The state of one pass: balances and nodes as they become while workloads are placed."""

    def __init__(self, tree: Tree, grants: Iterable[Grant], nodes: Iterable[NodeSupply]) -> None:
        self.seen: set[WorkloadId] = set()
        self.admitted: list[Placed] = []
        self.waiting: dict[WorkloadId, Waiting] = {}
        self._tree = tree
        self._attempts: dict[WorkloadId, int] = {}
        self._systems: dict[tuple[TeamName, FlavorName, System], int] = {}
        self._blocked: dict[tuple[TeamName, FlavorName, int], Waiting] = {}  # equal asks are blocked by equal numbers
        used: dict[Queue, int] = {}
        for grant in (grant for grant in grants if grant.holds):
            self._attempts[grant.workload] = grant.attempt
            queue = (grant.team, grant.flavor)
            used[queue] = used.get(queue, 0) + grant.gpus
            self._count(grant.team, grant.flavor, grant.system, grant.gpus)
        self._balances = Balances(tree, used)
        self._nodes: dict[FlavorName, dict[NodeName, NodeSupply]] = {}
        for node in sorted(nodes, key=lambda n: n.name):
            self._nodes.setdefault(node.flavor, {})[node.name] = node
        self._ceilings: dict[Queue, int] = {}
        self._large: dict[tuple[FlavorName, int, frozenset[NodeName] | None], int] = {}  # nodes of that size
        self._targets: dict[Queue, Kept] = {}
        self._owed: dict[Queue, Kept] = {}  # quota within a guarantee that is lent out
        self._full: dict[object, Waiting] = {}  # shapes that found no room: in one pass, room only shrinks

    def refuse(self, workload: Workload, flavors: Collection[FlavorName]) -> Waiting | None:
        """Answer what is granted already, and what cannot be admitted however long it waits."""
        if workload.id in self._attempts:
            return explain.granted(workload, self._attempts[workload.id])
        if workload.nodes < 1 or workload.gpus_per_node < 1:
            return explain.malformed(workload)
        if workload.flavor not in flavors:
            return explain.no_such_flavor(workload, flavors)
        if workload.team not in self._tree:
            return explain.unknown_team(workload)
        return self._too_large(workload)

    def _too_large(self, workload: Workload) -> Waiting | None:
        queue = (workload.team, workload.flavor)
        if not self._tree.opens(*queue):
            return explain.flavor_closed(workload, self._tree)
        if queue not in self._ceilings:
            self._ceilings[queue] = self._balances.ceiling(*queue)
        if workload.gpus > self._ceilings[queue]:
            return explain.exceeds_limit(workload, self._ceilings[queue])
        size = (workload.flavor, workload.gpus_per_node, workload.within_nodes)
        if size not in self._large:
            self._large[size] = len(supply.eligible(workload, self._of(workload.flavor)))
        return (
            explain.exceeds_nodes(workload, self._of(workload.flavor)) if self._large[size] < workload.nodes else None
        )

    def run(self, queues: Mapping[Queue, list[Workload]]) -> None:
        """Take the best head again and again until every queue is empty."""
        heads: list[tuple[tuple[bool, int, int, str], Queue, int]] = []
        for queue in queues:
            self._push(heads, queues, queue, 0)
        while heads:
            key, queue, at = heapq.heappop(heads)
            workload = queues[queue][at]
            if key != self._key(workload) or not self._fits_quota(workload):
                self._push(heads, queues, queue, at)  # another team's grant moved it back, or out
                continue
            self._decide(workload)
            self._push(heads, queues, queue, at + 1)

    def _push(
        self,
        heads: list[tuple[tuple[bool, int, int, str], Queue, int]],
        queues: Mapping[Queue, list[Workload]],
        queue: Queue,
        at: int,
    ) -> None:
        """Queue up the next workload that quota does not block, from position `at` on."""
        for index in range(at, len(queues[queue])):
            workload = queues[queue][index]
            if self._fits_quota(workload):
                heapq.heappush(heads, (self._key(workload), queue, index))
                return
            self.waiting[workload.id] = self._quota_reason(workload)
            if self._within(workload):
                self._owed.setdefault(queue, Kept(workload, within=True))

    def _key(self, workload: Workload) -> tuple[bool, int, int, str]:
        return not self._within(workload), -workload.priority, workload.submitted_ms, workload.id

    def _within(self, workload: Workload) -> bool:
        return self._balances.within(workload.team, workload.flavor, workload.gpus)

    def _fits_quota(self, workload: Workload) -> bool:
        return workload.gpus <= self._balances.available(workload.team, workload.flavor)

    def _quota_reason(self, workload: Workload) -> Waiting:
        ask = (workload.team, workload.flavor, workload.gpus)
        if ask not in self._blocked:
            binding = self._balances.binding(*ask)
            if binding is None:
                raise BrokenInvariantError(f"{workload.id} does not fit its quota, yet no tree node binds")
            self._blocked[ask] = explain.quota(workload, self._balances, binding, self._systems)
        return self._blocked[ask]

    def _decide(self, workload: Workload) -> None:
        """Place a workload that quota admits, or say what it waits for and keep a target for it."""
        within = self._within(workload)
        shape = (_shape(workload), within)
        if shape in self._full:
            self.waiting[workload.id] = self._full[shape]
            return
        everything = (*self._owed.values(), *self._targets.values())
        kept = [other for other in everything if other.binds(workload, within=within)]
        closed = frozenset[NodeName]().union(*(other.nodes for other in kept))
        large = supply.eligible(workload, self._of(workload.flavor))
        open_nodes = [node for node in large if node.name not in closed]
        blocker = self._quota_blocker(workload, kept)
        placement = None if blocker is not None else supply.place(workload, open_nodes)
        if placement is not None:
            self._grant(workload, placement)
            return
        if blocker is None and (unhindered := supply.place(workload, large)) is not None:
            blocker = next(other.workload for other in kept if other.nodes & unhindered.keys())
        reason = explain.capacity(workload, large) if blocker is None else explain.behind(workload, blocker)
        self.waiting[workload.id] = self._full[shape] = reason
        self._keep(workload, open_nodes, within=within)

    def _quota_blocker(self, workload: Workload, kept: Sequence[Kept]) -> Workload | None:
        """Return the workload whose kept quota is what this one would need."""
        trial = self._balances.copy() if kept else self._balances
        for other in kept:
            trial.charge(other.workload.team, other.workload.flavor, other.workload.gpus)
            if workload.gpus > trial.available(workload.team, workload.flavor):
                return other.workload
        return None

    def _keep(self, workload: Workload, nodes: Iterable[NodeSupply], *, within: bool) -> None:
        """Keep a target for the first of its queue to wait for nodes, among those not kept for others."""
        queue = (workload.team, workload.flavor)
        target = None if queue in self._targets else supply.target(workload, nodes)
        if target is not None:
            self._targets[queue] = Kept(workload, within, target.nodes, target.ends)

    def _grant(self, workload: Workload, placement: Placement) -> None:
        self._balances.charge(workload.team, workload.flavor, workload.gpus)
        self._count(workload.team, workload.flavor, workload.system, workload.gpus)
        nodes = self._nodes[workload.flavor]
        for name, gpus in placement.items():
            node = nodes[name]
            if workload.system is System.SLURM:
                nodes[name] = replace(node, slurm=node.slurm + gpus)
            else:
                nodes[name] = replace(node, pods=node.pods + gpus)
        self.admitted.append(Placed(workload, placement))

    def _count(self, team: TeamName, flavor: FlavorName, system: System, gpus: int) -> None:
        """Keep each subtree's devices by system; what was explained before is stale with it."""
        for node in self._tree.path(team) if team in self._tree else ():
            self._systems[node, flavor, system] = self._systems.get((node, flavor, system), 0) + gpus
        self._blocked.clear()

    def _of(self, flavor: FlavorName) -> list[NodeSupply]:
        return list(self._nodes.get(flavor, {}).values())


def _shape(workload: Workload) -> object:
    """Return what decides where a workload fits, without who it is: equal shapes find equal room."""
    return (
        workload.team,
        workload.flavor,
        workload.system,
        workload.nodes,
        workload.gpus_per_node,
        workload.within_nodes,
    )
