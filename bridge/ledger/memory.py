"""The ledger without a database: the same steps, refusals and terms, in dictionaries. For simulation and tests.

Each verb is one transaction that is drafted in a layer over what is committed, and merged into it at its end; an
exception leaves nothing behind. Nothing survives the process.

Invariant: at every commit, what is committed is what a replay of the entries gives. See `verify`.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from bridge.clock import Clock
from bridge.errors import BrokenInvariantError, InvalidInputError, NotFoundError, StaleLeaderError
from bridge.ledger import fencing, history, transfers
from bridge.ledger.fold import Replay
from bridge.ledger.model import Balance, Epoch, Span, Step
from bridge.ledger.port import CapacityRow, Entry, Held, Intent, Past, Problem, Usage
from bridge.ledger.transfers import Change
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId

MAX_PAGE: Final = 10_000
"""The most entries that `log` returns at once."""

_NO_DETAIL: Final[Mapping[str, object]] = {}
Attempt = tuple[WorkloadId, int]


@dataclass(slots=True)
class _Layer:
    """Everything that is written, by key. `entries` by transfer id, in the order of their numbers."""

    entries: dict[str, Entry] = field(default_factory=dict)
    grants: dict[Attempt, Grant] = field(default_factory=dict)
    newest: dict[WorkloadId, int] = field(default_factory=dict)
    spans: dict[int, Span] = field(default_factory=dict)
    running: dict[Attempt, Span | None] = field(default_factory=dict)
    balances: dict[tuple[TeamName, FlavorName, System], int] = field(default_factory=dict)
    capacity: dict[NodeName, CapacityRow] = field(default_factory=dict)
    intents: dict[str, Intent] = field(default_factory=dict)
    notes: dict[WorkloadId, str] = field(default_factory=dict)
    epochs: dict[int, Epoch] = field(default_factory=dict)

    def merge(self, other: "_Layer") -> None:
        """Take over everything that another layer has written."""
        for name in self.__slots__:
            written = getattr(other, name)
            if written:
                getattr(self, name).update(written)


class _Draft:
    """One transaction in the making: reads see it over what is committed."""

    def __init__(self, base: _Layer, epoch: int, seq: int) -> None:
        self._base = base
        self.layer = _Layer()
        self.epoch = epoch
        self.seq = seq

    def entry(self, transfer: str) -> Entry | None:
        """Return the entry of a transfer, if there is one."""
        return self.layer.entries.get(transfer) or self._base.entries.get(transfer)

    def latest(self, workload: WorkloadId) -> Grant | None:
        """Return the newest attempt of a workload."""
        attempt = self.layer.newest.get(workload) or self._base.newest.get(workload)
        return None if attempt is None else self._grant((workload, attempt))

    def attempt(self, workload: WorkloadId, attempt: int, step: Step) -> Grant:
        """Return one attempt; a step of an attempt that was never granted is refused."""
        found = self._grant((workload, attempt))
        if found is None:
            raise BrokenInvariantError(f"{step} of {workload} attempt {attempt}: the ledger never granted it")
        return found

    def since_ms(self, grant: Grant) -> int | None:
        """Return when the present charge of a running attempt began."""
        span = self._span((grant.workload, grant.attempt))
        return None if span is None else span.from_ms

    def intent(self, name: str) -> Intent | None:
        """Return an intent, if it is known."""
        return self.layer.intents.get(name) or self._base.intents.get(name)

    def node(self, name: NodeName) -> CapacityRow | None:
        """Return a node's latest row."""
        return self.layer.capacity.get(name) or self._base.capacity.get(name)

    def last_note(self, workload: WorkloadId) -> str | None:
        """Return the text of a workload's newest note."""
        found = self.layer.notes.get(workload)
        return self._base.notes.get(workload) if found is None else found

    def append(
        self,
        step: Step,
        transfer: str,
        at_ms: int,
        detail: Mapping[str, object] = _NO_DETAIL,
        *,
        of: Grant | None = None,
        workload: WorkloadId | None = None,
        flavor: FlavorName | None = None,
        gpus: int = 0,
    ) -> int:
        """Append an entry; return its number."""
        self.seq += 1
        entry = Entry(self.seq, at_ms, self.epoch, step, workload, None, None, flavor, None, gpus, detail)
        if of is not None:
            entry = Entry(
                self.seq, at_ms, self.epoch, step, of.workload, of.attempt, of.team, of.flavor, of.system, gpus, detail
            )
        self.layer.entries[transfer] = entry
        return self.seq

    def keep(self, change: Change | None, present: Grant | None) -> Grant:
        """Apply a change and return what it makes of the grant; without one, return the grant as it is."""
        if change is not None:
            return self._apply(change)
        if present is None:
            raise BrokenInvariantError("a transfer without change belongs to no grant")
        return present

    def _apply(self, change: Change) -> Grant:
        grant = change.grant
        owner = (grant.team, grant.flavor, grant.system)
        held = self.layer.balances.get(owner)
        balance = (self._base.balances.get(owner, 0) if held is None else held) + change.delta
        if balance < 0:
            raise BrokenInvariantError(
                f"{change.step} of {grant.workload} attempt {grant.attempt}: {grant.team} would hold {balance} "
                f"{grant.flavor} in {grant.system}"
            )
        seq = self.append(change.step, change.transfer, change.at_ms, change.detail, of=grant, gpus=change.delta)
        key = (grant.workload, grant.attempt)
        self.layer.grants[key] = grant
        self.layer.newest[grant.workload] = grant.attempt
        if change.delta:
            self.layer.balances[owner] = balance
        self._move_span(key, grant, change.at_ms, seq)
        return grant

    def _move_span(self, key: Attempt, grant: Grant, at_ms: int, seq: int) -> None:
        span = self._span(key)
        if span is not None:
            self.layer.spans[span.seq] = replace(span, to_ms=at_ms)
        now = None
        if grant.state is GrantState.RUNNING:
            now = self.layer.spans[seq] = Span(seq, *key, at_ms, None, grant.gpus)
        if span is not None or now is not None:
            self.layer.running[key] = now

    def _grant(self, key: Attempt) -> Grant | None:
        return self.layer.grants.get(key) or self._base.grants.get(key)

    def _span(self, key: Attempt) -> Span | None:
        return self.layer.running[key] if key in self.layer.running else self._base.running.get(key)


