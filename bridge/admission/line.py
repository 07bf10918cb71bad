"""One team's queue as one pass walks it: the next workload that may still pass. Pure."""

import heapq
from itertools import islice

from bridge.admission.queues import Group, Queue, Rank, limit_ms
from bridge.workloads.model import Workload, WorkloadId

ANY = 2**62
"""A bound above every time limit."""


class Line:
    """A walk over the groups of a queue in the order of the queue. Each workload comes up at most once."""

    def __init__(self, queue: Queue, waiting: dict[WorkloadId, Workload]) -> None:
        """Start at the first workload of each group."""
        self._waiting = waiting
        self._bounds: dict[int, int] = {}  # by the group's number: only shorter limits may still pass
        self._groups = list(queue.groups.values())
        self._heads: list[tuple[Rank, int, int]] = [
            (group.members[0], number, 0) for number, group in enumerate(self._groups)
        ]
        heapq.heapify(self._heads)

    @property
    def head(self) -> tuple[Workload, Group] | None:
        """Return the next workload and its group; None when nobody is left."""
        if not self._heads:
            return None
        rank, number, _ = self._heads[0]
        return self._waiting[rank[2]], self._groups[number]

    def advance(self) -> None:
        """Go on to the next of the group, and of the queue."""
        _, number, position = self._heads[0]
        found = self._next(number, position + 1)
        if found is None:
            heapq.heappop(self._heads)
        else:
            heapq.heapreplace(self._heads, found)

    def close(self, bound_ms: int | None) -> None:
        """Pass over all of the head's group (None), or those whose time limit is above the bound."""
        if bound_ms is None or not self._groups[self._heads[0][1]].limited:
            heapq.heappop(self._heads)
            return
        self._bounds[self._heads[0][1]] = bound_ms
        self.advance()

    def _next(self, number: int, position: int) -> tuple[Rank, int, int] | None:
        members = self._groups[number].members
        bound = self._bounds.get(number, ANY)
        if bound == ANY:
            return (members[position], number, position) if position < len(members) else None
        for at, rank in enumerate(islice(members, position, None), position):
            limit = limit_ms(self._waiting[rank[2]])
            if limit is not None and limit <= bound:
                return rank, number, at
        return None
