"""What is kept for whom: no workload starves, and nothing idles without need. Pure.

The first workload of each queue that could ever run and is blocked *keeps* what it waits for: quota, and where it
waits for nodes those nearest to having room. What comes later in the order leaves both alone when

 - only work that ends is in the way, or
 - the keeper is within its guarantee and the later one borrows.

So what is in the way of a keeper can only shrink, and it starts when that has ended. Where serving pods are in the
way there is nothing to wait for, and a keeper closes nothing beyond the second rule.

Backfill: who surely ends before the keeper's earliest start may pass. The earliest start is a lower bound (see
bridge.admission.forecast); where it is not known nobody passes on it.
"""

from collections.abc import Iterable, Sequence

from bridge.admission.forecast import ENDLESS
from bridge.admission.queues import Shape
from bridge.admission.section import Section
from bridge.quota.model import TeamName
from bridge.quota.tree import Balances
from bridge.workloads.model import NodeName, Workload

KEEPERS = 16  # most keepers of one flavor in one pass: with more, a pass would be mostly about what is kept


class Keeper:
    """A workload for which quota is kept, and nodes where it waits for those."""

    __slots__ = ("_at_ms", "_section", "ends", "gpus", "nodes", "root", "shape", "within", "workload")

    def __init__(
        self,
        workload: Workload,
        shape: Shape,
        section: Section,
        *,
        within: bool,
        nodes: frozenset[NodeName],
        ends: bool,
    ) -> None:
        """Keep for `workload`; `ends`: only work that ends is in its way."""
        self.workload = workload
        self.shape = shape
        self.gpus = shape.gpus
        self.root = section.tree.path(shape.team)[-1]
        self.within = within
        self.nodes = nodes
        self.ends = ends
        self._section = section
        self._at_ms: int | None = -1  # not asked yet

    @property
    def earliest_ms(self) -> int | None:
        """Return the earliest time at which it could start; None: unknown. Found when first asked for."""
        if self._at_ms == -1:
            self._at_ms = self._section.earliest_ms(self.shape) if self.ends else None
        return self._at_ms

    def binds(self, *, within: bool) -> bool:
        """Return whether a later workload must leave alone what is kept, if it does not end in time."""
        return self.ends or (self.within and not within)

    def passed_by(self, limit_ms: int | None, now_ms: int) -> bool:
        """Return whether work that runs at most `limit_ms` surely ends before the earliest start."""
        return limit_ms is not None and self.earliest_ms is not None and now_ms + limit_ms <= self.earliest_ms


class Trials:
    """Balances with keepers charged, kept up to date while a pass charges what starts."""

    def __init__(self, section: Section) -> None:
        """Start without any."""
        self._section = section
        self._charged: dict[tuple[Keeper, ...], Balances] = {}

    def available(self, keepers: Sequence[Keeper], team: TeamName) -> int:
        """Return what would be available to a team were these keepers served."""
        key, flavor = tuple(keepers), self._section.flavor
        trial = self._charged.get(key)
        if trial is None:
            trial = self._charged[key] = self._section.balances.copy()
            for each in keepers:
                trial.charge(each.shape.team, flavor, each.gpus)
        return trial.available(team, flavor)

    def charge(self, team: TeamName, gpus: int) -> None:
        """Charge what was charged to the balances themselves."""
        for trial in self._charged.values():
            self._section.move(trial, team, gpus)


def keeper(
    section: Section, workload: Workload, shape: Shape, closed: Iterable[NodeName], *, within: bool, quota: bool
) -> Keeper | None:
    """Keep for a workload that quota (`quota`) or nodes block; None when it waits in vain.

    Of the `closed` nodes, which are kept for others, it keeps none.
    """
    soonest = section.outlooks(shape)
    if len(soonest) < shape.nodes:
        return None
    if quota:
        ends = section.quota_ends(shape) and all(each.certainty < ENDLESS for each in soonest)
        return Keeper(workload, shape, section, within=within, nodes=frozenset(), ends=ends)
    mine = section.outlooks(shape, frozenset(closed))
    if len(mine) < shape.nodes:
        mine, kept = soonest, frozenset[NodeName]()
    else:
        kept = frozenset(each.name for each in mine)
    return Keeper(workload, shape, section, within=within, nodes=kept, ends=all(o.certainty < ENDLESS for o in mine))
