"""Transactions. One writer at a time; readers see whole commits only; a commit is on disk when it returns.

A transaction is drafted on the newest entry and carries its digest. That makes it safe to repeat: whatever happened to
a connection, a look at the newest entry tells whether the draft was committed (its own last digest stands there), can
be written again (the entry it was drafted on stands there), or is void (any other). Looking waits for the lock, so
that a commit which was under way when its connection broke has ended either way.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Transaction
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from bridge.errors import (
    BrokenInvariantError,
    InvalidInputError,
    OutcomeUnknownError,
    StaleLeaderError,
    UnknownStateError,
)
from bridge.ledger import database, fencing, migration, schema
from bridge.ledger.database import WRITE, Database
from bridge.ledger.draft import Draft
from bridge.ledger.model import Epoch, Head
from bridge.ledger.warm import Shelf

Fault = Callable[[str], None]
Check = Callable[[str, Epoch, Epoch | None], None]

TRIES: Final = 3
"""How often one transaction is begun or written again when the connection is lost, before the caller is told."""


_STANDING: Final = """
    SELECT e.seq, e.digest, p.epoch, p.holder, p.at_ms, (SELECT MAX(seq) FROM checkpoints),
      (SELECT value FROM meta WHERE key = 'schema_version')
    FROM (SELECT 1 AS one) AS o
    LEFT JOIN (SELECT seq, digest FROM entries ORDER BY seq DESC LIMIT 1) AS e ON 1 = 1
    LEFT JOIN (SELECT epoch, holder, at_ms FROM epochs ORDER BY epoch DESC LIMIT 1) AS p ON 1 = 1
"""


class Store:
    """Read and write transactions on one database."""

    def __init__(self, opened: Database, fault: Fault) -> None:
        self._database = opened
        self._fault = fault
        self._lock = threading.RLock()
        self._batch: Draft | None = None  # the lock's holder owns these two
        self._writing: Connection | None = None
        self.shelf = Shelf()

    def close(self) -> None:
        """Close every connection."""
        self._database.engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Read one consistent snapshot of what is committed."""
        if not self._database.shared:
            with self._reading() as connection:
                yield connection
            return
        with self._lock:
            if self._writing is not None:  # this thread's own draft is open: it reaches the tables only at its end
                yield self._writing
                return
            with self._reading() as connection:
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
    def exclusively(self, what: str) -> Iterator[Connection]:
        """Write past the journal, as archiving does: no leader meanwhile, nothing kept when the block raises."""
        with self._lock, self._translated(what), self._engine_connection() as connection:
            with connection.begin():
                self._database.lock(connection)
                yield connection
            self.shelf.drop()

    # --- one transaction -----------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, verb: str, leader: Epoch, check: Check) -> Iterator[Draft]:
        connection, transaction, standing = self._begun(verb, leader, check)
        again = False
        try:
            self._writing = connection
            with self._translated(verb):
                warm = self.shelf.at(connection, standing.head)
                draft = Draft(connection, leader.epoch, warm, standing.archived)
            with self._translated(verb):
                yield draft
            if draft.pending:
                again = not self._flushed(verb, connection, draft)
                self._fault(f"ledger.{verb}.before-commit")
            if not again:
                again = not self._committed(verb, transaction)
        except BaseException:
            _abandon(connection, transaction)
            raise
        finally:
            self._writing = None
        if again:
            _abandon(connection, transaction)
            if draft.pending:
                self._settle(verb, leader, check, draft)
        else:
            connection.close()
        if draft.pending:
            self._learn(draft)
            self._fault(f"ledger.{verb}.after-commit")

    def _begun(self, verb: str, leader: Epoch, check: Check) -> tuple[Connection, Transaction, "Standing"]:
        """Become the writer. Nothing has been decided yet, so what passes is simply tried again."""

        def begin() -> tuple[Connection, Transaction, Standing]:
            connection = self._engine_connection()
            transaction = None
            try:
                transaction = connection.begin()
                self._database.lock(connection, takeover=check is fencing.check_take_over)
                standing = where_it_stands(connection)
                _check_version(verb, standing)
                check(verb, leader, standing.epoch)
            except BaseException:
                _abandon(connection, transaction)
                raise
            return connection, transaction, standing

        with self._translated(verb):
            return self._retrying()(begin)

    def _flushed(self, verb: str, connection: Connection, draft: Draft) -> bool:
        """Write a draft; False when it has to be written again on another connection."""
        try:
            draft.flush(connection)
        except DBAPIError as error:
            if isinstance(error, IntegrityError) or not self._database.trouble(error).passes:
                with self._translated(verb):
                    raise
            return False
        return True

    def _committed(self, verb: str, transaction: Transaction) -> bool:
        """Commit; False when the answer was lost, or is no."""
        try:
            transaction.commit()
        except IntegrityError:
            with self._translated(verb):
                raise
        except SQLAlchemyError:
            return False
        return True

    def _settle(self, verb: str, leader: Epoch, check: Check, draft: Draft) -> None:
        """Find out whether a draft was committed; when it was not, write it again, or say that it is not written."""
        looked = False

        def settle() -> None:
            nonlocal looked
            with self._engine_connection() as connection, connection.begin():
                self._database.lock(connection)
                standing = where_it_stands(connection)
                if standing.head == draft.head:
                    return
                looked = True
                _check_version(verb, standing)
                check(verb, leader, standing.epoch)
                if standing.head != draft.base:
                    raise UnknownStateError(
                        f"ledger {verb}: entry {standing.head.seq} of another writer came first; nothing of it was kept"
                    )
                draft.flush(connection)
                looked = False  # this commit's answer can be lost, too

        try:
            self._retrying()(settle)
        except SQLAlchemyError as error:
            told = self._told(error)
            if looked:
                raise UnknownStateError(f"ledger {verb}: {told}; nothing of it was written") from error
            raise OutcomeUnknownError(
                f"ledger {verb}: {told}; whether it was written cannot be seen until the database answers"
            ) from error

    def _learn(self, draft: Draft) -> None:
        self.shelf.apply(
            draft.base,
            draft.head,
            grants=draft.grants.changed.values(),
            spans=draft.spans.changed.values(),
            balances=draft.balances.changed,
            capacity=draft.capacity.changed,
            intents=draft.intents.changed.values(),
        )

    # --- connections ---------------------------------------------------------------------------------------------

    def _engine_connection(self) -> Connection:
        return self._database.engine.connect().execution_options(**{WRITE: True})

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._translated("read"), self._database.engine.connect() as connection, connection.begin():
            yield connection

    def _retrying(self) -> Retrying:
        return Retrying(
            stop=stop_after_attempt(TRIES),
            wait=wait_exponential(multiplier=0.05, max=1.0),
            retry=retry_if_exception(self._passes),
            reraise=True,
        )

    def _passes(self, error: BaseException) -> bool:
        if isinstance(error, IntegrityError):
            return False
        return isinstance(error, DBAPIError) and self._database.trouble(error).passes

    def _told(self, error: SQLAlchemyError) -> str:
        return self._database.trouble(error).sentence if isinstance(error, DBAPIError) else str(error)

    @contextmanager
    def _translated(self, what: str, kind: type[Exception] = UnknownStateError) -> Iterator[None]:
        """Tell the database's faults in our words: a rule that it refused to break, or an answer that did not come."""
        try:
            yield
        except IntegrityError as error:
            raise BrokenInvariantError(f"ledger {what}: the database refused it: {error.orig}") from error
        except SQLAlchemyError as error:
            raise kind(f"ledger {what}: {self._told(error)}") from error


