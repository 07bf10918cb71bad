"""The ledger's file: crashes at each write, two leaders, what the database itself refuses, what is not a ledger."""

import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, event

from bridge.clock import FakeClock
from bridge.errors import BrokenInvariantError, InvalidInputError, StaleLeaderError, UnknownStateError
from bridge.ledger import journal, sqlite
from bridge.ledger.journal import FAULT_SITES, SqlLedger
from bridge.ledger.port import CapacityRow, Intent
from bridge.quota.model import FlavorName
from tests.contract.ledger_sample import NODE, T0, workload

HELD = {NODE: 4}


class CrashError(BaseException):
    """The process died here. Not an Exception, so that nothing on the way handles it."""


class Crash:
    """A fault hook that dies at one site."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.seen: list[str] = []

    def __call__(self, site: str) -> None:
        self.seen.append(site)
        if site == self.site:
            raise CrashError(site)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def opened(path: Path, fault: Callable[[str], None] | None = None) -> SqlLedger:
    return journal.open_ledger(f"sqlite:///{path}", FakeClock(T0), fault)


def everything(ledger: SqlLedger) -> None:
    """Call every verb once. Repeating it from the start is what a restarted bridge does."""
    wanted = workload("a").id
    ledger.open_epoch(1, "one")
    ledger.reserve(workload("a"), HELD, at_ms=T0)
    ledger.run(wanted, 1, gpus=4, placement=HELD, at_ms=T0)
    ledger.adjust(wanted, 1, gpus=2, placement={NODE: 2}, at_ms=T0 + 5)
    if not any(grant.ended_ms for grant in ledger.grants(holding=False) if grant.workload == workload("b").id):
        ledger.adopt(workload("b"), HELD, at_ms=T0, note="")
    ledger.release(workload("b").id, 1, at_ms=T0 + 9)
    if not any(grant.ended_ms for grant in ledger.grants(holding=False) if grant.workload == workload("c").id):
        with ledger.batch():
            ledger.reserve(workload("c"), HELD, at_ms=T0)
            ledger.reserve(workload("d"), HELD, at_ms=T0)
    ledger.void(workload("c").id, 1, at_ms=T0, note="")
    ledger.capacity([CapacityRow(NODE, FlavorName("h100"), 8, 4, 0, 0, 4, 0)], at_ms=T0)
    ledger.intend(Intent("cancel/a", "cancel", wanted, T0, {}))
    ledger.settle("cancel/a", outcome="done", at_ms=T0)
    ledger.note(wanted, "hello", at_ms=T0)


def content(ledger: SqlLedger) -> list[object]:
    """Return all that a ledger tells."""
    assert ledger.verify() == ()
    return [
        ledger.log(limit=1000),
        ledger.grants(holding=False),
        ledger.intents(open_only=False),
        ledger.capacity_rows(),
        ledger.usage(from_ms=0, to_ms=T0 + 100),
    ]


def test_the_list_of_fault_sites_is_complete_and_each_is_reached(path: Path) -> None:
    hook = Crash("never")
    with closing(opened(path, hook)) as ledger:
        everything(ledger)
    assert set(hook.seen) == set(FAULT_SITES)


@pytest.mark.parametrize("site", FAULT_SITES)
def test_killed_at_a_write_the_restarted_ledger_ends_the_same(path: Path, tmp_path: Path, site: str) -> None:
    """Rule 4: what was not committed is absent as a whole, what was is there once, and repeating changes nothing."""
    with closing(opened(tmp_path / "calm.db")) as calm:
        everything(calm)
        expected = content(calm)
    with closing(opened(path, Crash(site))) as dying, pytest.raises(CrashError):
        everything(dying)
    with closing(opened(path)) as restarted:
        assert restarted.verify() == ()
        everything(restarted)
        assert content(restarted) == expected


def test_before_the_commit_nothing_is_there_and_after_it_everything(path: Path) -> None:
    for when, there in (("before", 0), ("after", 2)):
        with closing(opened(path, Crash(f"ledger.batch.{when}-commit"))) as ledger:
            ledger.open_epoch(1, "one")

            def batch(ledger: SqlLedger = ledger) -> None:
                with ledger.batch():
                    ledger.reserve(workload("a"), HELD, at_ms=T0)
                    ledger.reserve(workload("b"), HELD, at_ms=T0)

            with pytest.raises(CrashError):
                batch()
        with closing(opened(path)) as ledger:
            assert len(ledger.grants()) == there


DYING_PROCESS = """
import os, sys
from bridge.clock import FakeClock
from bridge.ledger import journal
from tests.contract.ledger_sample import NODE, T0, workload