class MemoryLedger:
    """Implements bridge.ledger.port.Ledger. Any thread may call it; a batch belongs to its thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._kept = _Layer()
        self._holding: dict[Attempt, Grant] = {}
        self._seq = 0
        self._leader: Epoch | None = None
        self._batch: _Draft | None = None

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept, self._holding = _Layer(), {}

    def open_epoch(self, epoch: int, holder: str) -> None:
        """Take over as leader."""
        if epoch < 1 or not holder:
            raise InvalidInputError(f"open_epoch: epoch={epoch} holder={holder!r}; give an epoch from 1 up and a name")
        leader = Epoch(epoch, holder, self._clock.now_ms())
        with self._lock:
            fencing.check_take_over("open_epoch", leader, self._newest())
            self._leader = leader
            if epoch not in self._kept.epochs:
                with self._write("open_epoch") as draft:
                    draft.append(Step.EPOCH, f"{Step.EPOCH}/{epoch}", leader.at_ms, {"holder": holder})
                    draft.layer.epochs[epoch] = leader

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Commit every write inside the block together, or none of them. Reads inside it see what was there before."""
        with self._write("batch") as draft:
            outer, self._batch = self._batch, draft
            try:
                yield
            finally:
                self._batch = outer

    def reserve(self, workload: Workload, placement: Mapping[NodeName, int], *, at_ms: int) -> Grant:
        """Hold the next attempt."""
        with self._write("reserve") as draft:
            latest = draft.latest(workload.id)
            return draft.keep(transfers.reserve(latest, workload, placement, at_ms), latest)

    def adopt(self, workload: Workload, placement: Mapping[NodeName, int], *, at_ms: int, note: str) -> Grant:
        """Charge what is found running."""
        with self._write("adopt") as draft:
            latest = draft.latest(workload.id)
            return draft.keep(transfers.adopt(latest, workload, placement, at_ms, note), latest)

    def run(
        self, workload: WorkloadId, attempt: int, *, gpus: int, placement: Mapping[NodeName, int], at_ms: int
    ) -> Grant:
        """Start, with what was really allocated."""
        with self._write("run") as draft:
            grant = draft.attempt(workload, attempt, Step.RUN)
            return draft.keep(transfers.run(grant, gpus, placement, at_ms), grant)

    def adjust(
        self, workload: WorkloadId, attempt: int, *, gpus: int, placement: Mapping[NodeName, int], at_ms: int
    ) -> Grant:
        """Charge another amount from `at_ms` on."""
        with self._write("adjust") as draft:
            grant = draft.attempt(workload, attempt, Step.ADJUST)
            recorded = draft.entry(transfers.adjustment(workload, attempt, at_ms))
            if recorded is not None:
                transfers.check_repeat(grant, at_ms, recorded.detail, {"gpus": gpus, "placement": dict(placement)})
                return grant
            since_ms = draft.since_ms(grant)
            return draft.keep(transfers.adjust(grant, gpus, placement, at_ms, since_ms=since_ms), grant)

    def release(self, workload: WorkloadId, attempt: int, *, at_ms: int, note: str = "") -> Grant:
        """End; the whole charge is given back."""
        with self._write("release") as draft:
            grant = draft.attempt(workload, attempt, Step.RELEASE)
            return draft.keep(transfers.release(grant, at_ms, note, since_ms=draft.since_ms(grant)), grant)

    def void(self, workload: WorkloadId, attempt: int, *, at_ms: int, note: str) -> Grant:
        """Take a reservation back that never ran."""
        with self._write("void") as draft:
            grant = draft.attempt(workload, attempt, Step.VOID)
            return draft.keep(transfers.void(grant, at_ms, note), grant)

    def intend(self, intent: Intent) -> Intent:
        """Record an intent; the same id again returns the first one."""
        if intent.settled_ms is not None or intent.outcome:
            raise InvalidInputError(
                f"intent {intent.id}: settled_ms={intent.settled_ms} on a new one; use settle for that"
            )
        with self._write("intend") as draft:
            first = draft.intent(intent.id)
            if first is not None:
                return first
            detail = {"id": intent.id, "kind": intent.kind, "detail": dict(intent.detail)}
            draft.append(Step.INTENT, f"{Step.INTENT}/{intent.id}", intent.at_ms, detail, workload=intent.workload)
            draft.layer.intents[intent.id] = intent
            return intent

    def settle(self, intent_id: str, *, outcome: str, at_ms: int) -> Intent:
        """Close an intent; settling twice keeps the first outcome."""
        with self._write("settle") as draft:
            intent = draft.intent(intent_id)
            if intent is None:
                raise NotFoundError(f"settle: the ledger has no intent {intent_id!r}; record it with intend first")
            if intent.settled_ms is not None:
                return intent
            settled = replace(intent, settled_ms=at_ms, outcome=outcome)
            detail = {"id": intent_id, "outcome": outcome}
            draft.append(Step.SETTLE, f"{Step.SETTLE}/{intent_id}", at_ms, detail, workload=intent.workload)
            draft.layer.intents[intent_id] = settled
            return settled

    def capacity(self, rows: Sequence[CapacityRow], *, at_ms: int) -> int:
        """Record the nodes whose row changed."""
        for row in rows:
            transfers.check_columns(row)
        written = 0
        with self._write("capacity") as draft:
            for row in rows:
                if draft.node(row.node) != row:
                    transfer = f"{Step.CAPACITY}/{draft.seq + 1}"
                    draft.append(Step.CAPACITY, transfer, at_ms, asdict(row), flavor=row.flavor)
                    draft.layer.capacity[row.node] = row
                    written += 1
        return written

    def note(self, workload: WorkloadId, text: str, *, at_ms: int) -> None:
        """Append a line to a workload's history."""
        with self._write("note") as draft:
            if draft.last_note(workload) != text:
                draft.append(Step.NOTE, f"{Step.NOTE}/{draft.seq + 1}", at_ms, {"text": text}, workload=workload)
                draft.layer.notes[workload] = text

    def grants(self, *, holding: bool = True) -> Sequence[Grant]:
        """Return the grants that hold now, or all."""
        with self._lock:
            found = list((self._holding if holding else self._kept.grants).values())
        return sorted(found, key=lambda grant: (grant.reserved_ms, grant.workload, grant.attempt))

    def ended(self, *, limit: int) -> Sequence[Grant]:
        """Return at most `limit` grants that ended last, newest first."""
        with self._lock:
            over = [grant for grant in self._kept.grants.values() if grant.ended_ms is not None]
        return sorted(over, key=lambda grant: (-(grant.ended_ms or 0), grant.workload, -grant.attempt))[:limit]

    def intents(self, *, open_only: bool = True) -> Sequence[Intent]:
        """Return the intents not yet settled, or all."""
        with self._lock:
            found = [each for each in self._kept.intents.values() if not open_only or each.settled_ms is None]
        return sorted(found, key=lambda intent: (intent.at_ms, intent.id))

    def capacity_rows(self) -> Sequence[CapacityRow]:
        """Return the latest row of every node."""
        with self._lock:
            return sorted(self._kept.capacity.values(), key=lambda row: row.node)

    def history(self, workload: WorkloadId) -> Sequence[Entry]:
        """Return every entry of one workload, oldest first."""
        with self._lock:
            return [entry for entry in self._kept.entries.values() if entry.workload == workload]

    def log(self, *, after_seq: int = 0, limit: int = 100) -> Sequence[Entry]:
        """Return entries in order."""
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidInputError(f"limit={limit}: give a number of entries from 1 to {MAX_PAGE}")
        with self._lock:
            entries = list(self._kept.entries.values())
        return entries[max(0, after_seq) : max(0, after_seq) + limit]

    def newest_epoch(self) -> int:
        """Return the highest epoch on record, 0 when nobody ever led."""
        with self._lock:
            newest = self._newest()
        return 0 if newest is None else newest.epoch

    def last_seq(self) -> int:
        """Return the number of the newest entry."""
        with self._lock:
            return self._seq

    def usage(self, *, from_ms: int, to_ms: int, cuts: Sequence[int] = ()) -> Sequence[Usage]:
        """Return the exact GPU-milliseconds of a window."""
        if to_ms < from_ms:
            raise InvalidInputError(
                f"to_ms={to_ms} is before from_ms={from_ms}; give a window that ends after it begins"
            )
        with self._lock:
            held = [self._held(span) for span in self._kept.spans.values()]
        return history.usage(held, from_ms=from_ms, to_ms=to_ms, cuts=cuts)

    def past(self, *, from_ms: int) -> Past:
        """Return what was held from a moment on, as of one entry."""
        with self._lock:
            spans = list(self._kept.spans.values())
            return Past(
                seq=self._seq,
                ended=[self._held(span) for span in spans if span.to_ms is not None and span.to_ms > from_ms],
                carried=[],
                grants=list(self._holding.values()),
                since_ms={(span.workload, span.attempt): span.from_ms for span in spans if span.to_ms is None},
            )

    def verify(self) -> Sequence[Problem]:
        """Recompute everything from entry 1."""
        with self._lock:
            replay, kept = Replay(), self._kept
            for entry in kept.entries.values():
                replay.add(entry)
            told = list(replay.faults)
            pairs: tuple[tuple[str, Mapping[Any, object], Mapping[Any, object]], ...] = (
                ("grants", kept.grants, replay.grants),
                ("spans", {(seq,): span for seq, span in kept.spans.items()}, replay.spans),
                ("balances", _balances(kept), replay.balances),
                ("capacity", {(node,): row for node, row in kept.capacity.items()}, replay.capacity),
                ("intents", {(name,): intent for name, intent in kept.intents.items()}, replay.intents),
                ("epochs", {(epoch,): term for epoch, term in kept.epochs.items()}, replay.epochs),
            )
            for table, has, wanted in pairs:
                told += [
                    f"{table} {key}: recorded {has.get(key)}, the entries say {wanted.get(key)}"
                    for key in dict.fromkeys((*has, *wanted))
                    if has.get(key) != wanted.get(key)
                ]
            sums = {key: gpus for key, gpus in replay.held().items() if gpus}
            balances = {key: each.gpus for key, each in replay.balances.items() if each.gpus}
            if sums != balances:
                told.append(f"balances {balances} are not what the grants that hold come to: {sums}")
        return tuple(Problem(text) for text in told)

    @contextmanager
    def _write(self, verb: str) -> Iterator[_Draft]:
        """Write one transaction, or join the batch that this thread has open."""
        with self._lock:
            leader = self._leader
            if leader is None:
                raise StaleLeaderError(f"{verb}: no epoch is open; take over with open_epoch before the first write")
            if self._batch is not None:
                yield self._batch
                return
            draft = _Draft(self._kept, leader.epoch, self._seq)
            yield draft
            self._commit(draft)

    def _commit(self, draft: _Draft) -> None:
        self._kept.merge(draft.layer)
        self._seq = draft.seq
        for key, grant in draft.layer.grants.items():
            if grant.holds:
                self._holding[key] = grant
            else:
                self._holding.pop(key, None)

    def _held(self, span: Span) -> Held:
        grant = self._kept.grants[span.workload, span.attempt]
        return Held(grant.team, grant.system, grant.flavor, span.gpus, span.from_ms, span.to_ms, grant.user)

    def _newest(self) -> Epoch | None:
        epochs = self._kept.epochs
        return epochs[max(epochs)] if epochs else None


def _balances(kept: _Layer) -> dict[tuple[str, str, str], Balance]:
    return {
        (team, flavor, system.value): Balance(team, flavor, system, gpus)
        for (team, flavor, system), gpus in kept.balances.items()
    }
