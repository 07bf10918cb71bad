"""What one process knows of the ledger as it stood after one entry, so that a decision need not read it again.

The digest of the newest entry stands for the whole history: while the database's newest digest is the one here, all of
this is exact. After any other entry, of whoever wrote it, everything here is dropped and read anew.
"""

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sortedcontainers import SortedDict
from sqlalchemy import Connection

from bridge.ledger import queries, rows
from bridge.ledger.model import Balance, Head, Span
from bridge.ledger.port import CapacityRow, Intent
from bridge.workloads.model import Grant, WorkloadId

Key = tuple[Any, ...]


class Seen:
    """Which workloads may have been granted before: never a wrong no. Eight bytes for each.

    It spares the search in the database for the many workloads that are new.
    """

    _UNSORTED: Final = 65_536

    def __init__(self, workloads: Iterable[str]) -> None:
        self._old = array("q", sorted({hash(workload) for workload in workloads}))
        self._new: set[int] = set()

    def maybe(self, workload: str) -> bool:
        """Return False when a workload was surely never granted."""
        value = hash(workload)
        if value in self._new:
            return True
        at = bisect_left(self._old, value)
        return at < len(self._old) and self._old[at] == value

    def add(self, workload: str) -> None:
        """Remember a workload."""
        self._new.add(hash(workload))
        if len(self._new) > self._UNSORTED:
            self._old = array("q", sorted({*self._old, *self._new}))
            self._new = set()


class Warm:
    """The rows that are still open, at one head. Changed only by `apply`, when a transaction has been committed."""

    def __init__(self, connection: Connection, head: Head) -> None:
        self.head = head
        self.grants: dict[Key, Grant] = {}
        self.attempts: dict[WorkloadId, int] = {}  # of workloads that hold
        self.spans: dict[Key, Span] = {}  # open ones, by (workload, attempt)
        self.balances: dict[Key, Balance] = {rows.BALANCES.key(row): row for row in queries.balances(connection)}
        self.capacity: dict[Key, CapacityRow] = {rows.CAPACITY.key(row): row for row in queries.capacity(connection)}
        self.intents: dict[Key, Intent] = {}  # open ones
        self.seen = Seen(queries.workloads(connection))
        self._in_order: SortedDict[Key, Grant] = SortedDict()
        self._told: Sequence[Grant] | None = None
        self._grants(queries.grants(connection, holding=True))
        self.spans.update({(span.workload, span.attempt): span for span in queries.open_spans(connection)})
        self._intents(queries.intents(connection, open_only=True))

    def holding(self) -> Sequence[Grant]:
        """Return the grants that hold, in the order in which they were reserved."""
        if self._told is None:
            self._told = tuple(self._in_order.values())
        return self._told

    def apply(
        self,
        head: Head,
        *,
        grants: Iterable[Grant],
        spans: Iterable[Span],
        balances: Mapping[Key, Balance],
        capacity: Mapping[Key, CapacityRow],
        intents: Iterable[Intent],
    ) -> None:
        """Take over what a committed transaction changed; `head` is its last entry."""
        self._grants(grants)
        for span in spans:
            if span.to_ms is None:
                self.spans[span.workload, span.attempt] = span
            elif (known := self.spans.get((span.workload, span.attempt))) is not None and known.seq == span.seq:
                del self.spans[span.workload, span.attempt]
        self.balances.update(balances)
        self.capacity.update(capacity)
        self._intents(intents)
        self.head = head

    def _grants(self, changed: Iterable[Grant]) -> None:
        for grant in changed:
            self._told = None
            key, place = (grant.workload, grant.attempt), _place(grant)
            self.seen.add(grant.workload)
            if grant.holds:
                self.grants[key] = grant
                self.attempts[grant.workload] = grant.attempt
                self._in_order[place] = grant
            elif self.grants.pop(key, None) is not None:
                self._in_order.pop(place)
                if self.attempts.get(grant.workload) == grant.attempt:
                    del self.attempts[grant.workload]

    def _intents(self, changed: Iterable[Intent]) -> None:
        for intent in changed:
            if intent.settled_ms is None:
                self.intents[(intent.id,)] = intent
            else:
                self.intents.pop((intent.id,), None)


class Shelf:
    """Where a store keeps what it knows. Readers in other threads take whole answers from it, or none."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._warm: Warm | None = None

    def at(self, connection: Connection, head: Head) -> Warm:
        """Return what is known at this head, read anew when it is not. For the one writer only."""
        with self._lock:
            if self._warm is None or self._warm.head != head:
                self._warm = None
                self._warm = Warm(connection, head)
            return self._warm

    def drop(self) -> None:
        """Forget everything."""
        with self._lock:
            self._warm = None

    def apply(self, base: Head, head: Head, **changed: Any) -> None:
        """Take over what a committed transaction changed, if it started from what is known."""
        with self._lock:
            if self._warm is not None and self._warm.head == base:
                self._warm.apply(head, **changed)
            else:
                self._warm = None

    def holding(self, head: Head) -> Sequence[Grant] | None:
        """Return the grants that hold at this head; None when that is not known."""
        with self._lock:
            return list(self._warm.holding()) if self._warm is not None and self._warm.head == head else None

    def intents(self, head: Head) -> Sequence[Intent] | None:
        """Return the open intents at this head; None when that is not known."""
        with self._lock:
            if self._warm is None or self._warm.head != head:
                return None
            return sorted(self._warm.intents.values(), key=lambda intent: (intent.at_ms, intent.id))

    def capacity(self, head: Head) -> Sequence[CapacityRow] | None:
        """Return every node's latest row at this head; None when that is not known."""
        with self._lock:
            if self._warm is None or self._warm.head != head:
                return None
            return sorted(self._warm.capacity.values(), key=lambda row: row.node)


def _place(grant: Grant) -> Key:
    return (grant.reserved_ms, grant.workload, grant.attempt)
