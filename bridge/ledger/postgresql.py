"""PostgreSQL, for two bridges on one ledger.

A writer first locks one row, so writers come one after the other and each of its statements (READ COMMITTED) sees all
that was committed before: the serial order that SERIALIZABLE would give, with a wait where that has failures to
repeat. The lock is the schema version's row, so a migration waits for writers, and a writer never meets tables that
it does not know. A reader has one snapshot (REPEATABLE READ).

A leader that hangs inside a transaction (SIGSTOP, a frozen machine) would keep the lock. Two things bound that: the
server ends a session that is idle inside a transaction; and who takes over ends the bridge's session that stands in
its way, for one frozen between the statements of a pipeline does not count as idle. Nothing is lost by that: the
session's bridge writes its draft again, if it still leads.
"""

import os
from typing import Any, Final

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, OperationalError

from bridge.errors import InvalidInputError
from bridge.ledger.database import WRITE, Trouble

LOCK_TIMEOUT_MS: Final = 10_000
STATEMENT_TIMEOUT_MS: Final = 60_000
IDLE_TIMEOUT_MS: Final = 5_000
TAKEOVER_WAIT_MS: Final = 1_500
"""How long a new leader waits for the old one's transaction before it ends that session."""

APPLICATION: Final = "slurm-bridge"
CONNECT_TIMEOUT_S: Final = 5
LOST_AFTER_MS: Final = 10_000
"""How long sent data may stay unacknowledged before the connection counts as lost."""

_MIGRATION_LOCK: Final = 0x5B41D6E  # any number that nobody else takes; only bridges of one database must agree

_LOCK: Final = "SELECT value FROM meta WHERE key = 'schema_version' FOR UPDATE"
_END_HOLDER: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = %s AND usename = current_user AND pid <> pg_backend_pid()
      AND xact_start < clock_timestamp() - %s * interval '1 millisecond' AND wait_event_type IS DISTINCT FROM 'Lock'
      AND pid IN (SELECT pid FROM pg_locks WHERE granted AND relation = 'meta'::regclass AND mode = 'RowShareLock')
"""
_LOCKED: Final = "55P03"
_LOST: Final = ("08", "57P01", "57P02", "57P03", "25P03")  # connection exceptions, shutdowns, ended while idle
_AGAIN: Final = ("40001", "40P01")  # serialisation failure, deadlock


class Postgresql:
    """One PostgreSQL database, through psycopg."""

    shared = False
    missing = False

    def __init__(self, url: URL) -> None:
        self._timeouts = {
            "lock_timeout": _setting("LOCK_TIMEOUT_MS", LOCK_TIMEOUT_MS),
            "statement_timeout": _setting("STATEMENT_TIMEOUT_MS", STATEMENT_TIMEOUT_MS),
            "idle_in_transaction_session_timeout": _setting("IDLE_TIMEOUT_MS", IDLE_TIMEOUT_MS),
        }
        defaults = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": LOST_AFTER_MS,
            "target_session_attrs": "read-write",  # of several hosts the one that leads; never a standby
            "application_name": APPLICATION,
        }
        self.engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={key: value for key, value in defaults.items() if key not in url.query},
            pool_pre_ping=True,
            pool_size=5,
            pool_timeout=LOST_AFTER_MS / 1000,
            isolation_level="READ COMMITTED",
        )
        event.listen(self.engine, "connect", self._configure)
        event.listen(self.engine, "begin", _begin)

    def lock(self, connection: Connection, *, takeover: bool = False) -> None:
        """Wait for the row that stands for the right to write; in a takeover not for a bridge that does not move."""
        if takeover:
            try:
                with connection.begin_nested():
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {TAKEOVER_WAIT_MS}")
                    connection.exec_driver_sql(_LOCK)
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) != _LOCKED:
                    raise
                connection.exec_driver_sql(_END_HOLDER, (APPLICATION, TAKEOVER_WAIT_MS))
            else:
                return
        connection.exec_driver_sql(_LOCK)

    def lock_schema(self, connection: Connection) -> None:
        """Wait for every other starting bridge; then for the writers, if there is anything to write yet."""
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        if connection.exec_driver_sql("SELECT to_regclass('meta')").scalar() is not None:
            self.lock(connection)

    def trouble(self, error: DBAPIError) -> Trouble:
        """Tell a fault of PostgreSQL in words."""
        state = getattr(error.orig, "sqlstate", None) or ""
        said = " ".join(str(error.orig).split("\n")[0].split())
        if state == _LOCKED:
            waited_s = self._timeouts["lock_timeout"] / 1000
            return Trouble(
                f"another session has held the ledger's write lock for {waited_s:g} s (lock_timeout); find it with "
                "pg_blocking_pids() and pg_stat_activity; the bridge goes on by itself when it ends"
            )
        if state == "57014":
            took_s = self._timeouts["statement_timeout"] / 1000
            return Trouble(f"the database took longer than {took_s:g} s (statement_timeout): {said}")
        if state in ("53100", "58030") or "No space left on device" in said:
            return Trouble(f"the database's disk is full or failing: {said}; mend it, the bridge goes on by itself")
        if state == "25006":
            return Trouble(f"the database is read-only, a standby or being moved: {said}; the bridge goes on by itself")
        if state in _AGAIN:
            return Trouble(said, passes=True)
        lost = error.connection_invalidated or state.startswith(_LOST) or not state
        return Trouble(f"the connection to the database is lost or refused: {said}" if lost else said, passes=lost)

    def _configure(self, connection: Any, _record: object) -> None:
        """Set what the server keeps per session; a commit that answers before it is on disk is not asked for."""
        cursor = connection.cursor()
        try:
            for name, value_ms in self._timeouts.items():
                cursor.execute(f"SET {name} = {value_ms}")
            cursor.execute("SELECT current_setting('synchronous_commit')")
            if cursor.fetchone() == ("off",):
                cursor.execute("SET synchronous_commit = on")
        finally:
            cursor.close()
        connection.commit()


def _begin(connection: Connection) -> None:
    """Give a reader one snapshot. The first statement of a transaction sets what it is."""
    if not connection.get_execution_options().get(WRITE):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def _setting(name: str, default: int) -> int:
    """Return a bound, or what SBRIDGE_LEDGER_<name> says instead."""
    given = os.environ.get(f"SBRIDGE_LEDGER_{name}", str(default))
    if not given.isdecimal() or not 1 <= int(given) <= 3_600_000:  # noqa: PLR2004  # an hour
        raise InvalidInputError(
            f"SBRIDGE_LEDGER_{name}={given!r}: give whole milliseconds from 1 to 3600000; {default} when absent"
        )
    return int(given)
