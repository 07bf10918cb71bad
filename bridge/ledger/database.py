"""One way to two databases: what a store needs to know of SQLite and PostgreSQL, and the words for their faults."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from bridge.errors import InvalidInputError

WRITE: Final = "ledger_write"
"""Execution option of a connection that will write."""

EXAMPLES: Final = "sqlite:////path/ledger.db or postgresql://user:password@host/database"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a database fault means."""

    sentence: str
    passes: bool = False  # the same again can succeed at once: a lost connection, a deadlock, a serialisation failure


class Database(Protocol):
    """One open database."""

    @property
    def engine(self) -> Engine:
        """Its connections."""
        ...

    @property
    def shared(self) -> bool:
        """True when all threads use one connection (in memory)."""
        ...

    @property
    def missing(self) -> bool:
        """True when it is known, without connecting, that nothing is there."""
        ...

    def lock(self, connection: Connection, *, takeover: bool = False) -> None:
        """Become the only writer until the transaction ends; the wait is bounded, in a takeover shorter."""
        ...

    def lock_schema(self, connection: Connection) -> None:
        """Become the only one that makes or migrates tables until the transaction ends."""
        ...

    def trouble(self, error: DBAPIError) -> Trouble:
        """Tell a fault of the driver in words."""
        ...


def connect(url: str) -> Database:
    """Return the database of a URL. Nothing is asked of it yet."""
    parsed = _parsed(url)
    openers: dict[str, Callable[[URL], Database]] = {"sqlite": _sqlite, "postgresql": _postgresql}
    opener = openers.get(parsed.get_backend_name())
    if opener is None or parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg"):
        shown = parsed.render_as_string(hide_password=True)
        raise InvalidInputError(f"ledger_url={shown!r}: the ledger is kept in SQLite or PostgreSQL; give {EXAMPLES}")
    return opener(parsed)


def shown(url: str) -> str:
    """Return a URL as it may be logged: without its password."""
    return _parsed(url).render_as_string(hide_password=True)


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:  # the text may hold a password, so it is not repeated
        raise InvalidInputError(f"ledger_url is not a database URL; give {EXAMPLES}") from error


def _sqlite(url: URL) -> Database:
    from bridge.ledger.sqlite import Sqlite

    return Sqlite(url)


def _postgresql(url: URL) -> Database:
    from bridge.ledger.postgresql import Postgresql

    return Postgresql(url)
