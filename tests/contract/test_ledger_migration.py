"""A ledger that an older bridge wrote opens in this one: with all that it held, on either database."""

import re
import sqlite3
import threading
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from bridge.clock import FakeClock
from bridge.errors import InvalidInputError, StaleLeaderError
from bridge.ledger import database, journal, migration, schema
from bridge.ledger.database import WRITE
from bridge.ledger.journal import SqlLedger
from bridge.workloads.model import System
from tests.contract.ledger_sample import NODE, OTHER, T0, of_flavor, workload
from tests.postgresbox import PostgresBox

FIRST = Path(__file__).parents[1] / "data" / "ledger_schema_1.sql"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    box: PostgresBox = request.getfixturevalue("postgres_box")
    return box.url(f"migrate_{uuid.uuid4().hex[:12]}")


def write_first(url: str) -> None:
    """Write what the bridge of the first schema wrote: its tables by their own migration, its rows as they were."""
    opened = database.connect(url)
    rows = re.findall(r'^INSERT INTO "(?!meta)\w+" VALUES\(.*\);$', FIRST.read_text(), flags=re.MULTILINE)
    rows.sort(key=lambda row: ["entries", "grants", "spans"].index(row.split('"')[1]) if row.split('"')[1] in
              ("entries", "grants", "spans") else 9)  # fmt: skip
    with opened.engine.connect().execution_options(**{WRITE: True}) as connection, connection.begin():
        migration.upgrade(connection, None, "1")
        for row in rows:
            connection.execute(text(row.rstrip(";").replace(":", r"\:")))
    opened.engine.dispose()
    assert len(rows) > 20


def schema_of(url: str) -> dict[str, object]:
    """Return tables, columns, indexes, keys and triggers of a database."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    found = inspect(engine)
    told: dict[str, object] = {}
    for table in sorted(set(found.get_table_names()) - {"alembic_version"}):
        columns = [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)]
        indexes = sorted((i["name"] or "", tuple(i["column_names"]), i["unique"]) for i in found.get_indexes(table))
        keys = sorted(str((k["constrained_columns"], k["referred_table"])) for k in found.get_foreign_keys(table))
        checks = sorted(c["sqltext"] for c in found.get_check_constraints(table))
        told[table] = (columns, found.get_pk_constraint(table)["constrained_columns"], indexes, keys, checks)
    with engine.connect() as connection:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
        if connection.dialect.name != "sqlite":
            query = (
                "SELECT t.tgname, t.tgtype, p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid "
                "WHERE NOT tgisinternal AND tgrelid IN ('entries'::regclass, 'checkpoints'::regclass) ORDER BY 1"
            )
        rows = [tuple(row) for row in connection.execute(text(query))]
        told["triggers"] = [tuple(str(part).replace("IF NOT EXISTS ", "") for part in row) for row in rows]
    engine.dispose()
    return told


def test_a_ledger_of_the_first_schema_opens_and_goes_on(url: str) -> None:
    write_first(url)
    with closing(journal.open_ledger(url, FakeClock(T0))) as ledger:
        assert ledger.verify() == ()
        held = [(grant.workload, grant.attempt, grant.gpus) for grant in ledger.grants()]
        assert held == [("slurm/main/a", 1, 3), ("slurm/main/c", 2, 4)]
        assert [intent.id for intent in ledger.intents()] == ["submit/x/1"]
        ledger.open_epoch(5, "three")
        ledger.release(workload("a").id, 1, at_ms=T0 + 50)
        ledger.void(workload("c").id, 2, at_ms=T0 + 50, note="")
        ledger.reserve(of_flavor(workload("c"), "a100"), {OTHER: 4}, at_ms=T0 + 60)
        ledger.adopt(workload("d", system=System.KUBERNETES), {NODE: 4}, at_ms=T0, note="")
        assert {(row.team, row.system.value): row.gpu_ms for row in ledger.usage(from_ms=T0, to_ms=T0 + 50)} == {
            ("nlp", "kubernetes"): 4 * 9,
            ("vision", "kubernetes"): 4 * 50,
            ("vision", "slurm"): 2 * 5 + 3 * 45,
        }
        assert ledger.verify() == ()
    with closing(journal.open_ledger(url, FakeClock(T0))) as ledger:
        assert [(grant.workload, grant.attempt) for grant in ledger.grants()] == [("pod/d", 1), ("slurm/main/c", 3)]


def test_a_migrated_database_is_the_same_as_a_new_one(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    new = f"sqlite:///{tmp_path / 'new.db'}"
    if url.startswith("postgresql"):
        new = request.getfixturevalue("postgres_box").url(f"new_{uuid.uuid4().hex[:12]}")
    journal.open_ledger(new, FakeClock(T0)).close()
    write_first(url)
    journal.open_ledger(url, FakeClock(T0)).close()
    assert schema_of(url) == schema_of(new)


def test_the_first_migration_makes_what_the_first_bridge_made(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(FIRST.read_text())
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    write_first(url)
    was, now = schema_of(f"sqlite:///{old}"), schema_of(url)
    was.pop("triggers"), now.pop("triggers")  # the same rules, written with and without a WHEN
    assert now == was
    with closing(journal.open_ledger(f"sqlite:///{old}", FakeClock(T0))) as ledger:  # the very file, too
        assert (ledger.verify(), len(ledger.grants())) == ((), 2)


def test_bridges_that_start_at_once_migrate_once(url: str) -> None:
    write_first(url)
    opened: list[SqlLedger | BaseException] = []

    def start() -> None:
        try:
            opened.append(journal.open_ledger(url, FakeClock(T0)))
        except BaseException as error:  # noqa: BLE001  # a thread's failure must fail the test
            opened.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ledgers = [ledger for ledger in opened if isinstance(ledger, SqlLedger)]
    assert len(ledgers) == 4, opened
    for ledger in ledgers:
        assert ledger.verify() == ()
        ledger.close()


def test_a_bridge_whose_tables_were_migrated_under_it_stops_writing(url: str) -> None:
    with closing(journal.open_ledger(url, FakeClock(T0))) as ledger:
        ledger.open_epoch(1, "one")
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as connection:
            connection.execute(text("UPDATE meta SET value = '3' WHERE key = 'schema_version'"))
        engine.dispose()
        with pytest.raises(StaleLeaderError, match="tables are of version 3 now, this bridge writes 2: another bridge"):
            ledger.reserve(workload(), {NODE: 4}, at_ms=T0)
        assert ledger.last_seq() == 1


def test_a_version_that_this_bridge_does_not_know_is_refused_in_one_sentence(url: str) -> None:
    journal.open_ledger(url, FakeClock(T0)).close()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("UPDATE meta SET value = '99' WHERE key = 'schema_version'"))
    engine.dispose()
    with pytest.raises(InvalidInputError, match=f"has schema version 99, this bridge knows {schema.VERSION}: run the"):
        journal.open_ledger(url, FakeClock(T0))
