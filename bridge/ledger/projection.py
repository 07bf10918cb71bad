"""The rows of one table as a transaction will leave them: read once each, written together."""

from collections.abc import Mapping
from typing import Any, Generic

from sqlalchemy import Connection

from bridge.errors import BrokenInvariantError
from bridge.ledger import rows
from bridge.ledger.rows import Codec, Value

Key = tuple[Any, ...]


class Projection(Generic[Value]):
    """The rows of one table that this transaction has read or changed, by primary key.

    `known` are rows that need not be read; when it is `whole`, a row that is not among them does not exist.
    """

    def __init__(
        self, connection: Connection, codec: Codec[Value], known: Mapping[Key, Value], *, whole: bool = False
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._known = known
        self._whole = whole
        self._stored: dict[Key, Value | None] = {}
        self.changed: dict[Key, Value] = {}

    def get(self, *key: Any) -> Value | None:
        """Return the row as this transaction will leave it."""
        found = self.changed.get(key)
        return found if found is not None else self._before(key)

    def put(self, value: Value) -> None:
        """Add or change a row."""
        key = self._codec.key(value)
        self._before(key)  # whether it exists decides between INSERT and UPDATE
        self.changed[key] = value

    def add(self, value: Value) -> None:
        """Add a row that is known to be new."""
        key = self._codec.key(value)
        self._stored.setdefault(key, None)
        self.changed[key] = value

    def replace(self, before: Value, after: Value) -> None:
        """Change a row that was read elsewhere in this transaction."""
        self._stored.setdefault(self._codec.key(before), before)
        self.changed[self._codec.key(after)] = after

    def flush(self, connection: Connection) -> None:
        """Write what changed. Updates go first: an ended attempt makes way for the next one.

        A row that is no longer as it was read was changed past the ledger, and nothing of the transaction is kept.
        """
        table, dump = self._codec.table, self._codec.dump
        (moves, moved), (guard, guarded) = self._codec.moves, self._codec.guard
        updates, inserts = [], []
        for key, value in self.changed.items():
            before = self._stored[key]
            if before is None:
                inserts.append(dump(value))
            else:
                updates.append((*moved(value), *key, *guarded(before)))
        dialect = connection.dialect.name
        if updates:
            done = connection.exec_driver_sql(rows.change(table, moves, guard, dialect), updates)
            if done.rowcount != len(updates):
                raise BrokenInvariantError(
                    f"{table.name}: {len(updates) - done.rowcount} of {len(updates)} rows to change are not as this "
                    "ledger left them: something else wrote there; run the ledger's verify"
                )
        if inserts:
            connection.exec_driver_sql(rows.insertion(table, dialect), inserts)

    def _before(self, key: Key) -> Value | None:
        if key in self._stored:
            return self._stored[key]
        found = self._known.get(key)
        if found is None and not self._whole:
            found = rows.by_key(self._connection, self._codec, key)
        self._stored[key] = found
        return found
