"""Those who keep and come before a workload in the order, as one pass looks at them again and again. Pure.

Whom a workload must leave something to depends on little: whether it borrows, and whom it passes by its time limit.
So the answer, the nodes that are closed by it, and which shares found no room beside them are remembered until
somebody more keeps. Within a pass room only shrinks, so what found none finds none later.
"""

from collections.abc import Sequence

from bridge.admission.keeping import Keeper
from bridge.admission.racks import Share
from bridge.workloads.model import NodeName


class Ahead:
    """The keepers that bind a workload. `full`: shares of a node, and for how many nodes there was no room beside."""

    __slots__ = ("closed", "full", "gpus", "keepers")

    def __init__(self, keepers: Sequence[Keeper]) -> None:
        """Sum up what they keep."""
        self.keepers = tuple(keepers)
        self.closed = frozenset[NodeName]().union(*(each.nodes for each in keepers))
        self.gpus = sum(each.gpus for each in keepers)
        self.full: dict[Share, int] = {}

    def bound_ms(self, now_ms: int) -> int | None:
        """Return the longest time limit that passes at least one of them; None when none does."""
        latest = max((each.earliest_ms for each in self.keepers if each.earliest_ms is not None), default=now_ms)
        return latest - now_ms if latest > now_ms else None


class Kept:
    """All who keep, in the order in which they began to."""

    def __init__(self, keepers: Sequence[Keeper]) -> None:
        """Take them as they are now."""
        self.keepers = tuple(keepers)
        self._binding: dict[bool, Ahead] = {}
        self._latest: dict[bool, Keeper | None] = {}

    def binding(self, *, within: bool) -> Ahead:
        """Return those who bind a workload without a time limit."""
        if within not in self._binding:
            self._binding[within] = Ahead([each for each in self.keepers if each.binds(within=within)])
        return self._binding[within]

    def ahead(self, limit_ms: int | None, now_ms: int, *, within: bool) -> tuple[Ahead, int | None]:
        """Return those who bind a workload, and until when it passes the first of the others (None: of nobody)."""
        everyone = self.binding(within=within)
        if limit_ms is None or not everyone.keepers:
            return everyone, None
        if within not in self._latest:
            known = [each for each in everyone.keepers if each.earliest_ms is not None]
            self._latest[within] = max(known, key=lambda each: each.earliest_ms or 0, default=None)
        latest = self._latest[within]
        if latest is None or not latest.passed_by(limit_ms, now_ms):
            return everyone, None  # who does not pass the last of them passes none
        passed = [each for each in everyone.keepers if each.passed_by(limit_ms, now_ms)]
        until_ms = min((each.earliest_ms - limit_ms for each in passed if each.earliest_ms is not None), default=None)
        return Ahead([each for each in everyone.keepers if each not in passed]), until_ms
