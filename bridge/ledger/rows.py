"""Between values and rows. One codec per table, so that each column is named once on the way in and once out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import msgspec
from sqlalchemy import Table

from bridge.ledger import schema
from bridge.ledger.model import Balance, Epoch, Head, Span
from bridge.ledger.port import CapacityRow, Entry, Intent
from bridge.workloads.model import Grant, GrantState, System

Value = TypeVar("Value")
Row = Mapping[Any, Any]
"""A row by column name, as the database returns it."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[Value]):
    """How values of one kind are kept in one table."""

    table: Table
    dump: Callable[[Value], dict[str, Any]]
    load: Callable[[Row], Value]

    def key(self, value: Value) -> tuple[Any, ...]:
        """Return the primary key of a value; an enum equals its text, so it finds what was stored."""
        return tuple(getattr(value, column.name) for column in self.table.primary_key)


def dump_entry(entry: Entry, transfer: str, head: Head) -> dict[str, Any]:
    """Return an entry's row, chained to the entry before it."""
    row = {
        "seq": entry.seq,
        "transfer": transfer,
        "at_ms": entry.at_ms,
        "epoch": entry.epoch,
        "step": str(entry.step),
        "workload": entry.workload,
        "attempt": entry.attempt,
        "team": entry.team,
        "flavor": entry.flavor,
        "system": None if entry.system is None else entry.system.value,
        "gpus": entry.gpus,
        "detail": _json(entry.detail),
    }
    return {**row, "digest": digest(row, head)}


def load_entry(row: Row) -> Entry:
    """Return the entry of a row."""
    columns = dict(row)
    del columns["transfer"], columns["digest"]
    columns["system"] = None if columns["system"] is None else System(columns["system"])
    columns["detail"] = msgspec.json.decode(columns["detail"])
    return Entry(**columns)


def digest(row: Row, head: Head) -> str:
    """Chain a row to the entry before it: none can change without every later digest changing too."""
    content = [head.digest, *(row[column.name] for column in schema.entries.columns if column.name != "digest")]
    return sha256(msgspec.json.encode(content)).hexdigest()


def _columns(table: Table) -> Callable[[object], dict[str, Any]]:
    """Return a shallow dump of a value whose attributes are the table's columns."""
    names = tuple(column.name for column in table.columns)
    return lambda value: {name: getattr(value, name) for name in names}


_grant_columns: Final = _columns(schema.grants)
_balance_columns: Final = _columns(schema.balances)
_intent_columns: Final = _columns(schema.intents)


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _dump_grant(grant: Grant) -> dict[str, Any]:
    return {
        **_grant_columns(grant),
        "system": grant.system.value,
        "state": grant.state.value,
        "placement": _json(dict(grant.placement)),
    }


def _load_grant(row: Row) -> Grant:
    return Grant(
        **{
            **row,
            "system": System(row["system"]),
            "state": GrantState(row["state"]),
            "placement": msgspec.json.decode(row["placement"]),
        }
    )


def _dump_balance(balance: Balance) -> dict[str, Any]:
    return {**_balance_columns(balance), "system": balance.system.value}


def _load_balance(row: Row) -> Balance:
    return Balance(**{**row, "system": System(row["system"])})


def _dump_intent(intent: Intent) -> dict[str, Any]:
    return {**_intent_columns(intent), "detail": _json(dict(intent.detail))}


def _load_intent(row: Row) -> Intent:
    return Intent(**{**row, "detail": msgspec.json.decode(row["detail"])})


GRANTS: Final = Codec(schema.grants, _dump_grant, _load_grant)
BALANCES: Final = Codec(schema.balances, _dump_balance, _load_balance)
INTENTS: Final = Codec(schema.intents, _dump_intent, _load_intent)
SPANS: Final[Codec[Span]] = Codec(schema.spans, _columns(schema.spans), lambda row: Span(**row))
CAPACITY: Final[Codec[CapacityRow]] = Codec(
    schema.node_capacity, _columns(schema.node_capacity), lambda row: CapacityRow(**row)
)
EPOCHS: Final[Codec[Epoch]] = Codec(schema.epochs, _columns(schema.epochs), lambda row: Epoch(**row))
