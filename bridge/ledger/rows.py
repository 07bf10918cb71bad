"""Between values and rows. One codec per table; a row is a tuple in the order of the table's columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec
from sqlalchemy import Connection, Table

from bridge.ledger import schema
from bridge.ledger.model import Balance, Epoch, Head, Span
from bridge.ledger.port import CapacityRow, Entry, Intent
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import Grant, GrantState, NodeName, System, WorkloadId

Value = TypeVar("Value")
Row = Sequence[Any]
"""A row in the order of its table's columns."""

_DIGEST: Final = -1  # the journal's last column


@dataclass(frozen=True, slots=True)
class Codec(Generic[Value]):
    """How values of one kind are kept in one table.

    `moves`: the columns that a change may change, with their values; `guard`: columns that must still be as they were.
    """

    table: Table
    dump: Callable[[Value], tuple[Any, ...]]
    load: Callable[[Row], Value]
    key: Callable[[Value], tuple[Any, ...]]
    moves: tuple[tuple[str, ...], Callable[[Value], tuple[Any, ...]]]
    guard: tuple[tuple[str, ...], Callable[[Value], tuple[Any, ...]]] = ((), lambda _: ())


# --- the journal -------------------------------------------------------------------------------------------------


def chained(columns: Row, head: Head) -> tuple[Any, ...]:
    """Return an entry's row: its columns, and the digest that chains them to the entry before it."""
    return (*columns, _chained(columns, head))


def load_entry(row: Row) -> Entry:
    """Return the entry of a row."""
    seq, _transfer, at_ms, epoch, step, workload, attempt, team, flavor, system, gpus, detail, _digest = row
    return Entry(
        seq=seq,
        at_ms=at_ms,
        epoch=epoch,
        step=step,
        workload=None if workload is None else WorkloadId(workload),
        attempt=attempt,
        team=None if team is None else TeamName(team),
        flavor=None if flavor is None else FlavorName(flavor),
        system=None if system is None else System(system),
        gpus=gpus,
        detail=from_json(detail),
    )


def transfer_of(row: Row) -> str:
    """Return the transfer that a row of the journal records."""
    return str(row[1])


def digest_of(row: Row) -> str:
    """Return the digest that a row of the journal carries."""
    return str(row[_DIGEST])


def digest(row: Row, head: Head) -> str:
    """Chain a row to the entry before it: none can change without every later digest changing too."""
    return _chained(row[:_DIGEST], head)


def _chained(columns: Row, head: Head) -> str:
    return sha256(_ENCODER.encode([head.digest, *columns])).hexdigest()


# --- SQL by position: what is written ten thousand times a second is not compiled each time --------------------------


@cache
def insertion(table: Table, dialect: str) -> str:
    """Return the INSERT that takes a whole row."""
    marks = ", ".join([_mark(dialect)] * len(table.columns))
    return f'INSERT INTO "{table.name}" ({_names(table)}) VALUES ({marks})'  # noqa: S608  # names of our own tables


@cache
def change(table: Table, moves: tuple[str, ...], guard: tuple[str, ...], dialect: str) -> str:
    """Return the UPDATE that takes what moves, then the key, then what the guard's columns must be."""
    mark = _mark(dialect)
    sets = ", ".join(f'"{name}" = {mark}' for name in moves)
    names = [*(column.name for column in table.primary_key), *guard]
    wheres = " AND ".join(f'"{name}" = {mark}' for name in names)
    return f'UPDATE "{table.name}" SET {sets} WHERE {wheres}'  # noqa: S608  # names of our own tables


@cache
def selection(table: Table, dialect: str, where: tuple[str, ...]) -> str:
    """Return the SELECT of whole rows by some columns."""
    wheres = " AND ".join(f'"{name}" = {_mark(dialect)}' for name in where)
    return f'SELECT {_names(table)} FROM "{table.name}" WHERE {wheres}'  # noqa: S608  # names of our own tables


@cache
def deletion(table: Table, dialect: str) -> str:
    """Return the DELETE of one row by its primary key."""
    wheres = " AND ".join(f'"{column.name}" = {_mark(dialect)}' for column in table.primary_key)
    return f'DELETE FROM "{table.name}" WHERE {wheres}'  # noqa: S608  # names of our own tables


def by_key(connection: Connection, codec: Codec[Value], key: tuple[Any, ...]) -> Value | None:
    """Return one row by its primary key."""
    where = tuple(column.name for column in codec.table.primary_key)
    query = selection(codec.table, connection.dialect.name, where)
    row = connection.exec_driver_sql(query, key).one_or_none()
    return None if row is None else codec.load(row)


