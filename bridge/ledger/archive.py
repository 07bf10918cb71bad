"""Retention: closed history goes to files, what is open and the sums are carried forward, the proof stays whole.

Order: prove, write, sync, read back, and only then one transaction that records the checkpoint and removes the rows
that have ended. The archived entries themselves go after it, a few thousand at a time, so that no writer waits long;
a run that is killed in between is finished by the next one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, func, select

from bridge.clock import Clock
from bridge.errors import BrokenInvariantError, InvalidInputError, UnknownStateError
from bridge.ledger import archive_files, carried, queries, rows, schema, verify
from bridge.ledger.archive_files import Manifest
from bridge.ledger.carried import Closed, DaySum
from bridge.ledger.fold import Replay
from bridge.ledger.model import Head
from bridge.ledger.rows import Codec, Row
from bridge.ledger.store import Store, newest_head, open_store

MAX_ENTRIES: Final = 200_000
"""The most entries in one folder: what one transaction removes stays bounded."""

_CHUNK: Final = 5_000


@dataclass(frozen=True, slots=True)
class Archived:
    """One folder that was written."""

    folder: Path
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """One checkpoint in the making."""

    first_seq: int
    head: Head  # the last entry in it
    folder: Path
    manifest: str
    state: str
    closed: Closed


def archive(
    url: str, *, before_ms: int, directory: Path, clock: Clock, max_entries: int = MAX_ENTRIES
) -> tuple[Archived, ...]:
    """Move history up to the last entry before `before_ms` into folders under `directory`.

    Entries from the first one at or after that moment on stay, and whatever is still open is carried forward. The
    newest entry stays in any case. A ledger that does not add up is refused: what is wrong must not lose its evidence.
    """
    if before_ms > clock.now_ms():
        raise InvalidInputError(f"--before: {before_ms} ms is in the future; give a moment that has passed")
    store = open_store(url, None, migrate=False)
    try:
        _forget_entries(store)  # what a killed run left
        with store.read() as connection:
            found = verify.problems(connection)
        if found:
            raise BrokenInvariantError(
                f"archive: the ledger does not add up ({len(found)} problems), nothing is archived; {found[0].text}"
            )
        written = []
        while (piece := _written(store, before_ms, directory, max_entries)) is not None:
            _check(piece, store)
            _record(store, piece, clock.now_ms())
            _forget_entries(store)
            written.append(Archived(piece.folder, piece.first_seq, piece.head.seq))
        return tuple(written)
    finally:
        store.close()


def _written(store: Store, before_ms: int, directory: Path, max_entries: int) -> _Piece | None:
    """Write the next folder; None when nothing is left to archive."""
    with store.read() as connection:
        replay, head = verify.start(connection)
        column = schema.entries.c
        stays = select(func.min(column.seq)).where(column.seq > head.seq, column.at_ms >= before_ms)
        last = min((connection.scalar(stays) or newest_head(connection).seq) - 1, head.seq + max_entries)
        if last <= head.seq:
            return None
        name = f"ledger-{head.seq + 1:012}-{last:012}"
        folder, journal = archive_files.begin(directory, name), _Journal(connection, head, last, replay)
        folder.table("entries", _names(schema.entries), journal)
    if replay.faults:
        raise BrokenInvariantError(f"archive: {replay.faults[0]}; nothing is archived")
    closed = carried.close(replay)
    state = carried.dump_state(replay)
    for kind, codec in _CLOSED:
        folder.table(kind, _names(codec.table), (codec.dump(value) for value in getattr(closed, kind)))
    folder.table("usage", [field.name for field in fields(DaySum)], (row.row() for row in closed.usage))
    gpu_ms: dict[str, int] = {}
    for row in closed.usage:
        gpu_ms[row.team] = gpu_ms.get(row.team, 0) + row.gpu_ms
    final, manifest = archive_files.finish(
        folder,
        Manifest(
            format=archive_files.FORMAT,
            schema=schema.VERSION,
            first_seq=head.seq + 1,
            last_seq=last,
            digest_before=head.digest,
            digest=journal.head.digest,
            from_ms=journal.from_ms,
            to_ms=journal.to_ms,
            files=folder.files,
            balances=[list(rows.BALANCES.dump(balance)) for _, balance in sorted(replay.balances.items())],
            gpu_ms=dict(sorted(gpu_ms.items())),
            state_sha256=carried.digest([(state,)]),
        ),
    )
    return _Piece(head.seq + 1, journal.head, final, manifest, state, closed)


class _Journal:
    """The entries of a folder on their way into it, replayed and checked as they pass."""

    def __init__(self, connection: Connection, head: Head, last: int, replay: Replay) -> None:
        self._rows = queries.journal(connection, after_seq=head.seq, up_to_seq=last)
        self._replay = replay
        self.head = head
        self.from_ms = self.to_ms = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            if rows.digest(row, self.head) != rows.digest_of(row):
                raise BrokenInvariantError(f"archive: entry {row[0]} does not match its digest; nothing is archived")
            entry = rows.load_entry(row)
            self._replay.add(entry)
            self.head = Head(entry.seq, rows.digest_of(row))
            self.from_ms = min(self.from_ms or entry.at_ms, entry.at_ms)
            self.to_ms = max(self.to_ms, entry.at_ms)
            yield row


def _check(piece: _Piece, store: Store) -> None:
    """Read a folder back from disk as a verifier would. Nothing is removed before this has passed."""
    with store.read() as connection:
        replay, head = verify.start(connection)
        found = list(verify.folder(piece.folder, piece.manifest, replay, head))
    if not found and (replay.seq, carried.dump_state(replay)) != (piece.head.seq, piece.state):
        found = ["what it carries forward is not what it was written with"]
    if found:
        raise UnknownStateError(f"archive {piece.folder}: read back, {found[0]}; nothing was removed from the ledger")


def _record(store: Store, piece: _Piece, now_ms: int) -> None:
    """Make the checkpoint, carry forward, remove what has ended: one transaction."""
    closed, seq = piece.closed, piece.head.seq
    with store.exclusively("archive") as connection:
        newest = connection.scalar(select(func.max(schema.checkpoints.c.seq))) or 0
        if newest != piece.first_seq - 1:
            raise UnknownStateError(f"archive: another run made the checkpoint {newest} meanwhile; run it again")
        dialect = connection.dialect.name
        known = verify.carried_attempts(connection)
        again = [(attempt, workload) for workload, attempt in closed.attempts.items() if workload in known]
        new = [pair for pair in closed.attempts.items() if pair[0] not in known]
        usage = [(seq, *row.row()) for row in closed.usage]
        for statement, values in (
            (rows.change(schema.carried_attempts, ("attempt",), (), dialect), again),
            (rows.insertion(schema.carried_attempts, dialect), new),
            (rows.insertion(schema.carried_usage, dialect), usage),
        ):
            if values:
                connection.exec_driver_sql(statement, values)
        checkpoint = (
            seq,
            piece.head.digest,
            now_ms,
            piece.folder.name,
            piece.manifest,
            piece.state,
            carried.digest(verify.carried_attempts(connection).items()),
            carried.digest(row.row() for row in closed.usage),
        )
        connection.exec_driver_sql(rows.insertion(schema.checkpoints, dialect), checkpoint)
        for kind, codec in _CLOSED[::-1]:  # spans before the grants that they belong to
            _remove(connection, codec, getattr(closed, kind))


def _remove(connection: Connection, codec: Codec[Any], ended: Sequence[Any]) -> None:
    statement = rows.deletion(codec.table, connection.dialect.name)
    for start in range(0, len(ended), _CHUNK):
        keys = [codec.key(value) for value in ended[start : start + _CHUNK]]
        removed = connection.exec_driver_sql(statement, keys).rowcount
        if removed != len(keys):
            raise BrokenInvariantError(
                f"archive: {len(keys) - removed} rows of {codec.table.name} that have ended are not there; run verify"
            )


def _forget_entries(store: Store) -> None:
    """Remove the entries that a checkpoint covers, a few at a time."""
    column = schema.entries.c
    while True:
        with store.exclusively("archive") as connection:
            last = connection.scalar(select(func.max(schema.checkpoints.c.seq))) or 0
            first = connection.scalar(select(func.min(column.seq)))
            if first is None or first > last:
                return
            upto = min(last, first + _CHUNK - 1)
            connection.execute(schema.entries.delete().where(column.seq <= upto))


def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


_CLOSED: Final[tuple[tuple[str, Codec[Any]], ...]] = (
    ("epochs", rows.EPOCHS),
    ("intents", rows.INTENTS),
    ("grants", rows.GRANTS),
    ("spans", rows.SPANS),
)
