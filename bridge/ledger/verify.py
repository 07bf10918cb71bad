"""The proof that the ledger adds up: every projection recomputed from the entries and compared, row by row.

From entry 1; or, when history was archived, from the newest checkpoint's carried state; or, given the archive's
folder, from entry 1 again through every archived entry, each checkpoint compared on the way.

Also checked per entry: numbers without a gap, the chain of digests, transfers used once, epochs that never go
back, no balance below zero, each GPU of a node in one column.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select, text

from bridge.errors import BridgeError
from bridge.ledger import archive_files, carried, migration, queries, rows, schema
from bridge.ledger.fold import Replay
from bridge.ledger.model import Head
from bridge.ledger.port import Problem
from bridge.ledger.rows import Codec, Row
from bridge.workloads.model import WorkloadId

_UNREADABLE: Final = (KeyError, TypeError, ValueError, EOFError, OSError, msgspec.DecodeError)
"""What a row, or a file, that somebody else wrote can raise when it is read."""

_NUMBERS: Final = frozenset({"seq", "at_ms", "epoch", "attempt", "gpus"})


def problems(connection: Connection, *, archive: Path | None = None) -> tuple[Problem, ...]:
    """Return every discrepancy within one snapshot; empty is the proof."""
    found = [*_database(connection)]
    try:
        replay, head = start(connection)
    except _UNREADABLE as error:
        return tuple(map(Problem, [*found, f"the newest checkpoint cannot be read: {type(error).__name__}: {error}"]))
    found += _checkpoints(connection)
    transfers: set[str] = set()
    if archive is not None:
        replay, head = Replay(), Head()
        found += _archived(connection, archive, replay, transfers)
        head = _last_checkpoint(connection)
    found += [*_journal(queries.journal(connection, after_seq=head.seq), head, replay, transfers)]
    found += [*replay.faults, *_sums(replay)]
    projections: tuple[tuple[Codec[Any], Mapping[Any, object]], ...] = (
        (rows.GRANTS, replay.grants),
        (rows.SPANS, replay.spans),
        (rows.BALANCES, replay.balances),
        (rows.CAPACITY, replay.capacity),
        (rows.INTENTS, replay.intents),
        (rows.EPOCHS, replay.epochs),
    )
    for codec, expected in projections:
        found += _projection(connection, codec, expected)
    return tuple(Problem(sentence) for sentence in found)


def start(connection: Connection) -> tuple[Replay, Head]:
    """Return where a replay of the entries that are here begins: nothing, or the newest checkpoint's state."""
    head = _last_checkpoint(connection)
    if not head.seq:
        return Replay(), head
    state = connection.scalar(select(schema.checkpoints.c.state).where(schema.checkpoints.c.seq == head.seq))
    return carried.load_state(str(state), carried_attempts(connection)), head


def carried_attempts(connection: Connection) -> dict[WorkloadId, int]:
    """Return the newest archived attempt of each workload that has one."""
    column = schema.carried_attempts.c
    return {WorkloadId(name): attempt for name, attempt in connection.execute(select(column.workload, column.attempt))}


def folder(path: Path, manifest: str, replay: Replay, head: Head, transfers: set[str] | None = None) -> Iterator[str]:
    """Check one archive folder, going on from `replay`; afterwards that is what the folder carries forward.

    `manifest` is the digest that the ledger's checkpoint names.
    """
    try:
        told = archive_files.manifest(path)
        if archive_files.file_digest(path / archive_files.MANIFEST) != manifest:
            yield f"archive {path.name}: its manifest is not the one that the checkpoint names"
        for name, file in told.files.items():
            if archive_files.file_digest(path / name) != file.sha256:
                yield f"archive {path.name}: {name} does not match its digest"
        if (told.first_seq, told.digest_before) != (head.seq + 1, head.digest):
            yield f"archive {path.name}: begins at entry {told.first_seq}, it does not follow entry {head.seq}"
        stored = (tuple(_entry(cells)) for cells in archive_files.table(path, "entries"))
        yield from _journal(stored, head, replay, set() if transfers is None else transfers)
        closed = carried.close(replay)
        for kind, codec in (
            ("grants", rows.GRANTS),
            ("spans", rows.SPANS),
            ("intents", rows.INTENTS),
            ("epochs", rows.EPOCHS),
        ):
            yield from _table(path, kind, [codec.dump(value) for value in getattr(closed, kind)])
        yield from _table(path, "usage", [row.row() for row in closed.usage])
    except (*_UNREADABLE, BridgeError) as error:
        yield f"archive {path.name} cannot be read: {error}"
        return
    if replay.seq != told.last_seq:
        yield f"archive {path.name}: ends at entry {replay.seq}, its manifest says {told.last_seq}"
    if carried.digest([(carried.dump_state(replay),)]) != told.state_sha256:
        yield f"archive {path.name}: its entries come to another state than its manifest says"


def _database(connection: Connection) -> Iterator[str]:
    """Check what keeps the database from being written past the journal."""
    version = migration.stored(connection)
    if version != str(schema.VERSION):
        yield f"meta: schema_version is {version}, this bridge wrote {schema.VERSION}"
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    if connection.dialect.name != "sqlite":
        query = (  # O: it fires; D and R: somebody switched it off
            "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') "
            "AND tgrelid IN ('entries'::regclass, 'checkpoints'::regclass)"
        )
    for name in sorted(schema.trigger_names(connection) - set(connection.scalars(text(query)))):
        yield f"{name.partition('_')[0]}: the trigger {name} is missing, so the journal can be changed"