def die(site):
    if site == sys.argv[2]:
        os._exit(9)

ledger = journal.open_ledger(sys.argv[1], FakeClock(T0), die)
ledger.open_epoch(1, "one")
with ledger.batch():
    for key in "abc":
        ledger.reserve(workload(key), {NODE: 4}, at_ms=T0)
"""


@pytest.mark.parametrize(("when", "there"), [("before", 0), ("after", 3)])
def test_a_process_that_really_dies_leaves_a_whole_batch_or_none(path: Path, when: str, there: int) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DYING_PROCESS, f"sqlite:///{path}", f"ledger.batch.{when}-commit"],
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert died.returncode == 9
    with closing(opened(path)) as ledger:
        assert (len(ledger.grants()), ledger.verify()) == (there, ())


# --- two leaders ---------------------------------------------------------------------------------------------


def test_a_replaced_leader_writes_nothing(path: Path) -> None:
    """Rule 3: the epoch is compared in the database."""
    with closing(opened(path)) as old, closing(opened(path)) as new:
        old.open_epoch(1, "old")
        old.reserve(workload("a"), HELD, at_ms=T0)
        new.open_epoch(2, "new")
        before = content(new)
        with pytest.raises(StaleLeaderError, match="run: epoch 1 of old is over, new leads in epoch 2"):
            old.run(workload("a").id, 1, gpus=4, placement=HELD, at_ms=T0)
        with pytest.raises(StaleLeaderError), old.batch():
            pytest.fail("the batch of a replaced leader began")
        with pytest.raises(StaleLeaderError):
            old.open_epoch(1, "old")
        assert content(new) == before
        assert len(old.grants()) == 1  # reading is free


def test_a_holder_that_takes_anothers_epoch_is_refused(path: Path) -> None:
    with closing(opened(path)) as first, closing(opened(path)) as second:
        first.open_epoch(5, "first")
        with pytest.raises(StaleLeaderError, match="epoch 5 of second is not above epoch 5 of first"):
            second.open_epoch(5, "second")


def test_nothing_is_written_before_an_epoch_is_open(path: Path) -> None:
    with closing(opened(path)) as ledger:
        with pytest.raises(StaleLeaderError, match="no epoch is open"):
            ledger.reserve(workload(), HELD, at_ms=T0)
        assert ledger.last_seq() == 0


def test_a_database_replaced_under_its_leader_is_noticed(path: Path) -> None:
    with closing(opened(path)) as ledger:
        ledger.open_epoch(4, "one")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE epochs SET epoch = 2")
            connection.commit()
        with pytest.raises(BrokenInvariantError, match="opened epoch 4, the ledger's newest is 2"):
            ledger.reserve(workload(), HELD, at_ms=T0)


def test_two_connections_that_write_at_once_wait_for_each_other(path: Path) -> None:
    """A lock taken only at the first write would fail here: the head that was read is no longer the newest."""
    failures: list[BaseException] = []

    def work(name: str, ledger: SqlLedger) -> None:
        try:
            for index in range(25):
                ledger.reserve(workload(f"{name}{index}"), HELD, at_ms=T0)
        except BaseException as error:  # noqa: BLE001  # a thread's failure must fail the test
            failures.append(error)

    with closing(opened(path)) as one, closing(opened(path)) as other:
        one.open_epoch(1, "one")
        other.open_epoch(1, "one")
        threads = [threading.Thread(target=work, args=each) for each in (("a", one), ("b", other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert (one.last_seq(), one.verify()) == (51, ())


# --- what the database itself refuses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE entries SET gpus = 1", "an entry is never changed"),
        ("DELETE FROM entries", "an entry is never deleted"),
        (
            "INSERT INTO entries VALUES (9, 'x', 0, 1, 'note', NULL, NULL, NULL, NULL, NULL, 0, '{}', '')",
            "numbered without a gap",
        ),
        (
            "INSERT OR REPLACE INTO entries VALUES (1, 'x', 0, 1, 'note', NULL, NULL, NULL, NULL, NULL, 0, '{}', '')",
            "numbered without a gap",
        ),
        (
            "INSERT INTO entries VALUES (3, 'epoch/1', 0, 1, 'note', NULL, NULL, NULL, NULL, NULL, 0, '{}', '')",
            "UNIQUE constraint failed",
        ),
        ("UPDATE balances SET gpus = -1", "CHECK constraint failed"),
        ("UPDATE grants SET gpus = 0", "CHECK constraint failed"),
        ("UPDATE grants SET state = 'mine'", "CHECK constraint failed"),
        (
            "INSERT INTO grants VALUES ('slurm/main/a', 2, 't', 'f', 's', 1, 'running', '{}', '', '', 0, 0, 0, 0, '')",
            "UNIQUE constraint failed: grants.workload",
        ),
        ("INSERT INTO node_capacity VALUES ('n', 'h100', 8, 4, 4, 1, 0, 0, '')", "CHECK constraint failed"),
    ],
)
def test_the_database_refuses_what_breaks_a_rule(path: Path, statement: str, why: str) -> None:
    with closing(opened(path)) as ledger:
        ledger.open_epoch(1, "one")
        ledger.reserve(workload(), HELD, at_ms=T0)
        with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError, match=re.escape(why)):
            connection.execute(statement)
        assert ledger.verify() == ()


def test_a_rule_that_the_database_keeps_is_told_as_a_broken_invariant(path: Path) -> None:
    with closing(opened(path)) as ledger:
        ledger.open_epoch(1, "one")
        ledger.reserve(workload(), HELD, at_ms=T0)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE balances SET gpus = 1")
            connection.commit()
        with pytest.raises(BrokenInvariantError, match="balances: 1 of 1 rows to change are not as this ledger left"):
            ledger.void(workload().id, 1, at_ms=T0, note="")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM grants")
            connection.commit()
        with pytest.raises(BrokenInvariantError, match="grants: 1 of 1 rows to change are not as this ledger left"):
            ledger.void(workload().id, 1, at_ms=T0, note="")
    with closing(opened(path)) as restarted:
        restarted.open_epoch(1, "one")
        with pytest.raises(BrokenInvariantError, match=r"UNIQUE constraint failed: entries\.transfer"):
            restarted.reserve(workload(), HELD, at_ms=T0)


def test_a_full_disk_is_told_leaves_nothing_half_and_is_got_over(path: Path) -> None:
    """SQLite's own limit of pages gives the error that a full disk gives."""
    with closing(opened(path)) as ledger:
        ledger.open_epoch(1, "one")
        ledger.reserve(workload("before"), HELD, at_ms=T0)
        engine, limit = ledger._store._database.engine, [0]

        def bound(connection: Connection) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {limit[0] or pages}")

        event.listen(engine, "begin", bound)

        def fill() -> None:
            with ledger.batch():
                for index in range(500):
                    ledger.reserve(workload(f"w{index}"), HELD, at_ms=T0)

        for _ in range(2):
            with pytest.raises(
                UnknownStateError, match=r"ledger batch: database or disk is full; free space where the"
            ):
                fill()
            assert [grant.workload for grant in ledger.grants()] == [workload("before").id]
        limit[0] = 1 << 20
        fill()
        assert (len(ledger.grants()), ledger.verify()) == (501, ())