def open_store(url: str, fault: Fault | None, *, migrate: bool = True) -> Store:
    """Connect, and make sure of the schema; `migrate=False`: as it is, for a tool beside a running bridge."""
    opened = database.connect(url)
    if not migrate and opened.missing:
        raise InvalidInputError(f"there is no ledger at {database.shown(url)}; give the ledger_url of the bridge")
    store = Store(opened, fault or _no_fault)
    try:
        with (
            store._translated(f"open of {database.shown(url)}", InvalidInputError),  # noqa: SLF001  # its maker
            opened.engine.connect().execution_options(**{WRITE: True}) as connection,
            connection.begin(),
        ):
            if not migration.is_current(connection):
                opened.lock_schema(connection)
                migration.ensure(connection, migrate=migrate)
    except BaseException:
        opened.engine.dispose()
        raise
    return store


@dataclass(frozen=True, slots=True)
class Standing:
    """What a writer looks at first: the newest entry, the newest term, the last archived entry, the schema."""

    head: Head
    epoch: Epoch | None
    archived: int
    version: str | None


def where_it_stands(connection: Connection) -> Standing:
    """Look, in one statement."""
    seq, digest, epoch, holder, at_ms, archived, version = connection.exec_driver_sql(_STANDING).one()
    return Standing(
        Head() if seq is None else Head(seq, digest),
        None if epoch is None else Epoch(epoch, holder, at_ms),
        archived or 0,
        version,
    )


def newest_head(connection: Connection) -> Head:
    """Return the newest entry."""
    return where_it_stands(connection).head


def _check_version(verb: str, standing: Standing) -> None:
    """Raise when a newer bridge has migrated the tables meanwhile."""
    if standing.version != str(schema.VERSION):
        raise StaleLeaderError(
            f"{verb}: the ledger's tables are of version {standing.version} now, this bridge writes {schema.VERSION}: "
            "another bridge migrated them and takes over"
        )


def _no_fault(_site: str) -> None:
    """Do nothing: the hook of a production process."""


def _abandon(connection: Connection, transaction: Transaction | None) -> None:
    """Leave nothing behind of a transaction, on a connection that may be broken."""
    try:
        if transaction is not None:
            transaction.rollback()
        connection.close()
    except SQLAlchemyError:
        connection.invalidate()
        connection.close()
