"""The ledger over SQL: each verb is one transaction that appends entries and moves the projections with them.

Invariant: the projections are what a replay of the entries gives, at every commit. See bridge.ledger.verify.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from bridge.clock import Clock
from bridge.errors import InvalidInputError, NotFoundError
from bridge.ledger import fencing, history, queries, transfers, verify
from bridge.ledger.model import Epoch, Step
from bridge.ledger.port import CapacityRow, Entry, Intent, Past, Problem, Usage
from bridge.ledger.store import Fault, Store, newest_head, open_store
from bridge.workloads.model import Grant, NodeName, Workload, WorkloadId

MAX_PAGE: Final = 10_000
"""The most entries that `log` returns at once."""

VERBS: Final = (
    "open_epoch", "reserve", "run", "adjust", "release", "void", "adopt", "intend", "settle", "capacity", "note",
    "batch",
)  # fmt: skip
FAULT_SITES: Final = tuple(f"ledger.{verb}.{when}" for verb in VERBS for when in ("before-commit", "after-commit"))
"""Every site at which a fault hook is called. Inside a batch only the batch's own two."""


def open_ledger(url: str, clock: Clock, fault: Fault | None = None) -> "SqlLedger":
    """Open or create the ledger of a database URL, and bring its tables to this version.

    `sqlite:////path/ledger.db`, `sqlite://` (in memory) or `postgresql://user:password@host/database`.
    """
    return SqlLedger(open_store(url, fault), clock)


