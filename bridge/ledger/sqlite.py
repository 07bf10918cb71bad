"""SQLite, the embedded default: one file, WAL, every commit on disk when it returns (synchronous=FULL).

Writers queue on BEGIN IMMEDIATE with a bounded wait; readers never wait for them.
"""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from bridge.errors import InvalidInputError
from bridge.ledger.database import WRITE, Trouble

BUSY_TIMEOUT_MS: Final = 10_000
"""The longest wait for another process's write transaction."""

_CACHE_KIB: Final = 32_768
_WAL_BYTES: Final = 64 * 2**20  # the log is cut back to this after a checkpoint


class Sqlite:
    """One SQLite file, or one database in memory."""

    def __init__(self, url: URL) -> None:
        self.shared = url.database in (None, "", ":memory:")
        if self.shared:
            self.engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
        else:
            self.engine = create_engine(url, pool_timeout=BUSY_TIMEOUT_MS / 1000)
        event.listen(self.engine, "connect", _configure)
        event.listen(self.engine, "begin", _begin)

    @property
    def missing(self) -> bool:
        """Return whether the file is not there; connecting would make it."""
        return not self.shared and not Path(str(self.engine.url.database)).exists()

    def lock(self, _connection: Connection, *, takeover: bool = False) -> None:
        """Nothing to do: BEGIN IMMEDIATE has the lock."""

    def lock_schema(self, _connection: Connection) -> None:
        """Nothing to do: BEGIN IMMEDIATE has the lock."""

    def trouble(self, error: DBAPIError) -> Trouble:
        """Tell a fault of SQLite in words."""
        text = str(error.orig)
        if "disk is full" in text:
            return Trouble(f"{text}; free space where the ledger's file is, the bridge goes on by itself")
        if "is locked" in text:
            return Trouble(
                f"{text}: another process has been writing for {BUSY_TIMEOUT_MS / 1000:g} s; look for an open sqlite3 "
                "shell, the bridge goes on by itself when it is closed"
            )
        return Trouble(text)


def _configure(connection: Any, _record: object) -> None:
    """Set what SQLite keeps per connection. The driver's own idea of when to BEGIN is switched off."""
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        (mode,) = cursor.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode not in ("wal", "memory"):
            raise InvalidInputError(
                f"the ledger's file system does not support SQLite's WAL (journal_mode={mode}); put it on a local disk"
            )
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA recursive_triggers = ON")  # else INSERT OR REPLACE deletes past the delete trigger
        cursor.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        cursor.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    finally:
        cursor.close()


def _begin(connection: Connection) -> None:
    """Take the write lock at once where a write follows: a lock taken later can fail after decisions were made."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(WRITE) else "BEGIN")
