"""The database: connections and transactions. One writer at a time; readers see whole commits only.

Writers queue on a lock in this process and, between processes, on BEGIN IMMEDIATE with a bounded wait. A commit is
on disk when it returns (WAL with synchronous=FULL).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from bridge.errors import (
    BrokenInvariantError,
    InvalidInputError,
    OutcomeUnknownError,
    StaleLeaderError,
    UnknownStateError,
)
from bridge.ledger import fencing, rows, schema
from bridge.ledger.draft import Draft
from bridge.ledger.model import Epoch, Head

Fault = Callable[[str], None]
Check = Callable[[str, Epoch, Epoch | None], None]

BUSY_TIMEOUT_MS: Final = 10_000
"""The longest wait for another process's write transaction."""

_WRITE: Final = "ledger_write"


class Store:
    """Read and write transactions on one database."""

    def __init__(self, engine: Engine, fault: Fault) -> None:
        self._engine = engine
        self._fault = fault
        self._lock = threading.RLock()
        self._shared = isinstance(engine.pool, StaticPool)  # in memory: one connection for all threads
        self._batch: Draft | None = None  # the lock's holder owns these two
        self._writing: Connection | None = None

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Read one consistent snapshot of what is committed."""
        if not self._shared:
            with _translated("read"), self._engine.connect() as connection, connection.begin():
                yield connection
            return
        with self._lock, _translated("read"):
            if self._writing is not None:  # this thread's own draft is open: it reaches the tables only at its end
                yield self._writing
                return
            with self._engine.connect() as connection, connection.begin():
                yield connection

    @contextmanager
    def write(self, verb: str, leader: Epoch | None, check: Check = fencing.check_term) -> Iterator[Draft]:
        """Write one transaction as `leader`, or join the batch that this thread has open.

        Commits at the end of the block; an exception out of it leaves nothing written.
        """
        with self._lock:
            if leader is None:
                raise StaleLeaderError(f"{verb}: no epoch is open; take over with open_epoch before the first write")
            if self._batch is None:
                with self._transaction(verb, leader, check) as draft:
                    yield draft
            elif self._batch.epoch != leader.epoch:
                raise StaleLeaderError(f"{verb}: epoch {leader.epoch} in a batch of epoch {self._batch.epoch}")
            else:
                yield self._batch

    @contextmanager
    def batch(self, leader: Epoch | None) -> Iterator[None]:
        """Make every write of this thread inside the block one transaction: all of them, or none."""
        with self.write("batch", leader) as draft:
            outer, self._batch = self._batch, draft
            try:
                yield
            finally:
                self._batch = outer

    @contextmanager
    def _transaction(self, verb: str, leader: Epoch, check: Check) -> Iterator[Draft]:
        with _translated(verb), self._engine.connect() as connection:
            connection.execution_options(**{_WRITE: True})
            transaction = connection.begin()
            self._writing = connection
            try:
                check(verb, leader, _newest_epoch(connection))
                draft = Draft(connection, leader.epoch, _head(connection))
                yield draft
                wrote = draft.flush()
                if wrote:
                    self._fault(f"ledger.{verb}.before-commit")
            except BaseException:
                transaction.rollback()
                raise
            finally:
                self._writing = None
            with _translated(verb, OutcomeUnknownError):
                transaction.commit()
        if wrote:
            self._fault(f"ledger.{verb}.after-commit")


def open_store(url: str, fault: Fault | None) -> Store:
    """Connect, and make sure of the schema."""
    engine = _engine(_parsed(url))
    try:
        with _translated(f"open of {url}", InvalidInputError), engine.connect() as connection:
            connection.execution_options(**{_WRITE: True})
            with connection.begin():
                schema.ensure(connection)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, fault or _no_fault)


def _no_fault(_site: str) -> None:
    """Do nothing: the hook of a production process."""


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidInputError(
            f"ledger_url={url!r} is not a database URL; give e.g. sqlite:////path/ledger.db"
        ) from error
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        shown = parsed.render_as_string(hide_password=True)
        raise InvalidInputError(f"ledger_url={shown!r}: only SQLite is supported; give e.g. sqlite:////path/ledger.db")
    return parsed


def _engine(url: URL) -> Engine:
    in_memory = url.database in (None, "", ":memory:")
    if in_memory:
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(url, pool_timeout=BUSY_TIMEOUT_MS / 1000)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


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
    finally:
        cursor.close()


def _begin(connection: Connection) -> None:
    """Take the write lock at once where a write follows: a lock taken later can fail after decisions were made."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITE) else "BEGIN")


def _newest_epoch(connection: Connection) -> Epoch | None:
    newest = select(schema.epochs).order_by(schema.epochs.c.epoch.desc()).limit(1)
    row = connection.execute(newest).mappings().one_or_none()
    return None if row is None else rows.EPOCHS.load(row)


def _head(connection: Connection) -> Head:
    column = schema.entries.c
    newest = connection.execute(select(column.seq, column.digest).order_by(column.seq.desc()).limit(1)).one_or_none()
    return Head() if newest is None else Head(*newest)


@contextmanager
def _translated(what: str, kind: type[Exception] = UnknownStateError) -> Iterator[None]:
    """Tell the database's faults in our words: a rule that it refused to break, or an answer that did not come."""
    try:
        yield
    except IntegrityError as error:
        raise BrokenInvariantError(f"ledger {what}: the database refused it: {error.orig}") from error
    except SQLAlchemyError as error:
        raise kind(f"ledger {what}: {getattr(error, 'orig', None) or error}") from error
