"""What making room on one node costs: which victims, and what is lost with them. Pure.

A node serves one system at a time, so what is in the way of a job are all pods, and of a pod all jobs; of its own
system only as many as it takes.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

from bridge.admission.borrowers import Borrowers, Candidate, Harm, harm
from bridge.admission.supply import NodeSupply
from bridge.quota.model import TeamName
from bridge.workloads.model import NodeName, System, Workload

TRIED = 8  # candidates on one node up to which every set of them is tried when the order leads nowhere

Cost = tuple[int, Harm, int, str]
"""(devices below a guarantee, harm, devices, node): what clearing one node would cost."""

SIDES = (System.KUBERNETES, System.SLURM)  # in the order of NodeSupply.in_the_way


class Pricing:
    """Prices nodes for one workload, by who is legal when asked. Leaves `borrowers` as it found it."""

    def __init__(self, workload: Workload, borrowers: Borrowers, *, crossing: bool) -> None:
        self._workload = workload
        self._borrowers = borrowers
        self._crossing = crossing

    def bound(self, node: NodeSupply, there: Sequence[Candidate]) -> Cost | None:
        """Return what making room on a node costs at least, without asking who is legal; None: it cannot be made."""
        name, way = node.name, node.in_the_way(self._workload)
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

    def exact(self, node: NodeSupply, there: Iterable[Candidate]) -> tuple[Cost, list[Candidate]] | None:
        """Return what making room on a node costs; None when it cannot be made."""
        name, way = node.name, node.in_the_way(self._workload)
        if way is None:
            return None
        short, picks = 0, list[Candidate]()
        for system, needed in zip(SIDES, way, strict=True):
            part = self._pick(name, system, there, needed) if needed else []
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

    def _pick(self, name: NodeName, system: System, there: Iterable[Candidate], needed: int) -> list[Candidate] | None:
        """Choose, of one system on one node, victims that hold at least `needed` there; None when there are none."""
        possible = sorted(
            candidate for candidate in there if candidate.grant.system is system and self._legal(candidate)
        )
        devices = [candidate.grant.placement[name] for candidate in possible]
        if sum(devices) < needed or self._most(name, possible) < needed:
            return None
        picks = self._prefix(possible, name, needed)
        if picks is not None or len(possible) > TRIED:
            return picks
        sets = [list(each) for size in range(1, len(possible) + 1) for each in combinations(possible, size)]
        found = [
            exact
            for each in sets
            if (exact := self._prefix(sorted(each, key=lambda c: c.gpus), name, needed)) is not None
        ]
        return min(found, key=lambda each: (harm(each), each), default=None)

    def _most(self, name: NodeName, possible: Iterable[Candidate]) -> int:
        """Return an upper bound of what these may free on a node: no team loses more than it is above its guarantee.

        With `crossing`, the last of a team's victims may be larger than what is left to lose.
        """
        teams: dict[TeamName, list[Candidate]] = {}
        for candidate in possible:
            teams.setdefault(candidate.team, []).append(candidate)
        most = 0
        for mine in teams.values():
            here = sum([each.grant.placement[name] for each in mine])
            spare = self._borrowers.spare(mine[0])
            if spare is not None:
                here = min(here, spare - 1 + max([each.gpus for each in mine]) if self._crossing else spare)
            most += here
        return most

    def _prefix(self, order: Sequence[Candidate], name: NodeName, needed: int) -> list[Candidate] | None:
        """Choose in this order until enough is free, skipping who is not legal by then, and leave out the unneeded."""
        picks, left = list[Candidate](), needed
        for candidate in order:
            if left > 0 and self._legal(candidate):
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

    def _legal(self, candidate: Candidate) -> bool:
        return self._borrowers.legal(candidate, crossing=self._crossing)


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
