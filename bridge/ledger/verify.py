"""The proof that the ledger adds up: every projection recomputed from entry 1 and compared, row by row.

Also checked per entry: numbers without a gap, the chain of digests, transfers used once, epochs that never go
back, no balance below zero, each GPU of a node in one column.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select, text

from bridge.ledger import queries, rows, schema
from bridge.ledger.fold import Replay
from bridge.ledger.model import Head
from bridge.ledger.port import Problem
from bridge.ledger.rows import Codec, Row

_UNREADABLE: Final = (KeyError, TypeError, ValueError, msgspec.DecodeError)
"""What a row that somebody else wrote can raise when it is read."""


def problems(connection: Connection) -> tuple[Problem, ...]:
    """Return every discrepancy within one snapshot; empty is the proof."""
    replay = Replay()
    found = [*_database(connection), *_journal(queries.journal(connection), replay), *replay.faults, *_sums(replay)]
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


def _database(connection: Connection) -> Iterator[str]:
    """Check what keeps the database from being written past the journal."""
    version = connection.scalar(select(schema.meta.c.value).where(schema.meta.c.key == "schema_version"))
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


def _journal(stored: Iterable[Row], replay: Replay) -> Iterator[str]:
    """Replay every entry, checking its place in the chain."""
    head, transfers = Head(), set()
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
