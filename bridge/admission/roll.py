"""What the desk was told, by identity: a whole snapshot is compared with it at the speed of a set. Pure.

Whoever keeps whole snapshots hands in the same object for what has not changed. The roll keeps its objects alive, so
an identity is never that of another object.
"""

from collections.abc import Collection
from typing import Generic, TypeVar

ThingT = TypeVar("ThingT")


class Roll(Generic[ThingT]):
    """The objects that are on the desk."""

    def __init__(self) -> None:
        """Start empty."""
        self._here: dict[int, ThingT] = {}

    def swap(self, old: ThingT | None, new: ThingT | None) -> None:
        """Let `new` be there instead of `old`; None for nothing."""
        if old is not None:
            self._here.pop(id(old), None)
        if new is not None:
            self._here[id(new)] = new

    def differences(self, things: Collection[ThingT]) -> tuple[list[ThingT], list[ThingT]]:
        """Return (those that are not there yet, in their order; those that are there and not among `things`)."""
        given = set(map(id, things))
        fresh = given.difference(self._here)
        gone = self._here.keys() - given
        return [each for each in things if id(each) in fresh] if fresh else [], [self._here[each] for each in gone]
