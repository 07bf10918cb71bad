"""The rows of one table as a transaction will leave them: read once each, written together."""

from functools import cache
from typing import Any, Generic

from sqlalchemy import Connection, Select, Table, Update, and_, bindparam, insert, select, update

from bridge.ledger.rows import Codec, Value


class Projection(Generic[Value]):
    """The rows of one table that this transaction has read or changed, by primary key."""

    def __init__(self, connection: Connection, codec: Codec[Value]) -> None:
        self._connection = connection
        self._codec = codec
        self._stored: dict[tuple[Any, ...], Value | None] = {}
        self._changed: dict[tuple[Any, ...], Value] = {}

    def get(self, *key: Any) -> Value | None:
        """Return the row as this transaction will leave it."""
        if key in self._changed:
            return self._changed[key]
        if key not in self._stored:
            found = self._connection.execute(
                _by_key(self._codec.table), _key_columns(self._codec.table, key)
            ).mappings()
            row = found.one_or_none()
            self._stored[key] = None if row is None else self._codec.load(row)
        return self._stored[key]

    def put(self, value: Value) -> None:
        """Add or change a row."""
        key = self._codec.key(value)
        self.get(*key)  # whether it exists decides between INSERT and UPDATE
        self._changed[key] = value

    def add(self, value: Value) -> None:
        """Add a row that is known to be new."""
        key = self._codec.key(value)
        self._stored.setdefault(key, None)
        self._changed[key] = value

    def flush(self) -> None:
        """Write what changed. Updates go first: an ended attempt makes way for the next one."""
        updates, inserts = [], []
        for key, value in self._changed.items():
            row = self._codec.dump(value)
            if self._stored[key] is None:
                inserts.append(row)
            else:
                updates.append({**row, **_key_columns(self._codec.table, key)})
        if updates:
            self._connection.execute(_change_by_key(self._codec.table), updates)
        if inserts:
            self._connection.execute(insert(self._codec.table), inserts)


@cache
def _by_key(table: Table) -> Select[Any]:
    return select(table).where(and_(*(column == bindparam(f"key_{column.name}") for column in table.primary_key)))


@cache
def _change_by_key(table: Table) -> Update:
    where = and_(*(column == bindparam(f"key_{column.name}") for column in table.primary_key))
    return update(table).where(where).values({column.name: bindparam(column.name) for column in table.columns})


def _key_columns(table: Table, key: tuple[Any, ...]) -> dict[str, Any]:
    return {f"key_{column.name}": part for column, part in zip(table.primary_key, key, strict=True)}
