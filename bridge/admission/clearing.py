"""Quota and nodes while victims are taken for one workload and given back. Pure; changes only its own copies."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from bridge.admission import supply
from bridge.admission.borrowers import Borrowers, Candidate, Harm, harm
from bridge.admission.supply import NodeSupply, Placement
from bridge.errors import BrokenInvariantError
from bridge.quota.model import TeamName
from bridge.quota.tree import Balances, Bound
from bridge.workloads.model import Grant, NodeName, System, Workload

TRIED = 8  # candidates on one node up to which every set of them is tried when the order leads nowhere

Cost = tuple[int, Harm, int, str]
"""(devices below a guarantee, harm, devices, node): what clearing one node would cost."""

Priced = tuple[Cost, list[Candidate]]

SIDES = (System.KUBERNETES, System.SLURM)  # in the order of NodeSupply.in_the_way


class Clearing:
    """The search's state. Invariant: quota, levels and nodes count everything but the taken victims."""

    def __init__(
        self,
        workload: Workload,
        balances: Balances,
        borrowers: Borrowers,
        nodes: Mapping[NodeName, NodeSupply],
        leaving: Iterable[Grant],
    ) -> None:
        """Take balances without the leaving work, nodes with it."""
        self.balances = balances.copy()
        self._workload = workload
        self._borrowers = borrowers
        self._nodes = {node.name: node for node in supply.eligible(workload, nodes.values())}
        self._taken: dict[tuple[str, int], Candidate] = {}
        self._fitting = {name for name in self._nodes if self._has_room(name)}
        for grant in leaving:
            self._occupy(grant, -1)

    def legal(self, candidate: Candidate, *, crossing: bool) -> bool:
        """Return whether the candidate may be taken now, and is not taken yet."""
        return candidate.key not in self._taken and self._borrowers.legal(candidate, crossing=crossing)

    def short(self, candidate: Candidate) -> int:
        """Devices by which taking the candidate now would take a level below its guarantee."""
        return self._borrowers.short(candidate)

    def fits(self) -> bool:
        """Return whether the workload could start: quota, nodes, and every victim's level open to it."""
        return (
            len(self._fitting) >= self._workload.nodes
            and self.balances.available(self._workload.team, self._workload.flavor) >= self._workload.gpus
            and all(self._borrowers.opens(candidate) for candidate in self._taken.values())
        )

    def open_levels(self, candidates: Iterable[Candidate], *, crossing: bool) -> bool:
        """Take inner victims, so that outer ones become legal; False, with nothing taken, when there are none."""
        ordered = sorted(candidates)
        for level in self._borrowers.closed():
            for candidate in ordered:
                if level not in self._borrowers.closed():
                    break
                if self._borrowers.inside(candidate, level) and self.legal(candidate, crossing=crossing):
                    self._take(candidate)
        return bool(self._taken)

    def free_nodes(self, candidates: Iterable[Candidate], *, crossing: bool) -> bool:
        """Take the cheapest victims until enough nodes have room; False when there is no way to."""
        if len(self._fitting) >= self._workload.nodes:
            return True
        on: dict[NodeName, list[Candidate]] = {}
        for candidate in candidates:
            for name in candidate.grant.placement:
                on.setdefault(name, []).append(candidate)
        queue = [cost for name, there in on.items() if (cost := self._bound(name, there))]
        heapq.heapify(queue)
        while queue and len(self._fitting) < self._workload.nodes:
            cost = heapq.heappop(queue)
            name = NodeName(cost[3])
            found = None if name in self._fitting else self._price(name, on[name], crossing=crossing)
            if found is None:
                continue
            if found[0] > cost:  # it was a lower bound, or what was taken since used up a level
                heapq.heappush(queue, found[0])
                continue
            for candidate in found[1]:
                self._take(candidate)
            touched = {node for candidate in found[1] for node in candidate.grant.placement}
            for node in sorted(touched - self._fitting):  # its gang's other nodes have become cheaper
                if again := self._price(node, on[node], crossing=crossing):
                    heapq.heappush(queue, again[0])
        return len(self._fitting) >= self._workload.nodes

    def free_quota(self, candidates: Iterable[Candidate], *, crossing: bool) -> bool:
        """Take victims in order from inside the tree node that binds until quota suffices; False when it cannot."""
        team, flavor, gpus = self._workload.team, self._workload.flavor, self._workload.gpus
        if self.balances.available(team, flavor) >= gpus:
            return True
        ordered = sorted(candidates)
        for crosses in (False, True) if crossing else (False,):
            progress = True
            while progress:  # an inner victim may open an outer level, so look again
                progress = False
                for candidate in ordered:
                    binding = self.balances.binding(team, flavor, gpus)
                    if binding is None:
                        return True
                    inside = binding.kind is Bound.POOL or self._is_below(candidate, binding.node)
                    if inside and self.legal(candidate, crossing=crosses):
                        self._take(candidate)
                        progress = True
        return self.balances.available(team, flavor) >= gpus

    def give_back(self) -> None:
        """Give back every victim that is not needed, those below a guarantee and the most valuable first."""
        again = True
        while again:
            again = False
            for candidate in sorted(self._taken.values(), key=self._value, reverse=True):
                self._give(candidate)
                if self.fits():
                    again = True
                else:
                    self._take(candidate)

    def reset(self) -> None:
        """Give back everything."""
        for candidate in list(self._taken.values()):
            self._give(candidate)

    def replay(self, picks: Sequence[Candidate]) -> None:
        """Take exactly these."""
        self.reset()
        for candidate in picks:
            self._take(candidate)

    def chosen(self) -> tuple[Candidate, ...]:
        """Return the victims in an order in which each is legal when its turn comes: the stated one where it is."""
        picks = tuple(self._taken.values())
        inner_first = sorted(picks, key=lambda candidate: -self._borrowers.depth(candidate))
        stated = sorted(picks, key=lambda candidate: (-self._borrowers.depth(candidate), candidate))
        return next((tuple(order) for order in (stated, inner_first) if self._in_turn(order)), tuple(inner_first))

    def place(self) -> Placement:
        """Return the nodes that the workload will start on."""
        placement = supply.place(self._workload, [self._nodes[name] for name in self._fitting])
        if placement is None:
            raise BrokenInvariantError(f"{self._workload.id} fits on {len(self._fitting)} nodes, yet is placed on none")
        return placement

    def _in_turn(self, order: Sequence[Candidate]) -> bool:
        """Return whether each is legal when its turn comes; what is taken stays the same."""
        picks = tuple(self._taken.values())
        self.reset()
        legal = True
        for candidate in order:
            legal = legal and self.legal(candidate, crossing=True)
            self._take(candidate)
        self.replay(picks)
        return legal

    def _value(self, candidate: Candidate) -> tuple[bool, Candidate]:
        return self._borrowers.below(candidate), candidate

    def _is_below(self, candidate: Candidate, node: TeamName) -> bool:
        tree = self.balances.tree
        return candidate.team in tree and node in tree.path(candidate.team)

    def _bound(self, name: NodeName, there: Sequence[Candidate]) -> Cost | None:
        """Return what making room on a node costs at least, without asking who is legal; None: it cannot be made."""
        node = self._nodes.get(name)
        way = None if node is None else node.in_the_way(self._workload)
        if way is None:
            return None
        least: dict[int, int] = {}
        for system, needed in zip(SIDES, way, strict=True):
            if needed:
                mine = [(each.grant.placement[name], each) for each in there if each.grant.system is system]
                if sum([devices for devices, _ in mine]) < needed:
                    return None
                top, lost = _least([(each.priority, each.lost_gpu_ms, gpus) for gpus, each in mine], needed)
                least[top] = least.get(top, 0) + lost
        return 0, tuple(sorted(least.items(), reverse=True)[:1]), 0, name

    def _price(self, name: NodeName, there: Iterable[Candidate], *, crossing: bool) -> Priced | None:
        """Return what making room on a node costs; None when it cannot be made."""
        node = self._nodes.get(name)
        way = None if node is None else node.in_the_way(self._workload)
        if way is None:
            return None
        short, picks = 0, list[Candidate]()
        for system, needed in zip(SIDES, way, strict=True):
            part = self._pick(name, system, there, needed, crossing=crossing) if needed else []
            for candidate in part or ():
                short += self._borrowers.short(candidate)
                self._borrowers.take(candidate)
                picks.append(candidate)
            if part is None:
                break
        for candidate in picks:
            self._borrowers.give(candidate)
        if part is None:
            return None
        return (short, harm(picks), sum(candidate.gpus for candidate in picks), name), picks

    def _pick(
        self, name: NodeName, system: System, there: Iterable[Candidate], needed: int, *, crossing: bool
    ) -> list[Candidate] | None:
        """Choose, of one system on one node, victims that hold at least `needed` there; None when there are none."""
        possible = sorted(
            candidate
            for candidate in there
            if candidate.grant.system is system and self.legal(candidate, crossing=crossing)
        )
        devices = [candidate.grant.placement[name] for candidate in possible]
        if sum(devices) < needed:
            return None
        picks = self._prefix(possible, name, needed, crossing=crossing)
        if picks is not None or len(possible) > TRIED:
            return picks
        sets = [list(each) for size in range(1, len(possible) + 1) for each in combinations(possible, size)]
        found = [
            exact
            for each in sets
            if (exact := self._prefix(sorted(each, key=lambda c: c.gpus), name, needed, crossing=crossing)) is not None
        ]
        return min(found, key=lambda each: (harm(each), each), default=None)

    def _prefix(
        self, order: Sequence[Candidate], name: NodeName, needed: int, *, crossing: bool
    ) -> list[Candidate] | None:
        """Choose in this order until enough is free, skipping who is not legal by then, and leave out the unneeded."""
        picks, left = list[Candidate](), needed
        for candidate in order:
            if left > 0 and self._borrowers.legal(candidate, crossing=crossing):
                self._borrowers.take(candidate)
                picks.append(candidate)
                left -= candidate.grant.placement[name]
        for candidate in picks:
            self._borrowers.give(candidate)
        if left > 0:
            return None
        for candidate in sorted(picks, reverse=True):
            devices = candidate.grant.placement[name]
            if left + devices <= 0:
                picks.remove(candidate)
                left += devices
        return picks

    def _take(self, candidate: Candidate) -> None:
        self._taken[candidate.key] = candidate
        self._borrowers.take(candidate)
        self._settle(candidate.grant, -1)

    def _give(self, candidate: Candidate) -> None:
        del self._taken[candidate.key]
        self._borrowers.give(candidate)
        self._settle(candidate.grant, 1)

    def _settle(self, grant: Grant, sign: int) -> None:
        """Give a victim's quota and nodes free (-1), or charge them again (1)."""
        if grant.team not in self.balances.tree:
            self.balances.strays[grant.team, grant.flavor] += sign * grant.gpus
        elif sign < 0:
            self.balances.refund(grant.team, grant.flavor, grant.gpus)
        else:
            self.balances.charge(grant.team, grant.flavor, grant.gpus)
        self._occupy(grant, sign)

    def _occupy(self, grant: Grant, sign: int) -> None:
        for name, gpus in grant.placement.items():
            node = self._nodes.get(name)
            if node is None:
                continue
            on_slurm = grant.system is System.SLURM
            count = (node.slurm if on_slurm else node.pods) + sign * gpus
            if count < 0:
                raise BrokenInvariantError(f"node {name} counts {gpus + count} devices, {grant.workload} holds {gpus}")
            self._nodes[name] = replace(node, slurm=count) if on_slurm else replace(node, pods=count)
            if self._has_room(name):
                self._fitting.add(name)
            else:
                self._fitting.discard(name)

    def _has_room(self, name: NodeName) -> bool:
        return self._nodes[name].room(self._workload.system) >= self._workload.gpus_per_node


def _least(there: Sequence[tuple[int, int, int]], needed: int) -> tuple[int, int]:
    """Return a lower bound of (highest priority, its lost work) that frees `needed`, of (priority, lost, devices)."""
    highest = max([priority for priority, _, _ in there])
    lower = [each for each in there if each[0] != highest]
    rest = needed - sum([gpus for _, _, gpus in lower])
    if rest <= 0:
        return _least(lower, needed)
    top = [(lost, gpus) for priority, lost, gpus in there if priority == highest]
    fewest = -(-rest // max([gpus for _, gpus in top]))
    return highest, sum(sorted([lost for lost, _ in top])[:fewest])
