"""The ledger's tables. `entries` is the truth; every other table is a projection that verify can recompute.

What the database itself refuses, whoever asks: changing an entry, deleting one that no checkpoint covers, an entry
whose number is not the next one, a transfer written twice, a negative balance, a second holding attempt of a workload,
a node whose five columns do not sum to its total, a checkpoint that is not the digest of an entry.

This is the newest version, made in an empty database at once; bridge.ledger.migration leads an older one here.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

VERSION: Final = 2

_MS: Final = BigInteger()
_SEQ: Final = BigInteger().with_variant(Integer, "sqlite")  # SQLite keys a table by rowid only for exactly INTEGER

metadata = MetaData()

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

entries = Table(
    "entries",
    metadata,
    Column("seq", _SEQ, primary_key=True, autoincrement=False),
    Column("transfer", Text, nullable=False, unique=True),
    Column("at_ms", _MS, nullable=False),
    Column("epoch", _MS, nullable=False),
    Column("step", Text, nullable=False),
    Column("workload", Text),
    Column("attempt", Integer),
    Column("team", Text),
    Column("flavor", Text),
    Column("system", Text),
    Column("gpus", Integer, nullable=False),
    Column("detail", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Index("entries_by_workload", "workload", "seq"),
)

grants = Table(
    "grants",
    metadata,
    Column("workload", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("team", Text, nullable=False),
    Column("flavor", Text, nullable=False),
    Column("system", Text, nullable=False),
    Column("gpus", Integer, CheckConstraint("gpus > 0"), nullable=False),
    Column("state", Text, CheckConstraint("state IN ('reserved', 'running', 'released', 'voided')"), nullable=False),
    Column("placement", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("submitted_ms", _MS, nullable=False),
    Column("reserved_ms", _MS, nullable=False),
    Column("running_ms", _MS),
    Column("ended_ms", _MS),
    Column("note", Text, nullable=False),
    CheckConstraint("ended_ms IS NULL OR running_ms IS NULL OR ended_ms >= running_ms"),
)
_HOLDING: Final = text("state IN ('reserved', 'running')")
Index(
    "grants_one_holds",
    grants.c.workload,
    unique=True,
    sqlite_where=_HOLDING,
    postgresql_where=_HOLDING,
)
Index("grants_by_end", grants.c.ended_ms)

spans = Table(
    "spans",
    metadata,
    # The entry that began it. No foreign key: a long run outlives the archiving of its first entry.
    Column("seq", _SEQ, primary_key=True, autoincrement=False),
    Column("workload", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("from_ms", _MS, nullable=False),
    Column("to_ms", _MS),
    Column("gpus", Integer, CheckConstraint("gpus > 0"), nullable=False),
    ForeignKeyConstraint(["workload", "attempt"], ["grants.workload", "grants.attempt"]),
    CheckConstraint("to_ms IS NULL OR to_ms >= from_ms"),
    Index("spans_by_end", "to_ms"),
    Index("spans_by_grant", "workload", "attempt"),
)

balances = Table(
    "balances",
    metadata,
    Column("team", Text, primary_key=True),
    Column("flavor", Text, primary_key=True),
    Column("system", Text, primary_key=True),
    Column("gpus", Integer, CheckConstraint("gpus >= 0"), nullable=False),
)

node_capacity = Table(
    "node_capacity",
    metadata,
    Column("node", Text, primary_key=True),
    Column("flavor", Text, nullable=False),
    Column("total", Integer, CheckConstraint("total >= 0"), nullable=False),
    Column("worker", Integer, CheckConstraint("worker >= 0"), nullable=False),
    Column("pods", Integer, CheckConstraint("pods >= 0"), nullable=False),
    Column("unmanaged", Integer, CheckConstraint("unmanaged >= 0"), nullable=False),
    Column("idle", Integer, CheckConstraint("idle >= 0"), nullable=False),
    Column("unavailable", Integer, CheckConstraint("unavailable >= 0"), nullable=False),
    Column("cause", Text, nullable=False),
    CheckConstraint("worker + pods + unmanaged + idle + unavailable = total"),
)

intents = Table(
    "intents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("at_ms", _MS, nullable=False),
    Column("detail", Text, nullable=False),
    Column("settled_ms", _MS),
    Column("outcome", Text, nullable=False),
    Index("intents_by_settled", "settled_ms"),
)

epochs = Table(
    "epochs",
    metadata,
    Column("epoch", _MS, primary_key=True, autoincrement=False),
    Column("holder", Text, nullable=False),
    Column("at_ms", _MS, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("seq", _SEQ, primary_key=True, autoincrement=False),  # the last entry that the archive holds
    Column("digest", Text, nullable=False),  # of that entry: the next one is chained to it
    Column("at_ms", _MS, nullable=False),
    Column("archive", Text, nullable=False),  # the manifest's file name
    Column("manifest", Text, nullable=False),  # sha256 of the manifest
    Column("state", Text, nullable=False),  # what was open after that entry: the replay starts from it
    Column("attempts", Text, nullable=False),  # sha256 of carried_attempts as it was left
    Column("usage", Text, nullable=False),  # sha256 of what this checkpoint carried into carried_usage
)

carried_attempts = Table(
    "carried_attempts",
    metadata,
    Column("workload", Text, primary_key=True),
    Column("attempt", Integer, nullable=False),  # the newest one that is archived
)

carried_usage = Table(
    "carried_usage",
    metadata,
    Column("checkpoint", _SEQ, primary_key=True, autoincrement=False),
    Column("day_ms", _MS, primary_key=True, autoincrement=False),  # 00:00 UTC of the day
    Column("team", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("system", Text, primary_key=True),
    Column("flavor", Text, primary_key=True),
    Column("gpu_ms", _MS, nullable=False),
    Column("from_ms", _MS, nullable=False),  # first and last moment that the sum is of
    Column("to_ms", _MS, nullable=False),
)

_LAST: Final = "(SELECT COALESCE(MAX(seq), 0) FROM {})"
_NEXT: Final = "COALESCE((SELECT MAX(seq) FROM entries), (SELECT MAX(seq) FROM checkpoints), 0) + 1"

TRIGGERS: Final = {
    "entries_no_update": ("UPDATE", "entries", "1 = 1", "an entry is never changed"),
    "entries_no_delete": (
        "DELETE",
        "entries",
        f"OLD.seq > {_LAST.format('checkpoints')}",
        "an entry is never deleted before it is archived",
    ),
    "entries_in_order": ("INSERT", "entries", f"NEW.seq <> {_NEXT}", "entries are numbered without a gap"),
    "checkpoints_no_update": ("UPDATE", "checkpoints", "1 = 1", "a checkpoint is never changed"),
    "checkpoints_no_delete": ("DELETE", "checkpoints", "1 = 1", "a checkpoint is never deleted"),
    "checkpoints_at_entry": (
        "INSERT",
        "checkpoints",
        "NOT EXISTS (SELECT 1 FROM entries WHERE seq = NEW.seq AND digest = NEW.digest)",
        "a checkpoint is the digest of an entry",
    ),
}
"""Name: (operation, table, when it is refused, why)."""

NO_TRUNCATE: Final = {f"{table}_no_truncate": table for table in ("entries", "checkpoints")}
"""PostgreSQL only: SQLite has no TRUNCATE."""


def create(connection: Connection) -> None:
    """Make every table and trigger in an empty database."""
    metadata.create_all(connection)
    create_triggers(connection)


def create_triggers(connection: Connection) -> None:
    """Make every trigger that is not there."""
    for statement in trigger_statements(connection.dialect.name):
        connection.exec_driver_sql(statement)


def drop_triggers(connection: Connection) -> None:
    """Take every trigger away, inside a transaction that makes them again."""
    for name, (_, table, _, _) in TRIGGERS.items():
        on = "" if connection.dialect.name == "sqlite" else f" ON {table}"
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}{on}")


def trigger_statements(dialect: str) -> list[str]:
    """Return the statements that make the triggers in one database's language."""
    if dialect == "sqlite":
        return [
            f"CREATE TRIGGER IF NOT EXISTS {name} BEFORE {operation} ON {table} WHEN {when} "
            f"BEGIN SELECT RAISE(ABORT, '{why}'); END"
            for name, (operation, table, when, why) in TRIGGERS.items()
        ]
    statements = []
    for name, (operation, table, when, why) in TRIGGERS.items():
        body = f"IF {when} THEN {_raise(why)} END IF; RETURN {'OLD' if operation == 'DELETE' else 'NEW'};"
        statements += _on_postgresql(name, f"BEFORE {operation} ON {table} FOR EACH ROW", body)
    for name, table in NO_TRUNCATE.items():
        body = _raise(f"{table} are never emptied")
        statements += _on_postgresql(name, f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT", body)
    return statements


def _raise(why: str) -> str:
    return f"RAISE EXCEPTION '{why}' USING ERRCODE = 'integrity_constraint_violation';"


def _on_postgresql(name: str, when: str, body: str) -> list[str]:
    function = f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
    return [function, f"CREATE OR REPLACE TRIGGER {name} {when} EXECUTE FUNCTION {name}()"]


def trigger_names(connection: Connection) -> set[str]:
    """Return the triggers that a database must have."""
    return set(TRIGGERS) | (set() if connection.dialect.name == "sqlite" else set(NO_TRUNCATE))