def _last_checkpoint(connection: Connection) -> Head:
    column = schema.checkpoints.c
    newest = connection.execute(select(column.seq, column.digest).order_by(column.seq.desc()).limit(1)).one_or_none()
    return Head() if newest is None else Head(*newest)


def _checkpoints(connection: Connection) -> Iterator[str]:
    """Check what was carried forward against the digests that the checkpoints took of it."""
    column, usage = schema.checkpoints.c, schema.carried_usage
    known = set()
    stored = connection.execute(select(column.seq, column.attempts, column.usage).order_by(column.seq)).all()
    for seq, _attempts, wanted in stored:
        known.add(seq)
        found = connection.execute(select(*list(usage.columns)[1:]).where(usage.c.checkpoint == seq))
        if carried.digest(tuple(row) for row in found) != wanted:
            yield f"carried_usage: the sums of checkpoint {seq} are not those that were archived"
    for seq in connection.scalars(select(usage.c.checkpoint).distinct()):
        if seq not in known:
            yield f"carried_usage: sums of the checkpoint {seq}, which does not exist"
    attempts = carried.digest(carried_attempts(connection).items())
    if stored and attempts != stored[-1][1]:
        yield "carried_attempts: not those that were archived"


def _archived(connection: Connection, archive: Path, replay: Replay, transfers: set[str]) -> Iterator[str]:
    """Replay every archived entry, comparing each checkpoint on the way."""
    column = schema.checkpoints.c
    query = select(column.seq, column.digest, column.archive, column.manifest, column.state).order_by(column.seq)
    head = Head()
    for seq, digest, name, manifest, state in connection.execute(query).all():
        yield from folder(archive / name, manifest, replay, head, transfers)
        if replay.seq != seq or carried.dump_state(replay) != state:
            yield f"checkpoint {seq}: its state is not what the archived entries come to"
        head = Head(seq, digest)


def _journal(stored: Iterable[Row], head: Head, replay: Replay, transfers: set[str]) -> Iterator[str]:
    """Replay entries, checking their place in the chain."""
    for row in stored:
        if rows.digest(row, head) != rows.digest_of(row):
            yield f"entry {row[0]} does not match its digest: it, or the entry before it, was changed"
        head = Head(row[0], rows.digest_of(row))
        transfer = rows.transfer_of(row)
        if transfer in transfers:
            yield f"entry {row[0]} repeats the transfer {transfer}"
        transfers.add(transfer)
        try:
            replay.add(rows.load_entry(row))
        except _UNREADABLE as error:
            yield f"entry {row[0]} cannot be read: {type(error).__name__}: {error}"


def _entry(cells: list[str | None]) -> Iterator[Any]:
    """Return an archived entry's columns as the database would."""
    for column, cell in zip(schema.entries.columns, cells, strict=True):
        yield int(cell) if cell is not None and column.name in _NUMBERS else cell


def _table(path: Path, name: str, expected: list[tuple[Any, ...]]) -> Iterator[str]:
    """Compare one file of closed history with what its entries come to."""
    wanted = [tuple(None if value is None else str(value) for value in row) for row in expected]
    found = [tuple(cells) for cells in archive_files.table(path, name)]
    if found != wanted:
        differ = [row for row in found if row not in set(wanted)] or wanted[len(found) :] or found[len(wanted) :]
        yield (
            f"archive {path.name}: {name} is not what its entries come to ({len(found)} rows, {len(wanted)} wanted"
            + (f"; first {differ[0]})" if differ else "; another order)")
        )


def _sums(replay: Replay) -> Iterator[str]:
    """Check that the balances are what the grants that hold come to."""
    held = replay.held()
    for key in sorted(held.keys() | replay.balances.keys()):
        balance = replay.balances[key].gpus if key in replay.balances else 0
        if balance != held.get(key, 0):
            yield f"balance {'/'.join(key)}: the entries sum to {balance}, the grants that hold to {held.get(key, 0)}"


def _projection(connection: Connection, codec: Codec[Any], expected: Mapping[Any, object]) -> Iterator[str]:
    """Compare one table with what the replay made of it."""
    missing = dict(expected)
    names = [column.name for column in codec.table.columns]
    keys = [names.index(column.name) for column in codec.table.primary_key]
    for row in connection.execute(select(codec.table)):
        key = tuple(row[index] for index in keys)
        where = f"{codec.table.name} {'/'.join(map(str, key))}"
        wanted = missing.pop(key, None)
        if wanted is None:
            yield f"{where}: the table has a row that no entry made"
            continue
        try:
            columns = codec.dump(codec.load(row))
        except _UNREADABLE as error:
            yield f"{where}: cannot be read: {type(error).__name__}: {error}"
            continue
        for name, told, value in zip(names, columns, codec.dump(wanted), strict=True):
            if told != value:
                yield f"{where}: {name} is {told}, the entries say {value}"
    for key in missing:
        yield f"{codec.table.name} {'/'.join(map(str, key))}: the entries make a row that the table lacks"
