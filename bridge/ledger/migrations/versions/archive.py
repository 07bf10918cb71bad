"""Version 2: closed history can go to an archive; checkpoints carry forward what was open and what was used."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

_MS = sa.BigInteger()
_SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_NEXT = "COALESCE((SELECT MAX(seq) FROM entries), (SELECT MAX(seq) FROM checkpoints), 0) + 1"
_REFUSALS = {
    "entries_no_update": ("UPDATE", "entries", "1 = 1", "an entry is never changed"),
    "entries_no_delete": (
        "DELETE",
        "entries",
        "OLD.seq > (SELECT COALESCE(MAX(seq), 0) FROM checkpoints)",
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


def upgrade() -> None:
    """Add the checkpoints, free the spans of their first entry, let archived entries go."""
    _tables()
    op.create_index("grants_by_end", "grants", ["ended_ms"])
    if op.get_bind().dialect.name == "sqlite":
        _spans_without_entry()
    else:
        op.drop_constraint("spans_seq_fkey", "spans", type_="foreignkey")
    for name, (operation, table, when, why) in _REFUSALS.items():
        _refuse(name, operation, table, when, why)
    if op.get_bind().dialect.name != "sqlite":
        for table in ("entries", "checkpoints"):
            _refuse_truncate(f"{table}_no_truncate", table)
    op.execute("UPDATE meta SET value = '2' WHERE key = 'schema_version'")


def downgrade() -> None:
    """Not possible: restore a backup of before."""
    raise NotImplementedError("a checkpoint has no place in version 1; restore a backup that was made before")


def _tables() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("seq", _SEQ, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("at_ms", _MS, nullable=False),
        sa.Column("archive", sa.Text, nullable=False),
        sa.Column("manifest", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Text, nullable=False),
        sa.Column("usage", sa.Text, nullable=False),
    )
    op.create_table(
        "carried_attempts",
        sa.Column("workload", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
    )
    op.create_table(
        "carried_usage",
        sa.Column("checkpoint", _SEQ, primary_key=True, autoincrement=False),
        sa.Column("day_ms", _MS, primary_key=True, autoincrement=False),
        sa.Column("team", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("system", sa.Text, primary_key=True),
        sa.Column("flavor", sa.Text, primary_key=True),
        sa.Column("gpu_ms", _MS, nullable=False),
        sa.Column("from_ms", _MS, nullable=False),
        sa.Column("to_ms", _MS, nullable=False),
    )


def _spans_without_entry() -> None:
    """SQLite cannot drop a constraint: the table is made again and its rows copied."""
    op.create_table(
        "spans_new",
        sa.Column("seq", _SEQ, primary_key=True, autoincrement=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("from_ms", _MS, nullable=False),
        sa.Column("to_ms", _MS),
        sa.Column("gpus", sa.Integer, sa.CheckConstraint("gpus > 0"), nullable=False),
        sa.ForeignKeyConstraint(["workload", "attempt"], ["grants.workload", "grants.attempt"]),
        sa.CheckConstraint("to_ms IS NULL OR to_ms >= from_ms"),
    )
    op.execute(
        "INSERT INTO spans_new (seq, workload, attempt, from_ms, to_ms, gpus) "
        "SELECT seq, workload, attempt, from_ms, to_ms, gpus FROM spans"
    )
    op.drop_table("spans")
    op.rename_table("spans_new", "spans")
    op.create_index("spans_by_end", "spans", ["to_ms"])
    op.create_index("spans_by_grant", "spans", ["workload", "attempt"])


def _refuse(name: str, operation: str, table: str, when: str, why: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"DROP TRIGGER IF EXISTS {name}")
        raising = f"BEGIN SELECT RAISE(ABORT, '{why}'); END"
        op.execute(f"CREATE TRIGGER {name} BEFORE {operation} ON {table} WHEN {when} {raising}")
        return
    back = "OLD" if operation == "DELETE" else "NEW"
    op.execute(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {when} THEN "
        f"RAISE EXCEPTION '{why}' USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN {back}; END $$"
    )
    op.execute(f"CREATE OR REPLACE TRIGGER {name} BEFORE {operation} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")


def _refuse_truncate(name: str, table: str) -> None:
    op.execute(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"RAISE EXCEPTION '{table} are never emptied' USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    op.execute(
        f"CREATE OR REPLACE TRIGGER {name} BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
    )