# --- what is not a ledger ------------------------------------------------------------------------------------


def test_a_newer_schema_is_refused(path: Path) -> None:
    opened(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = '7'")
        connection.commit()
    with pytest.raises(
        InvalidInputError, match="has schema version 7, this bridge knows 2: run the bridge that wrote it"
    ):
        opened(path)


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE entries (note TEXT)")
        connection.commit()
    with pytest.raises(InvalidInputError, match="has tables entries but no schema version"):
        opened(path)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("not a database, just a long enough piece of text to be read as a header" * 20)
    with pytest.raises(InvalidInputError, match="file is not a database"):
        opened(path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ledger.db", "ledger_url is not a database URL; give sqlite:////"),
        ("mysql://me:secret@db/ledger", r"ledger_url='mysql://me:\*\*\*@db/ledger': the ledger is kept in SQLite or"),
        ("sqlite:////nowhere/at/all/ledger.db", "unable to open database file"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_one_sentence(url: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        journal.open_ledger(url, FakeClock())


def test_a_writer_that_cannot_get_the_lock_says_so_and_has_written_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 50)
    with closing(opened(path)) as ledger:
        ledger.open_epoch(1, "one")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(UnknownStateError, match="ledger reserve: database is locked"):
                ledger.reserve(workload(), HELD, at_ms=T0)
            assert ledger.grants() == []  # reading goes on
            other.execute("ROLLBACK")
        assert ledger.reserve(workload(), HELD, at_ms=T0).attempt == 1


@pytest.mark.parametrize(("epoch", "holder"), [(0, "one"), (-1, "one"), (1, "")])
def test_an_epoch_without_number_or_holder_is_refused(path: Path, epoch: int, holder: str) -> None:
    with closing(opened(path)) as ledger, pytest.raises(InvalidInputError, match=f"epoch={epoch} holder='{holder}'"):
        ledger.open_epoch(epoch, holder)
