"""The nodes of one flavor, sorted by what is on them, so that placing never looks at every node.

Nodes that differ only in their name are one *kind*; a fleet of thousands has some dozens of kinds. What fits is
decided per kind, and names are taken from the best kinds in the order of `NodeSupply.preference`. Each change
moves a node from one kind to another; nothing is copied, so a pass undoes its own changes at its end.

What is on a node: the larger of what its NodeSupply counts and what holdings hold there, plus earmarks.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sortedcontainers import SortedList

from bridge.admission.supply import NodeSupply, Placement
from bridge.workloads.model import NodeName, System

Kind = tuple[int, bool, bool, int | None, int, int, int]
"""(total, usable, slurm_ok, worker_gpus, slurm, pods, unmanaged)"""

Share = tuple[System, int]
"""A workload's share of one node: its system and its devices."""

NOWHERE: frozenset[NodeName] = frozenset()


@dataclass(slots=True)
class Spot:
    """One node's bookkeeping. `held` and `marked`: devices of holdings and of earmarks, (slurm, pods)."""

    supply: NodeSupply | None = None  # None: something is held on a node that is not there
    held: tuple[int, int] = (0, 0)
    marked: tuple[int, int] = (0, 0)
    kind: Kind | None = None


class Racks:
    """All nodes of one flavor. Invariant: each node with a supply is in exactly the bucket of its kind."""

    def __init__(self) -> None:
        self.stale: dict[NodeName, None] = {}  # nodes that changed; who derives something from nodes clears it
        self._changed: dict[NodeName, None] = {}  # the same for `supplies`
        self._view: dict[NodeName, NodeSupply] = {}
        self._spots: dict[NodeName, Spot] = {}
        self._buckets: dict[Kind, SortedList[NodeName]] = {}
        self._kinds: dict[Kind, NodeSupply] = {}
        self._fits: dict[Share, dict[Kind, tuple[int, int] | None]] = {}  # preference where there is room
        self._sizes: dict[int, int] = {}  # how many nodes have that many devices in all

    def __len__(self) -> int:
        return sum(self._sizes.values())

    def put(self, supply: NodeSupply) -> None:
        """Add a node or replace what is known of it."""
        spot = self._spots.setdefault(supply.name, Spot())
        self._resize(spot.supply, supply)
        spot.supply = supply
        self._settle(supply.name, spot)

    def remove(self, name: NodeName) -> None:
        """Forget a node; what is held there stays known, for the case that it comes back."""
        spot = self._spots.get(name)
        if spot is not None:
            self._resize(spot.supply, None)
            spot.supply = None
            self._settle(name, spot)

    def occupy(self, placement: Placement, system: System, sign: int = 1) -> None:
        """Count a holding's devices (1), or no longer (-1)."""
        for name, gpus in placement.items():
            spot = self._spots.setdefault(name, Spot())
            spot.held = _plus(spot.held, system, sign * gpus)
            self._settle(name, spot)

    def mark(self, placement: Placement, system: System, sign: int = 1) -> None:
        """Count an earmark's devices, or those a pass gives away (1), or no longer (-1)."""
        for name, gpus in placement.items():
            spot = self._spots.setdefault(name, Spot())
            spot.marked = _plus(spot.marked, system, sign * gpus)
            self._settle(name, spot)

    def supply(self, name: NodeName) -> NodeSupply | None:
        """Return the node with what is on it now; None when it is not there."""
        spot = self._spots.get(name)
        if spot is None or spot.supply is None or spot.kind is None:
            return None
        return replace(spot.supply, slurm=spot.kind[4], pods=spot.kind[5])

    def like(self, name: NodeName) -> NodeSupply | None:
        """Return a node as it is now, but for its name; None when it is not there."""
        spot = self._spots.get(name)
        return None if spot is None or spot.kind is None else self._kinds[spot.kind]

    def supplies(self) -> Mapping[NodeName, NodeSupply]:
        """Return every node with what is on it now; the mapping itself changes with the nodes."""
        for name in self._changed:
            node = self.supply(name)
            if node is None:
                self._view.pop(name, None)
            else:
                self._view[name] = node
        self._changed.clear()
        return self._view

    def names(self) -> Iterator[NodeName]:
        """Return the nodes that are there, in no order that means anything."""
        return (name for name, spot in self._spots.items() if spot.supply is not None)

    def large(self, asks: int, within: Collection[NodeName] | None) -> int:
        """Count the nodes that have `asks` devices at all."""
        if within is None:
            return sum(count for total, count in self._sizes.items() if total >= asks)
        found = (self._spots.get(name) for name in within)
        return sum(1 for spot in found if spot is not None and spot.supply is not None and spot.supply.total >= asks)

    def room(self, name: NodeName, system: System) -> int:
        """Devices that a new grant of `system` may take on a node now; 0 where it is not there."""
        spot = self._spots.get(name)
        if spot is None or spot.supply is None or spot.kind is None:
            return 0
        return self._kinds[spot.kind].room(system)

    def roomy(self, share: Share) -> int:
        """Count the nodes that have room for a share now."""
        return sum(len(names) for kind, names in self._buckets.items() if self._fit(share, kind) is not None)

    def place(
        self,
        share: Share,
        count: int,
        closed: Collection[NodeName] = NOWHERE,
        within: Collection[NodeName] | None = None,
    ) -> Placement | None:
        """Return `count` nodes with room for the share, best first, or None. `closed` nodes are left alone."""
        picks = self.best(share, count, closed, within)
        return dict.fromkeys(picks, share[1]) if len(picks) == count else None

    def best(
        self,
        share: Share,
        count: int,
        closed: Collection[NodeName] = NOWHERE,
        within: Collection[NodeName] | None = None,
    ) -> Sequence[NodeName]:
        """Return the best nodes with room for the share, `count` of them, or fewer when there are no more."""
        if within is not None:
            return self._best_among(share, count, sorted(set(within).difference(closed)))
        fits = self._fitting(share)
        ranked: list[tuple[tuple[int, int], Kind]] = []
        for kind in self._buckets:
            rank = fits[kind] if kind in fits else self._fit(share, kind)
            if rank is not None:
                ranked.append((rank, kind))
        ranked.sort(key=_first)
        picks: list[NodeName] = []
        at = 0
        while at < len(ranked) and len(picks) < count:
            rank, names = ranked[at][0], list[Iterable[NodeName]]()
            while at < len(ranked) and ranked[at][0] == rank:
                names.append(self._buckets[ranked[at][1]])
                at += 1
            merged = names[0] if len(names) == 1 else heapq.merge(*names)
            picks.extend(islice((name for name in merged if name not in closed), count - len(picks)))
        return picks

    def drains(self, placement: Placement, share: Share) -> tuple[NodeName, ...]:
        """Return those nodes of a placement whose worker must go first."""
        kinds = ((name, self._spots[name].kind) for name in placement)
        return tuple(name for name, kind in kinds if kind is not None and self._kinds[kind].drained_for(*share))

    def _best_among(self, share: Share, count: int, names: Iterable[NodeName]) -> Sequence[NodeName]:
        ranked: list[tuple[tuple[int, int], NodeName]] = []
        for name in names:
            spot = self._spots.get(name)
            rank = None if spot is None or spot.supply is None or spot.kind is None else self._fit(share, spot.kind)
            if rank is not None:
                ranked.append((rank, name))
        return [name for _, name in heapq.nsmallest(count, ranked)]

    def _fitting(self, share: Share) -> dict[Kind, tuple[int, int] | None]:
        return self._fits.setdefault(share, {})

    def _fit(self, share: Share, kind: Kind) -> tuple[int, int] | None:
        fits = self._fitting(share)
        if kind not in fits:
            node = self._kinds[kind]
            fits[kind] = node.preference_of(*share) if node.room(share[0]) >= share[1] else None
        return fits[kind]

    def _settle(self, name: NodeName, spot: Spot) -> None:
        """Put a node into the bucket where it belongs now."""
        kind = _kind(spot)
        self.stale[name] = self._changed[name] = None
        if kind == spot.kind:
            return
        if spot.kind is not None:
            bucket = self._buckets[spot.kind]
            bucket.remove(name)
            if not bucket:
                del self._buckets[spot.kind]
        spot.kind = kind
        if kind is not None and spot.supply is not None:
            self._buckets.setdefault(kind, SortedList()).add(name)
            if kind not in self._kinds:
                self._kinds[kind] = replace(spot.supply, name=NodeName(""), slurm=kind[4], pods=kind[5])

    def _resize(self, old: NodeSupply | None, new: NodeSupply | None) -> None:
        for supply, change in ((old, -1), (new, 1)):
            if supply is not None:
                self._sizes[supply.total] = self._sizes.get(supply.total, 0) + change


def _first(pair: tuple[tuple[int, int], Kind]) -> tuple[int, int]:
    return pair[0]


def _plus(counts: tuple[int, int], system: System, gpus: int) -> tuple[int, int]:
    slurm, pods = counts
    return (slurm + gpus, pods) if system is System.SLURM else (slurm, pods + gpus)


def _kind(spot: Spot) -> Kind | None:
    """Return what decides about a node: all but its name."""
    node = spot.supply
    if node is None:
        return None
    slurm = max(node.slurm, spot.held[0]) + spot.marked[0]
    pods = max(node.pods, spot.held[1]) + spot.marked[1]
    return node.total, node.usable, node.slurm_ok, node.worker_gpus, slurm, pods, node.unmanaged
