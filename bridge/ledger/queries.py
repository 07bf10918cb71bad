"""Reads. Each takes an open connection, so that several of them can share one snapshot."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, func, or_, select, text

from bridge.ledger import rows, schema
from bridge.ledger.model import Balance, Span
from bridge.ledger.port import CapacityRow, Carried, Entry, Held, Intent, Past
from bridge.ledger.rows import Codec, Row, Value
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import Grant, System, WorkloadId

_CHUNK: Final = 1_000


def grants(connection: Connection, *, holding: bool) -> Sequence[Grant]:
    """Return grants in the order in which they were reserved."""
    query = select(schema.grants)
    if holding:
        query = query.where(text("state IN ('reserved', 'running')"))  # as the index says it
    found = _load(connection, rows.GRANTS, query)
    return sorted(found, key=lambda grant: (grant.reserved_ms, grant.workload, grant.attempt))


def ended(connection: Connection, *, limit: int) -> Sequence[Grant]:
    """Return the grants that ended last, newest first."""
    column = schema.grants.c
    over = select(schema.grants).where(column.ended_ms.is_not(None))
    query = over.order_by(column.ended_ms.desc(), column.workload, column.attempt.desc()).limit(limit)
    return _load(connection, rows.GRANTS, query)


def newest_epoch(connection: Connection) -> int:
    """Return the highest epoch on record, 0 when nobody ever led."""
    return int(connection.execute(select(func.max(schema.epochs.c.epoch))).scalar() or 0)


def intents(connection: Connection, *, open_only: bool) -> Sequence[Intent]:
    """Return intents, oldest first."""
    column = schema.intents.c
    query = select(schema.intents)
    found = _load(connection, rows.INTENTS, query.where(column.settled_ms.is_(None)) if open_only else query)
    return sorted(found, key=lambda intent: (intent.at_ms, intent.id))


def capacity(connection: Connection) -> Sequence[CapacityRow]:
    """Return the latest row of every node."""
    return sorted(_load(connection, rows.CAPACITY, select(schema.node_capacity)), key=lambda row: row.node)


def balances(connection: Connection) -> Sequence[Balance]:
    """Return what each team holds."""
    return _load(connection, rows.BALANCES, select(schema.balances))


def workloads(connection: Connection) -> Iterator[str]:
    """Return every workload that was ever granted, archived ones too."""
    for table in (schema.grants, schema.carried_attempts):
        query = select(table.c.workload)
        yield from connection.execute(query, execution_options={"yield_per": _CHUNK}).scalars()


def open_spans(connection: Connection) -> Sequence[Span]:
    """Return the spans that have not ended."""
    return _load(connection, rows.SPANS, select(schema.spans).where(schema.spans.c.to_ms.is_(None)))


def history(connection: Connection, workload: WorkloadId) -> Sequence[Entry]:
    """Return every entry of one workload, oldest first."""
    column = schema.entries.c
    query = select(schema.entries).where(column.workload == workload).order_by(column.seq)
    return [rows.load_entry(row) for row in connection.execute(query)]


def entries(connection: Connection, *, after_seq: int, limit: int) -> Sequence[Entry]:
    """Return entries in order."""
    column = schema.entries.c
    query = select(schema.entries).where(column.seq > after_seq).order_by(column.seq).limit(limit)
    return [rows.load_entry(row) for row in connection.execute(query)]


def last_seq(connection: Connection) -> int:
    """Return the number of the newest entry; 0 when there is none."""
    return connection.scalar(select(func.max(schema.entries.c.seq))) or 0


def held(connection: Connection, *, from_ms: int, to_ms: int) -> Iterator[Held]:
    """Return the spans that touch a window, with whom they belong to."""
    span, grant = schema.spans.c, schema.grants.c
    query = (
        select(grant.team, grant.system, grant.flavor, span.gpus, span.from_ms, span.to_ms, grant.user)
        .join(schema.grants, and_(span.workload == grant.workload, span.attempt == grant.attempt))
        .where(span.from_ms < to_ms, or_(span.to_ms.is_(None), span.to_ms > from_ms))
    )
    for team, system, flavor, gpus, begun_ms, ended_ms, user in connection.execute(query):
        yield Held(TeamName(team), System(system), FlavorName(flavor), gpus, begun_ms, ended_ms, user)


def carried(connection: Connection, *, from_ms: int, to_ms: int) -> Iterator[Carried]:
    """Return the sums of archived spans that touch a window."""
    column = schema.carried_usage.c
    wanted = (column.team, column.system, column.flavor, column.gpu_ms, column.from_ms, column.to_ms, column.user)
    query = select(*wanted).where(column.from_ms < to_ms, column.to_ms > from_ms)
    for team, system, flavor, gpu_ms, begun_ms, ended_ms, user in connection.execute(query):
        yield Carried(TeamName(team), System(system), FlavorName(flavor), gpu_ms, begun_ms, ended_ms, user)


def past(connection: Connection, *, from_ms: int) -> Past:
    """Return what was held from a moment on, as of the newest entry."""
    far_ms = 2**62
    return Past(
        seq=last_seq(connection),
        ended=[span for span in held(connection, from_ms=from_ms, to_ms=far_ms) if span.to_ms is not None],
        carried=list(carried(connection, from_ms=from_ms, to_ms=far_ms)),
        grants=grants(connection, holding=True),
        since_ms={(span.workload, span.attempt): span.from_ms for span in open_spans(connection)},
    )


def journal(connection: Connection, *, after_seq: int = 0, up_to_seq: int | None = None) -> Iterator[Row]:
    """Return rows of the journal in order, a chunk at a time."""
    column = schema.entries.c
    query = select(schema.entries).where(column.seq > after_seq).order_by(column.seq)
    if up_to_seq is not None:
        query = query.where(column.seq <= up_to_seq)
    yield from connection.execute(query, execution_options={"yield_per": _CHUNK})


def _load(connection: Connection, codec: Codec[Value], query: Select[Any]) -> list[Value]:
    return [codec.load(row) for row in connection.execute(query)]
