"""One write transaction in the making: new entries and the projections that follow from them.

Nothing reaches the database before `flush`, which writes entries and projections together. A verb that refuses
raises before it has changed anything here, so the draft is always whole entries with all their consequences.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection

from bridge.errors import BrokenInvariantError
from bridge.ledger import rows, schema
from bridge.ledger.model import Balance, Head, Span, Step
from bridge.ledger.port import Entry
from bridge.ledger.projection import Projection
from bridge.ledger.transfers import Change
from bridge.ledger.warm import Warm
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import Grant, GrantState, System, WorkloadId

_NEWEST_ATTEMPT: Final = "SELECT MAX(attempt) FROM {table} WHERE workload = {mark}"
_NEWEST_NOTE: Final = "SELECT MAX(seq) FROM entries WHERE workload = {mark} AND step = 'note'"


class Draft:
    """What one transaction will write."""

    def __init__(self, connection: Connection, epoch: int, warm: Warm, archived: int) -> None:
        self._connection = connection
        self._mark = "?" if connection.dialect.name == "sqlite" else "%s"
        self._warm = warm
        self._archived = archived  # the last entry that is in an archive
        self.epoch = epoch
        self.base = warm.head
        self.head = warm.head
        self._rows: list[tuple[Any, ...]] = []
        self._transfers: dict[str, tuple[Any, ...]] = {}
        self._attempts: dict[WorkloadId, int] = {}
        self._open: dict[tuple[WorkloadId, int], Span | None] = {}
        self._notes: dict[WorkloadId, str | None] = {}
        self.grants = Projection(connection, rows.GRANTS, warm.grants)
        self.spans = Projection(connection, rows.SPANS, {})
        self.balances = Projection(connection, rows.BALANCES, warm.balances, whole=True)
        self.capacity = Projection(connection, rows.CAPACITY, warm.capacity, whole=True)
        self.intents = Projection(connection, rows.INTENTS, warm.intents)
        self.epochs = Projection(connection, rows.EPOCHS, {})

    @property
    def next_seq(self) -> int:
        """The number that the next entry gets."""
        return self.head.seq + 1

    def latest(self, workload: WorkloadId) -> Grant | None:
        """Return the newest attempt of a workload."""
        if workload not in self._attempts:
            held = self._warm.attempts.get(workload)
            self._attempts[workload] = self._stored_attempt(workload) if held is None else held
        attempt = self._attempts[workload]
        return self.grants.get(workload, attempt) if attempt else None

    def past(self, workload: WorkloadId) -> int:
        """Return how many attempts a workload has had, archived ones counted."""
        self.latest(workload)
        return self._attempts[workload]

    def attempt(self, workload: WorkloadId, attempt: int, step: Step) -> Grant:
        """Return one attempt; a step of an attempt that was never granted is refused."""
        found = self.grants.get(workload, attempt)
        if found is None:
            told = "the ledger never granted it"
            if self._archived and 1 <= attempt <= self.past(workload):
                told = f"it ended long ago and is archived (up to entry {self._archived})"
            raise BrokenInvariantError(f"{step} of {workload} attempt {attempt}: {told}")
        return found

    def open_span(self, workload: WorkloadId, attempt: int) -> Span | None:
        """Return the span that a running attempt is in."""
        key = (workload, attempt)
        return self._open[key] if key in self._open else self._warm.spans.get(key)

    def since_ms(self, grant: Grant) -> int | None:
        """Return when the present charge of a running attempt began."""
        span = self.open_span(grant.workload, grant.attempt) if grant.state is GrantState.RUNNING else None
        return None if span is None else span.from_ms

    def recorded(self, transfer: str) -> Entry | None:
        """Return the entry of a transfer, if there is one."""
        if transfer in self._transfers:
            return rows.load_entry(self._transfers[transfer])
        query = rows.selection(schema.entries, self._connection.dialect.name, ("transfer",))
        row = self._connection.exec_driver_sql(query, (transfer,)).one_or_none()
        return None if row is None else rows.load_entry(row)

    def last_note(self, workload: WorkloadId) -> str | None:
        """Return the text of a workload's newest note."""
        if workload not in self._notes:
            newest = self._one(_NEWEST_NOTE.format(mark=self._mark), workload)
            query = rows.selection(schema.entries, self._connection.dialect.name, ("seq",))
            row = None if newest is None else self._connection.exec_driver_sql(query, (newest,)).one()
            self._notes[workload] = None if row is None else str(rows.load_entry(row).detail["text"])
        return self._notes[workload]

    def note(self, workload: WorkloadId, text: str, at_ms: int) -> None:
        """Append a note."""
        self._notes[workload] = text
        self.append(Step.NOTE, f"{Step.NOTE}/{self.next_seq}", at_ms, {"text": text}, workload=workload)

    def keep(self, change: Change | None, present: Grant | None) -> Grant:
        """Apply a change and return what it makes of the grant; without one, return the grant as it is."""
        if change is not None:
            return self.apply(change)
        if present is None:
            raise BrokenInvariantError("a transfer without change belongs to no grant")
        return present

    def apply(self, change: Change) -> Grant:
        """Append a step of a grant, with its consequences for balance and running time."""
        grant = change.grant
        held = self.balances.get(grant.team, grant.flavor, str(grant.system))
        balance = (held.gpus if held else 0) + change.delta
        if balance < 0:
            raise BrokenInvariantError(
                f"{change.step} of {grant.workload} attempt {grant.attempt}: {grant.team} would hold {balance} "
                f"{grant.flavor} in {grant.system}"
            )
        seq = self.append(
            change.step,
            change.transfer,
            change.at_ms,
            change.detail,
            workload=grant.workload,
            attempt=grant.attempt,
            team=grant.team,
            flavor=grant.flavor,
            system=grant.system,
            gpus=change.delta,
        )
        self._attempts[grant.workload] = max(grant.attempt, self._attempts.get(grant.workload, 0))
        if change.step in (Step.RESERVE, Step.ADOPT):
            self.grants.add(grant)
        else:
            self.grants.put(grant)
        if change.delta:
            self.balances.put(Balance(grant.team, grant.flavor, grant.system, balance))
        self._move_span(change, seq)
        return grant

    def append(
        self,
        step: Step,
        transfer: str,
        at_ms: int,
        detail: Mapping[str, Any],
        *,
        workload: WorkloadId | None = None,
        attempt: int | None = None,
        team: TeamName | None = None,
        flavor: FlavorName | None = None,
        system: System | None = None,
        gpus: int = 0,
    ) -> int:
        """Append an entry, chained to the one before; return its number."""
        seq = self.head.seq + 1
        row = rows.chained(
            (
                seq,
                transfer,
                at_ms,
                self.epoch,
                str(step),
                workload,
                attempt,
                team,
                flavor,
                None if system is None else str(system),  # an enum's str is its text, and quicker than .value
                gpus,
                rows.to_json(detail),
            ),
            self.head,
        )
        self.head = Head(seq, rows.digest_of(row))
        self._rows.append(row)
        self._transfers[transfer] = row
        return seq

    @property
    def pending(self) -> bool:
        """True when there is anything to write."""
        return bool(self._rows)

    def flush(self, connection: Connection) -> None:
        """Write everything, entries first. The same draft can be flushed again, where its base is still the newest."""
        connection.exec_driver_sql(rows.insertion(schema.entries, connection.dialect.name), self._rows)
        for projection in (self.grants, self.spans, self.balances, self.capacity, self.intents, self.epochs):
            projection.flush(connection)

    def _stored_attempt(self, workload: WorkloadId) -> int:
        if not self._warm.seen.maybe(workload):
            return 0
        live = self._one(_NEWEST_ATTEMPT.format(table="grants", mark=self._mark), workload)
        if live is None and self._archived:
            live = self._one(_NEWEST_ATTEMPT.format(table="carried_attempts", mark=self._mark), workload)
        return live or 0

    def _one(self, query: str, value: str) -> int | None:
        found = self._connection.exec_driver_sql(query, (value,)).scalar()
        return None if found is None else int(found)

    def _move_span(self, change: Change, seq: int) -> None:
        grant, at_ms = change.grant, change.at_ms
        span = self.open_span(grant.workload, grant.attempt) if change.step in (Step.ADJUST, Step.RELEASE) else None
        if span is not None:
            self.spans.replace(span, Span(span.seq, span.workload, span.attempt, span.from_ms, at_ms, span.gpus))
        now = (
            Span(seq, grant.workload, grant.attempt, at_ms, None, grant.gpus)
            if grant.state is GrantState.RUNNING
            else None
        )
        if now is not None:
            self.spans.add(now)
        self._open[grant.workload, grant.attempt] = now
