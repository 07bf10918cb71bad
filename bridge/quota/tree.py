"""The quota tree, and who holds how much of it. Pure; `available` costs O(depth).

Per flavor, each tree node has a guarantee G. Its *own* part is G minus its children's guarantees. What it puts
into the pool it shares with its children is its own part plus what each child lends:

    pool(n)  = own(n) + sum of lent(c)         lent(c) = min(pool(c), lend limit of c)
    local(n) = pool(n) - lent(n)               what n keeps even when it is idle

Usage stays in `local` first; the rest spills to the parent, and so on to the root. This is the arithmetic of
Kueue's cohort tree with cohort nominal = own(n). While nothing is over, it is equivalent to the balance rule

    balance(n) = own(n) - used directly at n + sum of min(lend limit of c, balance(c))

where a grant is allowed exactly if afterwards the root's balance is >= 0 and no subtree holds more than its
limit. After a quota was lowered the root may be below zero: then a team may still use what it does not lend,
less what the root is over, so that all grants together never exceed all quota; `available` may be negative.

A flavor that a team does not list is not open to it. An ancestor that does not list it is transparent: its
guarantee is its children's sum, without a limit and without a lend limit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from bridge.errors import BrokenInvariantError, InvalidInputError
from bridge.quota import checks
from bridge.quota.model import FlavorName, TeamName, TeamSpec

Key = tuple[TeamName, FlavorName]


def problems(specs: Iterable[TeamSpec]) -> list[str]:
    """Everything that keeps `specs` from being a tree, one sentence each; empty when they are one."""
    return [fault.text for fault in checks.faults(list(specs))]


@dataclass(frozen=True, slots=True)
class Share:
    """One tree node's numbers for one flavor, as defined in the module's docstring."""

    guarantee: int = 0
    own: int = 0
    pool: int = 0
    local: int = 0
    limit: int | None = None
    listed: bool = False


NOTHING = Share()


class Tree:
    """A valid quota tree (or several: each team without a parent is a root). Never changes."""

    def __init__(self, specs: Iterable[TeamSpec]) -> None:
        """Take specs that are known to be free of faults; use `build` or `build_lenient`."""
        self._specs = {spec.name: spec for spec in sorted(specs, key=lambda s: s.name)}
        self._children = checks.children_of(self._specs.values())
        self._paths: dict[TeamName, tuple[TeamName, ...]] = {}
        order: list[TeamName | None] = [None]
        for above in order:  # grows while it is walked: parents before children
            for name in self._children.get(above, ()):
                self._paths[name] = (name, *(self._paths[above] if above is not None else ()))
                order.append(name)
        self.flavors = frozenset(flavor for spec in self._specs.values() for flavor in spec.quotas)
        self._shares: dict[Key, Share] = {}
        self._ascents: dict[Key, tuple[tuple[Key, Share], ...]] = {}
        for name in reversed(self._paths):
            for flavor in self.flavors:
                self._shares[name, flavor] = self._share(name, flavor)

    @classmethod
    def build(cls, specs: Iterable[TeamSpec]) -> Self:
        """Return the tree; InvalidInputError lists every fault, one sentence each."""
        given = list(specs)
        if found := problems(given):
            raise InvalidInputError("; ".join(found))
        return cls(given)

    @classmethod
    def build_lenient(cls, specs: Iterable[TeamSpec]) -> tuple[Self, tuple[checks.Fault, ...]]:
        """Return the tree of the sound teams, and why the others (see Fault.leaves_out) are not in it."""
        kept, found = list(specs), list[checks.Fault]()
        left_out: frozenset[TeamName] = frozenset()
        while fresh := checks.faults(kept, left_out=left_out):  # ends: each round leaves out at least one team
            found += fresh
            left_out = left_out.union(*(fault.leaves_out for fault in fresh))
            kept = [spec for spec in kept if spec.name not in left_out]
        return cls(kept), tuple(found)

    def __contains__(self, team: object) -> bool:
        return team in self._specs

    @property
    def teams(self) -> tuple[TeamName, ...]:
        """Every team, parents before children, otherwise by name."""
        return tuple(self._paths)

    def spec(self, team: TeamName) -> TeamSpec:
        """Return the team as it was given."""
        return self._specs[team]

    def path(self, team: TeamName) -> tuple[TeamName, ...]:
        """Return the team, its parent, and so on up to the root."""
        return self._paths[team]

    @property
    def roots(self) -> tuple[TeamName, ...]:
        """Return the teams without a parent, by name."""
        return tuple(self._children.get(None, ()))

    def children(self, team: TeamName) -> tuple[TeamName, ...]:
        """Return the direct children, by name."""
        return tuple(self._children.get(team, ()))

    def share(self, team: TeamName, flavor: FlavorName) -> Share:
        """Return the node's numbers; all zero for a flavor that nobody in the tree lists."""
        return self._shares.get((team, flavor), NOTHING)

    def ascent(self, team: TeamName, flavor: FlavorName) -> tuple[tuple[Key, Share], ...]:
        """Return the path up to the root as keys of one flavor, each with its numbers."""
        key = (team, flavor)
        if key not in self._ascents:
            self._ascents[key] = tuple(((node, flavor), self.share(node, flavor)) for node in self._paths[team])
        return self._ascents[key]

    def opens(self, team: TeamName, flavor: FlavorName) -> bool:
        """Return whether the team lists the flavor, with a guarantee of 0 or more."""
        return self.share(team, flavor).listed

    def _share(self, team: TeamName, flavor: FlavorName) -> Share:
        below = [self._shares[child, flavor] for child in self._children.get(team, ())]
        promised = sum(share.guarantee for share in below)
        quota = self._specs[team].quotas.get(flavor)
        guarantee = promised if quota is None else quota.guarantee
        own = guarantee - promised
        pool = own + sum(share.pool - share.local for share in below)
        lent = pool if quota is None or quota.lend_limit is None else min(pool, quota.lend_limit)
        limit = None if quota is None else quota.limit
        return Share(guarantee, own, pool, pool - lent, limit, listed=quota is not None)


