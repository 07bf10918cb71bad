"""Quota and nodes while victims are taken for one workload and given back. Pure; changes only its own copies."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bridge.admission import supply
from bridge.admission.borrowers import Borrowers, Candidate
from bridge.admission.pricing import Pricing
from bridge.admission.supply import NodeSupply, Placement
from bridge.errors import BrokenInvariantError
from bridge.quota.model import TeamName
from bridge.quota.tree import Balances, Bound
from bridge.workloads.model import Grant, NodeName, System, Workload


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
        self.borrowers = borrowers
        self._nodes = {node.name: node for node in supply.eligible(workload, nodes.values())}
        self._taken: dict[tuple[str, int], Candidate] = {}
        self._fitting = {name for name in self._nodes if self._has_room(name)}
        for grant in leaving:
            self._occupy(grant, -1)

    def fits(self) -> bool:
        """Return whether quota and nodes would let the workload start."""
        free = self.balances.available(self._workload.team, self._workload.flavor)
        return free >= self._workload.gpus and len(self._fitting) >= self._workload.nodes

    def open(self) -> bool:
        """Return whether every victim's level is open to the workload."""
        return all(self.borrowers.opens(candidate) for candidate in self._taken.values())

    def needed(self) -> bool:
        """Return whether, with any one victim given back, the workload would not fit."""
        picks = tuple(self._taken.values())
        self.give_back()
        needed = len(self._taken) == len(picks)
        self.replay(picks)
        return needed

    def open_levels(self, candidates: Iterable[Candidate], *, crossing: bool) -> bool:
        """Take inner victims, so that outer ones become legal; False, with nothing taken, when there are none."""
        ordered = sorted(candidates)
        for level in self.borrowers.closed():
            for candidate in ordered:
                if level not in self.borrowers.closed():
                    break
                if self.borrowers.inside(candidate, level) and self.borrowers.legal(candidate, crossing=crossing):
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
        price = Pricing(self._workload, self.borrowers, crossing=crossing)
        queue = [cost for name in on.keys() & self._nodes.keys() if (cost := price.bound(self._nodes[name], on[name]))]
        heapq.heapify(queue)
        while queue and len(self._fitting) < self._workload.nodes:
            cost = heapq.heappop(queue)
            name = NodeName(cost[3])
            found = None if name in self._fitting else price.exact(self._nodes[name], on[name])
            if found is None:
                continue
            if found[0] > cost:  # it was a lower bound, or what was taken since used up a level
                heapq.heappush(queue, found[0])
                continue
            for candidate in found[1]:
                self._take(candidate)
            touched = {node for candidate in found[1] for node in candidate.grant.placement}
            for node in (touched & self._nodes.keys()) - self._fitting:  # its gang's other nodes have become cheaper
                if again := price.exact(self._nodes[node], on[node]):
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
                    if inside and self.borrowers.legal(candidate, crossing=crosses):
                        self._take(candidate)
                        progress = True
        return self.balances.available(team, flavor) >= gpus

    def give_back(self) -> None:
        """Give back every victim that is not needed, those below a guarantee and the most valuable first."""
        picks = tuple(self._taken.values())
        for candidate in sorted(picks, key=self._value, reverse=True):
            self._give(candidate)
            if not self.fits():
                self._take(candidate)
        self.replay([candidate for candidate in picks if candidate.key in self._taken])  # in the order of choice

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
        inner_first = sorted(picks, key=lambda candidate: -self.borrowers.depth(candidate))
        stated = sorted(picks, key=lambda candidate: (-self.borrowers.depth(candidate), candidate))
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
            legal = legal and self.borrowers.legal(candidate, crossing=True)
            self._take(candidate)
        self.replay(picks)
        return legal

    def _value(self, candidate: Candidate) -> tuple[bool, Candidate]:
        return self.borrowers.below(candidate), candidate

    def _is_below(self, candidate: Candidate, node: TeamName) -> bool:
        tree = self.balances.tree
        return candidate.team in tree and node in tree.path(candidate.team)

    def _take(self, candidate: Candidate) -> None:
        self._taken[candidate.key] = candidate
        self.borrowers.take(candidate)
        self._settle(candidate.grant, -1)

    def _give(self, candidate: Candidate) -> None:
        del self._taken[candidate.key]
        self.borrowers.give(candidate)
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