def _names(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)


def _mark(dialect: str) -> str:
    return "?" if dialect == "sqlite" else "%s"


# --- the projections -------------------------------------------------------------------------------------------------

_ENCODER: Final = msgspec.json.Encoder()
_IN_ORDER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder()


def to_json(value: object) -> str:
    """Return the one text that a value has: keys in order, no spaces."""
    return _IN_ORDER.encode(value).decode()


def from_json(text: str) -> Any:
    """Return the value of a text."""
    return _DECODER.decode(text)


def _dump_grant(grant: Grant) -> tuple[Any, ...]:
    return (
        grant.workload,
        grant.attempt,
        grant.team,
        grant.flavor,
        str(grant.system),
        grant.gpus,
        str(grant.state),
        to_json(dict(grant.placement)),
        grant.user,
        grant.name,
        grant.submitted_ms,
        grant.reserved_ms,
        grant.running_ms,
        grant.ended_ms,
        grant.note,
    )


def _load_grant(row: Row) -> Grant:
    workload, attempt, team, flavor, system, gpus, state, placement, *rest = row
    placed: Mapping[NodeName, int] = from_json(placement)
    return Grant(workload, attempt, team, flavor, System(system), gpus, GrantState(state), placed, *rest)


def _dump_balance(balance: Balance) -> tuple[Any, ...]:
    return (balance.team, balance.flavor, str(balance.system), balance.gpus)


def _load_balance(row: Row) -> Balance:
    team, flavor, system, gpus = row
    return Balance(team, flavor, System(system), gpus)


def _dump_intent(intent: Intent) -> tuple[Any, ...]:
    return (
        intent.id,
        intent.kind,
        intent.workload,
        intent.at_ms,
        to_json(dict(intent.detail)),
        intent.settled_ms,
        intent.outcome,
    )


def _load_intent(row: Row) -> Intent:
    name, kind, workload, at_ms, detail, settled_ms, outcome = row
    return Intent(name, kind, workload, at_ms, from_json(detail), settled_ms, outcome)


def _plain(table: Table) -> Callable[[Any], tuple[Any, ...]]:
    """Return a dump of values whose attributes are the table's columns."""
    getter: Callable[[Any], tuple[Any, ...]] = attrgetter(*(column.name for column in table.columns))
    return getter


GRANTS: Final = Codec(
    schema.grants,
    _dump_grant,
    _load_grant,
    lambda grant: (grant.workload, grant.attempt),
    moves=(
        ("gpus", "state", "placement", "running_ms", "ended_ms", "note"),
        lambda grant: (
            grant.gpus, str(grant.state), to_json(grant.placement), grant.running_ms, grant.ended_ms, grant.note,
        ),
    ),
    guard=(("state", "gpus"), lambda grant: (str(grant.state), grant.gpus)),
)  # fmt: skip
BALANCES: Final = Codec(
    schema.balances,
    _dump_balance,
    _load_balance,
    lambda balance: (balance.team, balance.flavor, str(balance.system)),
    moves=(("gpus",), lambda balance: (balance.gpus,)),
    guard=(("gpus",), lambda balance: (balance.gpus,)),
)
INTENTS: Final = Codec(
    schema.intents,
    _dump_intent,
    _load_intent,
    lambda intent: (intent.id,),
    moves=(("settled_ms", "outcome"), lambda intent: (intent.settled_ms, intent.outcome)),
)
SPANS: Final[Codec[Span]] = Codec(
    schema.spans,
    _plain(schema.spans),
    lambda row: Span(*row),
    lambda span: (span.seq,),
    moves=(("to_ms",), lambda span: (span.to_ms,)),
)
_amounts: Final = tuple(column.name for column in schema.node_capacity.columns if not column.primary_key)
CAPACITY: Final[Codec[CapacityRow]] = Codec(
    schema.node_capacity,
    _plain(schema.node_capacity),
    lambda row: CapacityRow(*row),
    lambda row: (row.node,),
    moves=(_amounts, attrgetter(*_amounts)),
)
EPOCHS: Final[Codec[Epoch]] = Codec(
    schema.epochs,
    _plain(schema.epochs),
    lambda row: Epoch(*row),
    lambda epoch: (epoch.epoch,),
    moves=(("holder", "at_ms"), lambda epoch: (epoch.holder, epoch.at_ms)),
)
