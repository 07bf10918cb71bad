"""The ledger's tables. `entries` is the truth; every other table is a projection that verify can recompute.

What the database itself refuses, whoever asks: changing or deleting an entry, an entry whose number is not the
next one, a transfer written twice, a negative balance, a second holding attempt of a workload, a node whose five
columns do not sum to its total.
"""

from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    event,
    insert,
    inspect,
    select,
    text,
)

from bridge.errors import InvalidInputError

VERSION: Final = 1

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

spans = Table(
    "spans",
    metadata,
    Column("seq", _SEQ, ForeignKey("entries.seq"), primary_key=True, autoincrement=False),
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

TRIGGERS: Final = {
    "entries_no_update": ("BEFORE UPDATE ON entries", "an entry is never changed"),
    "entries_no_delete": ("BEFORE DELETE ON entries", "an entry is never deleted"),
    "entries_in_order": (
        "BEFORE INSERT ON entries WHEN NEW.seq <> (SELECT COALESCE(MAX(seq), 0) + 1 FROM entries)",
        "entries are numbered without a gap",
    ),
}

for _name, (_when, _why) in TRIGGERS.items():
    _trigger = DDL(f"CREATE TRIGGER {_name} {_when} BEGIN SELECT RAISE(ABORT, '{_why}'); END")  # type: ignore[no-untyped-call]
    event.listen(entries, "after_create", _trigger.execute_if(dialect="sqlite"))


def ensure(connection: Connection) -> None:
    """Create the tables in an empty database; refuse one that this program does not know how to write.

    Runs inside the caller's write transaction. Steps from an older version to VERSION will run here.
    """
    found = set(inspect(connection).get_table_names())
    if meta.name not in found:
        if found & set(metadata.tables):
            raise InvalidInputError(
                f"the ledger's database has tables {', '.join(sorted(found))} but no schema version: it is not one of "
                "the bridge's; give another ledger_url"
            )
        metadata.create_all(connection)
        connection.execute(insert(meta).values(key="schema_version", value=str(VERSION)))
        return
    version = connection.scalar(select(meta.c.value).where(meta.c.key == "schema_version"))
    if version != str(VERSION):
        raise InvalidInputError(
            f"the ledger's database has schema version {version}, this bridge knows {VERSION}: "
            "run the bridge that wrote it, or a newer one"
        )