class SqlLedger:
    """Implements bridge.ledger.port.Ledger. Any thread may call it; a batch belongs to its thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._leader: Epoch | None = None

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def open_epoch(self, epoch: int, holder: str) -> None:
        """Take over as leader."""
        if epoch < 1 or not holder:
            raise InvalidInputError(f"open_epoch: epoch={epoch} holder={holder!r}; give an epoch from 1 up and a name")
        leader = Epoch(epoch, holder, self._clock.now_ms())
        with self._store.write("open_epoch", leader, fencing.check_take_over) as draft:
            if draft.epochs.get(epoch) is None:
                draft.append(Step.EPOCH, f"{Step.EPOCH}/{epoch}", leader.at_ms, {"holder": holder})
                draft.epochs.put(leader)
        self._leader = leader

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Commit every write inside the block together, or none of them. Reads inside it see what was there before."""
        with self._store.batch(self._leader):
            yield

    def reserve(self, workload: Workload, placement: Mapping[NodeName, int], *, at_ms: int) -> Grant:
        """Hold the next attempt."""
        with self._store.write("reserve", self._leader) as draft:
            latest = draft.latest(workload.id)
            change = transfers.reserve(latest, workload, placement, at_ms, past=draft.past(workload.id))
            return draft.keep(change, latest)

    def adopt(self, workload: Workload, placement: Mapping[NodeName, int], *, at_ms: int, note: str) -> Grant:
        """Charge what is found running."""
        with self._store.write("adopt", self._leader) as draft:
            latest = draft.latest(workload.id)
            change = transfers.adopt(latest, workload, placement, at_ms, note, past=draft.past(workload.id))
            return draft.keep(change, latest)

    def run(
        self, workload: WorkloadId, attempt: int, *, gpus: int, placement: Mapping[NodeName, int], at_ms: int
    ) -> Grant:
        """Start, with what was really allocated."""
        with self._store.write("run", self._leader) as draft:
            grant = draft.attempt(workload, attempt, Step.RUN)
            return draft.keep(transfers.run(grant, gpus, placement, at_ms), grant)

    def adjust(
        self, workload: WorkloadId, attempt: int, *, gpus: int, placement: Mapping[NodeName, int], at_ms: int
    ) -> Grant:
        """Charge another amount from `at_ms` on."""
        with self._store.write("adjust", self._leader) as draft:
            grant = draft.attempt(workload, attempt, Step.ADJUST)
            recorded = draft.recorded(transfers.adjustment(workload, attempt, at_ms))
            if recorded is not None:
                transfers.check_repeat(grant, at_ms, recorded.detail, {"gpus": gpus, "placement": dict(placement)})
                return grant
            since_ms = draft.since_ms(grant)
            return draft.keep(transfers.adjust(grant, gpus, placement, at_ms, since_ms=since_ms), grant)

    def release(self, workload: WorkloadId, attempt: int, *, at_ms: int, note: str = "") -> Grant:
        """End; the whole charge is given back."""
        with self._store.write("release", self._leader) as draft:
            grant = draft.attempt(workload, attempt, Step.RELEASE)
            return draft.keep(transfers.release(grant, at_ms, note, since_ms=draft.since_ms(grant)), grant)

    def void(self, workload: WorkloadId, attempt: int, *, at_ms: int, note: str) -> Grant:
        """Take a reservation back that never ran."""
        with self._store.write("void", self._leader) as draft:
            grant = draft.attempt(workload, attempt, Step.VOID)
            return draft.keep(transfers.void(grant, at_ms, note), grant)

    def intend(self, intent: Intent) -> Intent:
        """Record an intent; the same id again returns the first one."""
        if intent.settled_ms is not None or intent.outcome:
            raise InvalidInputError(
                f"intent {intent.id}: settled_ms={intent.settled_ms} on a new one; use settle for that"
            )
        with self._store.write("intend", self._leader) as draft:
            first = draft.intents.get(intent.id)
            if first is not None:
                return first
            detail = {"id": intent.id, "kind": intent.kind, "detail": dict(intent.detail)}
            draft.append(Step.INTENT, f"{Step.INTENT}/{intent.id}", intent.at_ms, detail, workload=intent.workload)
            draft.intents.put(intent)
            return intent

    def settle(self, intent_id: str, *, outcome: str, at_ms: int) -> Intent:
        """Close an intent; settling twice keeps the first outcome."""
        with self._store.write("settle", self._leader) as draft:
            intent = draft.intents.get(intent_id)
            if intent is None:
                raise NotFoundError(f"settle: the ledger has no intent {intent_id!r}; record it with intend first")
            if intent.settled_ms is not None:
                return intent
            settled = replace(intent, settled_ms=at_ms, outcome=outcome)
            detail = {"id": intent_id, "outcome": outcome}
            draft.append(Step.SETTLE, f"{Step.SETTLE}/{intent_id}", at_ms, detail, workload=intent.workload)
            draft.intents.put(settled)
            return settled

    def capacity(self, rows: Sequence[CapacityRow], *, at_ms: int) -> int:
        """Record the nodes whose row changed."""
        for row in rows:
            transfers.check_columns(row)
        written = 0
        with self._store.write("capacity", self._leader) as draft:
            for row in rows:
                if draft.capacity.get(row.node) != row:
                    transfer = f"{Step.CAPACITY}/{draft.next_seq}"
                    draft.append(Step.CAPACITY, transfer, at_ms, asdict(row), flavor=row.flavor)
                    draft.capacity.put(row)
                    written += 1
        return written

    def note(self, workload: WorkloadId, text: str, *, at_ms: int) -> None:
        """Append a line to a workload's history."""
        with self._store.write("note", self._leader) as draft:
            if draft.last_note(workload) != text:
                draft.note(workload, text, at_ms)

    def grants(self, *, holding: bool = True) -> Sequence[Grant]:
        """Return the grants that hold now, or all."""
        with self._store.read() as connection:
            known = self._store.shelf.holding(newest_head(connection)) if holding else None
            return queries.grants(connection, holding=holding) if known is None else known

    def ended(self, *, limit: int) -> Sequence[Grant]:
        """Return at most `limit` grants that ended last, newest first."""
        with self._store.read() as connection:
            return queries.ended(connection, limit=limit)

    def intents(self, *, open_only: bool = True) -> Sequence[Intent]:
        """Return the intents not yet settled, or all."""
        with self._store.read() as connection:
            known = self._store.shelf.intents(newest_head(connection)) if open_only else None
            return queries.intents(connection, open_only=open_only) if known is None else known

    def capacity_rows(self) -> Sequence[CapacityRow]:
        """Return the latest row of every node."""
        with self._store.read() as connection:
            known = self._store.shelf.capacity(newest_head(connection))
            return queries.capacity(connection) if known is None else known

    def history(self, workload: WorkloadId) -> Sequence[Entry]:
        """Return every entry of one workload, oldest first."""
        with self._store.read() as connection:
            return queries.history(connection, workload)

    def log(self, *, after_seq: int = 0, limit: int = 100) -> Sequence[Entry]:
        """Return entries in order."""
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidInputError(f"limit={limit}: give a number of entries from 1 to {MAX_PAGE}")
        with self._store.read() as connection:
            return queries.entries(connection, after_seq=after_seq, limit=limit)

    def newest_epoch(self) -> int:
        """Return the highest epoch on record, 0 when nobody ever led."""
        with self._store.read() as connection:
            return queries.newest_epoch(connection)

    def last_seq(self) -> int:
        """Return the number of the newest entry."""
        with self._store.read() as connection:
            return queries.last_seq(connection)

    def usage(self, *, from_ms: int, to_ms: int, cuts: Sequence[int] = ()) -> Sequence[Usage]:
        """Return the exact GPU-milliseconds of a window."""
        if to_ms < from_ms:
            raise InvalidInputError(
                f"to_ms={to_ms} is before from_ms={from_ms}; give a window that ends after it begins"
            )
        with self._store.read() as connection:
            held = queries.held(connection, from_ms=from_ms, to_ms=to_ms)
            carried = queries.carried(connection, from_ms=from_ms, to_ms=to_ms)
            return history.usage(held, from_ms=from_ms, to_ms=to_ms, cuts=cuts, carried=carried)

    def past(self, *, from_ms: int) -> Past:
        """Return what was held from a moment on, as of one entry."""
        with self._store.read() as connection:
            return queries.past(connection, from_ms=from_ms)

    def verify(self, *, archive: Path | None = None) -> Sequence[Problem]:
        """Recompute everything: from the newest checkpoint, or with the archive's folder from entry 1."""
        with self._store.read() as connection:
            return verify.problems(connection, archive=archive)
