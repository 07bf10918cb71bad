"""Version 1: journal, projections, epochs."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

_MS = sa.BigInteger()
_SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_REFUSALS = {
    "entries_no_update": ("UPDATE", "1 = 1", "an entry is never changed"),
    "entries_no_delete": ("DELETE", "1 = 1", "an entry is never deleted"),
    "entries_in_order": (
        "INSERT",
        "NEW.seq <> (SELECT COALESCE(MAX(seq), 0) + 1 FROM entries)",
        "entries are numbered without a gap",
    ),
}


def upgrade() -> None:
    """Make the tables of the first version in an empty database."""
    op.create_table("meta", sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False))
    _journal()
    _grants()
    _others()
    for name, (operation, when, why) in _REFUSALS.items():
        _refuse(name, operation, when, why)
    op.execute("INSERT INTO meta (key, value) VALUES ('schema_version', '1')")


def downgrade() -> None:
    """Not possible: the ledger is kept."""
    raise NotImplementedError("the first version has none before it")


def _journal() -> None:
    op.create_table(
        "entries",
        sa.Column("seq", _SEQ, primary_key=True, autoincrement=False),
        sa.Column("transfer", sa.Text, nullable=False, unique=True),
        sa.Column("at_ms", _MS, nullable=False),
        sa.Column("epoch", _MS, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("workload", sa.Text),
        sa.Column("attempt", sa.Integer),
        sa.Column("team", sa.Text),
        sa.Column("flavor", sa.Text),
        sa.Column("system", sa.Text),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
    )
    op.create_index("entries_by_workload", "entries", ["workload", "seq"])


def _grants() -> None:
    op.create_table(
        "grants",
        sa.Column("workload", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("team", sa.Text, nullable=False),
        sa.Column("flavor", sa.Text, nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("gpus", sa.Integer, sa.CheckConstraint("gpus > 0"), nullable=False),
        sa.Column(
            "state",
            sa.Text,
            sa.CheckConstraint("state IN ('reserved', 'running', 'released', 'voided')"),
            nullable=False,
        ),
        sa.Column("placement", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("submitted_ms", _MS, nullable=False),
        sa.Column("reserved_ms", _MS, nullable=False),
        sa.Column("running_ms", _MS),
        sa.Column("ended_ms", _MS),
        sa.Column("note", sa.Text, nullable=False),
        sa.CheckConstraint("ended_ms IS NULL OR running_ms IS NULL OR ended_ms >= running_ms"),
    )
    holding = sa.text("state IN ('reserved', 'running')")
    op.create_index(
        "grants_one_holds", "grants", ["workload"], unique=True, sqlite_where=holding, postgresql_where=holding
    )
    op.create_table(
        "spans",
        sa.Column("seq", _SEQ, sa.ForeignKey("entries.seq"), primary_key=True, autoincrement=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("from_ms", _MS, nullable=False),
        sa.Column("to_ms", _MS),
        sa.Column("gpus", sa.Integer, sa.CheckConstraint("gpus > 0"), nullable=False),
        sa.ForeignKeyConstraint(["workload", "attempt"], ["grants.workload", "grants.attempt"]),
        sa.CheckConstraint("to_ms IS NULL OR to_ms >= from_ms"),
    )
    op.create_index("spans_by_end", "spans", ["to_ms"])
    op.create_index("spans_by_grant", "spans", ["workload", "attempt"])


def _others() -> None:
    op.create_table(
        "balances",
        sa.Column("team", sa.Text, primary_key=True),
        sa.Column("flavor", sa.Text, primary_key=True),
        sa.Column("system", sa.Text, primary_key=True),
        sa.Column("gpus", sa.Integer, sa.CheckConstraint("gpus >= 0"), nullable=False),
    )
    amounts = ("total", "worker", "pods", "unmanaged", "idle", "unavailable")
    op.create_table(
        "node_capacity",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("flavor", sa.Text, nullable=False),
        *(sa.Column(name, sa.Integer, sa.CheckConstraint(f"{name} >= 0"), nullable=False) for name in amounts),
        sa.Column("cause", sa.Text, nullable=False),
        sa.CheckConstraint("worker + pods + unmanaged + idle + unavailable = total"),
    )
    op.create_table(
        "intents",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("at_ms", _MS, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("settled_ms", _MS),
        sa.Column("outcome", sa.Text, nullable=False),
    )
    op.create_index("intents_by_settled", "intents", ["settled_ms"])
    op.create_table(
        "epochs",
        sa.Column("epoch", _MS, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("at_ms", _MS, nullable=False),
    )


def _refuse(name: str, operation: str, when: str, why: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        raising = f"BEGIN SELECT RAISE(ABORT, '{why}'); END"
        op.execute(sa.text(f"CREATE TRIGGER {name} BEFORE {operation} ON entries WHEN {when} {raising}"))
        return
    back = "OLD" if operation == "DELETE" else "NEW"
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {when} THEN RAISE EXCEPTION "
        f"'{why}' USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN {back}; END $$"
    )
    op.execute(f"CREATE TRIGGER {name} BEFORE {operation} ON entries FOR EACH ROW EXECUTE FUNCTION {name}()")
