"""What the desk was told, by identity: a whole snapshot is compared with it at the speed of a set. Pure.

Whoever keeps whole snapshots hands in the same object for what has not changed. The roll keeps its objects alive, so
an identity is never that of another object.
"""

import operator
from collections.abc import Collection
from typing import Generic, TypeVar

ThingT = TypeVar("ThingT")


class Roll(Generic[ThingT]):
    """The objects that are on the desk."""

    def __init__(self) -> None:
        """Start empty."""
        self._here: dict[int, ThingT] = {}
        self._settled: list[ThingT] | None = None  # a snapshot without a difference, until something is swapped

    def swap(self, old: ThingT | None, new: ThingT | None) -> None:
        """Let `new` be there instead of `old`; None for nothing."""
        self._settled = None
        if old is not None:
            self._here.pop(id(old), None)
        if new is not None:
            self._here[id(new)] = new

    def differences(self, things: Collection[ThingT]) -> tuple[list[ThingT], list[ThingT]]:
        """Return (those that are not there yet, in their order; those that are there and not among `things`)."""
        settled = self._settled
        if settled is not None and len(settled) == len(things) and all(map(operator.is_, settled, things)):
            return [], []
        given = set(map(id, things))
        fresh = given.difference(self._here)
        gone = self._here.keys() - given
        if not fresh and not gone:
            self._settled = list(things)
            return [], []
        return [each for each in things if id(each) in fresh], [self._here[each] for each in gone]