class Bound(StrEnum):
    """What kind of number stands in the way of a grant."""

    LIMIT = "limit"  # most that the node's subtree may hold
    POOL = "quota"  # all that the whole tree shares, where nothing is left to borrow


@dataclass(frozen=True, slots=True)
class Binding:
    """The tree node that stands in the way: it holds `held` of `bound`, and `room` is the most that fits."""

    node: TeamName
    kind: Bound
    held: int
    bound: int
    room: int


class Balances:
    """Who holds what. The one mutable thing here: charged and refunded while a plan is made.

    Invariant: a node's total is what is charged to it directly plus its children's totals.
    Use of teams that are not in the tree is kept in `strays`: it counts against nodes, but no quota.
    """

    def __init__(self, tree: Tree, used: Mapping[Key, int]) -> None:
        self.tree = tree
        self.strays: dict[Key, int] = {}
        self._direct: dict[Key, int] = {}
        self._total: dict[Key, int] = {}
        self._reached: dict[Key, int] = {}  # usage that arrived at a node: direct plus what its children spilled
        for (team, flavor), gpus in used.items():
            if team in tree:
                self.charge(team, flavor, gpus)
            else:
                self.strays[team, flavor] = gpus

    def charge(self, team: TeamName, flavor: FlavorName, gpus: int) -> None:
        """Let the team hold `gpus` more, whether quota allows it or not (the caller asks `available` first)."""
        if gpus < 0:
            raise BrokenInvariantError(f"charge of {gpus} {flavor} to team {team}: only refund gives back")
        self._move(team, flavor, gpus)

    def refund(self, team: TeamName, flavor: FlavorName, gpus: int) -> None:
        """Give back what was charged to this very team; more than that is refused, never clamped."""
        if not 0 <= gpus <= self.used(team, flavor):
            raise BrokenInvariantError(
                f"refund of {gpus} {flavor} to team {team}, which is charged {self.used(team, flavor)}"
            )
        self._move(team, flavor, -gpus)

    def used(self, team: TeamName, flavor: FlavorName) -> int:
        """Devices charged to this very team."""
        return self._direct.get((team, flavor), 0)

    def total(self, team: TeamName, flavor: FlavorName) -> int:
        """Devices held by the team and everything below it."""
        return self._total.get((team, flavor), 0)

    def borrowed(self, team: TeamName, flavor: FlavorName) -> int:
        """Devices that the subtree holds above its guarantee."""
        return max(0, self.total(team, flavor) - self.tree.share(team, flavor).guarantee)

    def within(self, team: TeamName, flavor: FlavorName, gpus: int) -> bool:
        """Return whether `gpus` more would leave the team within what is guaranteed to it (not to its children)."""
        share = self.tree.share(team, flavor)
        own = self.used(team, flavor) + gpus <= share.own
        return own and self.total(team, flavor) + gpus <= share.guarantee

    def available(self, team: TeamName, flavor: FlavorName) -> int:
        """Most that the team may be granted now; 0 when the flavor is not open to it, negative when it is over."""
        ascent = self.tree.ascent(team, flavor)
        if not ascent[0][1].listed:
            return 0
        total, reached = self._total, self._reached
        pool, least, root = 0, None, ascent[-1][1]
        for key, share in ascent:
            if share.limit is not None:
                room = share.limit - total.get(key, 0)
                least = room if least is None or room < least else least
            if share is not root:
                pool += max(0, share.local - reached.get(key, 0))
        pool += root.pool - reached.get(ascent[-1][0], 0)
        return pool if least is None or pool < least else least

    def ceiling(self, team: TeamName, flavor: FlavorName) -> int:
        """Most that the team could ever hold, were everyone else idle."""
        return Balances(self.tree, {}).available(team, flavor)

    def binding(self, team: TeamName, flavor: FlavorName, gpus: int) -> Binding | None:
        """Return the tree node with the least room when `gpus` do not fit now; the nearest one when several are."""
        root = self.tree.path(team)[-1]
        pool = self._pool_room(team, flavor)
        held = self._reached.get((root, flavor), 0)
        found = [*self._limits(team, flavor), Binding(root, Bound.POOL, held, self.tree.share(root, flavor).pool, pool)]
        tightest = min(found, key=lambda bound: bound.room)
        return tightest if tightest.room < gpus else None

    def copy(self) -> "Balances":
        """Return an independent copy, to try something on."""
        twin = Balances(self.tree, {})
        twin.strays = dict(self.strays)
        twin._direct, twin._total, twin._reached = dict(self._direct), dict(self._total), dict(self._reached)
        return twin

    def _move(self, team: TeamName, flavor: FlavorName, gpus: int) -> None:
        total, reached, spill = self._total, self._reached, gpus
        self._direct[team, flavor] = self.used(team, flavor) + gpus
        for key, share in self.tree.ascent(team, flavor):
            before, local = reached.get(key, 0), share.local
            total[key] = total.get(key, 0) + gpus
            reached[key] = before + spill
            spill = max(0, before + spill - local) - max(0, before - local)

    def _limits(self, team: TeamName, flavor: FlavorName) -> list[Binding]:
        """Limits on the path, nearest first."""
        found = []
        for node in self.tree.path(team):
            limit = self.tree.share(node, flavor).limit
            if limit is not None:
                held = self.total(node, flavor)
                found.append(Binding(node, Bound.LIMIT, held, limit, limit - held))
        return found

    def _pool_room(self, team: TeamName, flavor: FlavorName) -> int:
        """Sum what is free in each node's local part on the way up and what is left at the root."""
        *below, root = self.tree.path(team)
        room = self.tree.share(root, flavor).pool - self._reached.get((root, flavor), 0)
        for node in below:
            room += max(0, self.tree.share(node, flavor).local - self._reached.get((node, flavor), 0))
        return room
