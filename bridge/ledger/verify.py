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
    if connection.dialect.name == "sqlite":
        triggers = set(connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")))
        for name in sorted(set(schema.TRIGGERS) - triggers):
            yield f"entries: the trigger {name} is missing, so the journal can be changed"


def _journal(stored: Iterable[Row], replay: Replay) -> Iterator[str]:
    """Replay every entry, checking its place in the chain."""
    head, transfers = Head(), set()
    for row in stored:
        if rows.digest(row, head) != row["digest"]:
            yield f"entry {row['seq']} does not match its digest: it, or the entry before it, was changed"
        head = Head(row["seq"], row["digest"])
        if row["transfer"] in transfers:
            yield f"entry {row['seq']} repeats the transfer {row['transfer']}"
        transfers.add(row["transfer"])
        try:
            replay.add(rows.load_entry(row))
        except _UNREADABLE as error:
            yield f"entry {row['seq']} cannot be read: {type(error).__name__}: {error}"


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
    for row in connection.execute(select(codec.table)).mappings():
        key = tuple(row[column.name] for column in codec.table.primary_key)
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
        for name, value in codec.dump(wanted).items():
            if columns[name] != value:
                yield f"{where}: {name} is {columns[name]}, the entries say {value}"
    for key in missing:
        yield f"{codec.table.name} {'/'.join(map(str, key))}: the entries make a row that the table lacks"
