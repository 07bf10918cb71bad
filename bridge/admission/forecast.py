"""When nodes and quota will have room, by the ends that holdings have told. Pure.

Nothing else is assumed to start, and work without a known end to go on. So an answer is a lower bound: the earliest
time at which a workload could start; None where that needs an end that nobody knows.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sortedcontainers import SortedList

from bridge.admission.model import Holding
from bridge.admission.racks import Racks, Share
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances
from bridge.workloads.model import NodeName, System, WorkloadId

KNOWN, ENDS, ENDLESS = 0, 1, 2
"""How certain it is that a node will have room: at a known time, when work of unknown length ended, perhaps never."""


class Outlook(NamedTuple):
    """When a node has room for a share. Nodes compare by who has it first; devices in the way decide where unknown."""

    certainty: int
    at_ms: int  # 0: now, or unknown
    pods: int  # devices of pods in the way
    slurm: int
    name: NodeName


class Forecast:
    """The nodes of a flavor by when they will have room, kept per share that somebody waits for."""

    def __init__(self, racks: Racks, on: Mapping[NodeName, Mapping[tuple[WorkloadId, int], Holding]]) -> None:
        """Take the nodes, and the holdings on each of them; both may change, `racks.stale` says where."""
        self._racks = racks
        self._on = on
        self._sorted: dict[Share, SortedList[Outlook]] = {}
        self._known: dict[Share, dict[NodeName, Outlook]] = {}

    def nodes(self, share: Share, within: Collection[NodeName] | None = None) -> Iterable[Outlook]:
        """Return the nodes that will have room for the share, the soonest first."""
        self._refresh()
        if within is not None:
            found = (self._outlook(share, name) for name in sorted(within))
            return sorted(outlook for outlook in found if outlook is not None)
        if share not in self._sorted:
            outlooks = (self._outlook(share, name) for name in self._racks.names())
            self._known[share] = {outlook.name: outlook for outlook in outlooks if outlook is not None}
            self._sorted[share] = SortedList(self._known[share].values())
        return self._sorted[share]

    def _refresh(self) -> None:
        """Look again at the nodes that changed."""
        for share, by_name in self._known.items():
            ordered = self._sorted[share]
            for name in self._racks.stale:
                old, new = by_name.pop(name, None), self._outlook(share, name)
                if new is not None:
                    by_name[name] = new
                if old != new:
                    if old is not None:
                        ordered.remove(old)
                    if new is not None:
                        ordered.add(new)
        self._racks.stale.clear()

    def _outlook(self, share: Share, name: NodeName) -> Outlook | None:
        system, asks = share
        node = self._racks.like(name)
        way = None if node is None else node.in_the_way_of(system, asks)
        if node is None or way is None:
            return None
        if node.room(system) >= asks:
            return Outlook(KNOWN, 0, 0, 0, name)
        counts = {System.SLURM: node.slurm, System.KUBERNETES: node.pods}
        here = self._on.get(name, {}).values()
        endless = {
            each: sum(h.grant.placement[name] for h in here if h.endless and h.grant.system is each) for each in System
        }
        ends = sorted((h.ends_ms, h.grant.system, h.grant.placement[name]) for h in here if h.ends_ms is not None)
        for at_ms, each, gpus in ends:
            counts[each] -= gpus
            if node.room_beside(system, counts[System.SLURM], counts[System.KUBERNETES]) >= asks:
                return Outlook(KNOWN, max(0, at_ms), *way, name)
        held = sum(h.grant.placement[name] for h in here if h.grant.system is System.KUBERNETES)
        staying = endless[System.KUBERNETES] + max(0, node.pods - held)  # pods nobody told of may serve for ever
        if node.room_beside(system, endless[System.SLURM], staying) >= asks:
            return Outlook(ENDS, 0, *way, name)
        return Outlook(ENDLESS, 0, *way, name)


def quota_ms(balances: Balances, ask: tuple[TeamName, FlavorName, int], ending: Iterable[Holding]) -> int | None:
    """Return when quota admits (team, flavor, devices): 0 for now, None when no known end leads there.

    `ending` are holdings of the flavor with a known end, the soonest first. `balances` are as before afterwards.
    """
    team, flavor, gpus = ask
    short = gpus - balances.available(team, flavor)
    if short <= 0:
        return 0
    path, refunded, at_ms = balances.tree.path, list[tuple[TeamName, int]](), None
    root = path(team)[-1]
    for holding in ending:
        other, back = holding.grant.team, holding.grant.gpus
        if other not in balances.tree or path(other)[-1] != root:
            continue
        balances.refund(other, flavor, back)
        refunded.append((other, back))
        short -= back  # `available` rises by no more than what is given back
        if short <= 0:
            short = gpus - balances.available(team, flavor)
            if short <= 0:
                at_ms = holding.ends_ms
                break
    for other, back in refunded:
        balances.charge(other, flavor, back)
    return at_ms
