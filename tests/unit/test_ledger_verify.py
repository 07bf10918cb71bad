"""verify finds what was changed by hand, in every table, and tells it with numbers. Rules 1, 4, 7 and 19."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bridge.clock import FakeClock
from bridge.ledger import journal
from bridge.ledger.port import CapacityRow, Intent
from bridge.quota.model import FlavorName
from tests.contract.ledger_sample import NODE, OTHER, T0, workload


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """Return a ledger file with something in every table, known to add up."""
    path = tmp_path / "ledger.db"
    ledger = journal.open_ledger(f"sqlite:///{path}", FakeClock(T0))
    ledger.open_epoch(3, "one")
    ledger.reserve(workload("a"), {NODE: 4}, at_ms=T0)
    ledger.run(workload("a").id, 1, gpus=2, placement={NODE: 2}, at_ms=T0)
    ledger.adjust(workload("a").id, 1, gpus=3, placement={NODE: 3}, at_ms=T0 + 5)
    ledger.adopt(workload("b"), {OTHER: 4}, at_ms=T0, note="found")
    ledger.release(workload("b").id, 1, at_ms=T0 + 9)
    ledger.capacity([CapacityRow(NODE, FlavorName("h100"), 8, 4, 0, 0, 4, 0)], at_ms=T0)
    ledger.intend(Intent("cancel/a", "cancel", workload("a").id, T0, {"by": "alice"}))
    ledger.settle("cancel/a", outcome="done", at_ms=T0)
    ledger.note(workload("a").id, "hello", at_ms=T0)
    assert ledger.verify() == ()
    ledger.close()
    yield path
    assert problems(path), "the tampering was not found"


def tamper(path: Path, *statements: str, journal_too: bool = False) -> None:
    """Run SQL past the ledger. `journal_too`: as somebody who also takes the triggers away and puts them back."""
    with closing(sqlite3.connect(path)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        connection.execute("PRAGMA ignore_check_constraints = ON")
        if journal_too:
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, f"changed nothing: {statement}"
        if journal_too:
            for _, sql in triggers:
                connection.execute(sql)
        connection.commit()


def problems(path: Path) -> list[str]:
    """Return what verify says about a file."""
    with closing(journal.open_ledger(f"sqlite:///{path}", FakeClock(T0))) as ledger:
        return [problem.text for problem in ledger.verify()]


TABLES = [
    ("UPDATE balances SET gpus = 7", "balances vision/h100/slurm: gpus is 7, the entries say 3"),
    ("DELETE FROM balances", "balances vision/h100/slurm: the entries make a row that the table lacks"),
    (
        "INSERT INTO balances VALUES ('nlp', 'h100', 'slurm', 5)",
        "balances nlp/h100/slurm: the table has a row that no entry made",
    ),
    ("UPDATE grants SET gpus = 1 WHERE workload LIKE '%a'", "grants slurm/main/a/1: gpus is 1, the entries say 3"),
    (
        "UPDATE grants SET state = 'released' WHERE workload LIKE '%a'",
        "grants slurm/main/a/1: state is released, the entries say running",
    ),
    ("UPDATE grants SET user = 'bob' WHERE attempt = 1", "grants slurm/main/b/1: user is bob, the entries say alice"),
    ("UPDATE grants SET system = 'mars' WHERE workload LIKE '%a'", "grants slurm/main/a/1: cannot be read: ValueError"),
    (
        "UPDATE grants SET placement = '{\"gpu-1\":8}' WHERE workload LIKE '%a'",
        'grants slurm/main/a/1: placement is {"gpu-1":8}, the entries say {"gpu-1":3}',
    ),
    (
        "DELETE FROM grants WHERE workload LIKE '%b'",
        "grants slurm/main/b/1: the entries make a row that the table lacks",
    ),
    ("UPDATE spans SET to_ms = to_ms + 1 WHERE to_ms IS NOT NULL", f"to_ms is {T0 + 6}, the entries say {T0 + 5}"),
    ("UPDATE spans SET gpus = 8 WHERE to_ms IS NULL", "spans 4: gpus is 8, the entries say 3"),
    ("DELETE FROM spans WHERE seq = 3", "spans 3: the entries make a row that the table lacks"),
    ("UPDATE node_capacity SET idle = 5", "node_capacity gpu-1: idle is 5, the entries say 4"),
    ("UPDATE intents SET outcome = 'job 9'", "intents cancel/a: outcome is job 9, the entries say done"),
    ("UPDATE intents SET settled_ms = NULL", f"intents cancel/a: settled_ms is None, the entries say {T0}"),
    ("UPDATE epochs SET holder = 'two'", "epochs 3: holder is two, the entries say one"),
    ("UPDATE epochs SET epoch = 4", "epochs 4: the table has a row that no entry made"),
]


@pytest.mark.parametrize(("statement", "sentence"), TABLES, ids=[statement for statement, _ in TABLES])
def test_a_projection_changed_by_hand_is_found(database: Path, statement: str, sentence: str) -> None:
    tamper(database, statement)
    assert any(sentence in problem for problem in problems(database)), problems(database)


ENTRIES = [
    ("UPDATE entries SET gpus = 5 WHERE seq = 2", "entry 2 does not match its digest"),
    ("UPDATE entries SET gpus = -9 WHERE seq = 5", "entry 5 takes the balance of vision/h100/slurm to -6"),
    ("UPDATE entries SET gpus = -9 WHERE seq = 3", "entry 3 leaves -5 GPUs to slurm/main/a attempt 1, which holds 4"),
    (
        "UPDATE entries SET gpus = -3 WHERE seq = 6",
        "entry 6 gives back 3 GPUs of slurm/main/b attempt 1, which holds 4",
    ),
    ("UPDATE entries SET detail = '{\"text\":\"bye\"}' WHERE step = 'note'", "entry 10 does not match its digest"),
    ("UPDATE entries SET detail = '{' WHERE seq = 3", "entry 3 cannot be read: DecodeError"),
    ("UPDATE entries SET detail = '{}' WHERE seq = 2", "entry 2 cannot be read: KeyError: 'pla"),
    ("UPDATE entries SET epoch = 2 WHERE seq = 6", "entry 6 was written in epoch 2, after epoch 3 had begun"),
    ("UPDATE entries SET step = 'void' WHERE seq = 6", "entry 6 is a void of slurm/main/b attempt 1, which is running"),
    ("UPDATE entries SET step = 'gift' WHERE seq = 6", "entry 6 has the unknown step 'gift'"),
    (
        "UPDATE entries SET team = 'nlp' WHERE seq = 3",
        "entry 3 charges nlp/h100/slurm, the grant is of vision/h100/slurm",
    ),
    ("UPDATE entries SET attempt = 2 WHERE seq = 6", "entry 6 is a release of slurm/main/b attempt 2, which was never"),
    ("UPDATE entries SET at_ms = at_ms - 10 WHERE seq = 6", f"entry 6 ends at {T0 - 1} ms what began at {T0} ms"),
    (
        "UPDATE entries SET workload = 'slurm/main/c' WHERE seq = 5",
        "entry 6 is a release of slurm/main/b attempt 1, which",
    ),
    ("UPDATE entries SET attempt = 2 WHERE seq = 5", "entry 5 grants attempt 2 of slurm/main/b after attempt 0"),
    (
        "UPDATE entries SET workload = 'slurm/main/a', attempt = 2 WHERE seq = 5",
        "entry 5 grants attempt 2 of slurm/main/a while attempt 1 is running",
    ),
    (
        "UPDATE entries SET team = NULL WHERE seq = 5",
        "entry 5 is an adopt without workload, attempt, team, flavor or sys",
    ),
    ("UPDATE entries SET workload = NULL WHERE seq = 8", "entry 8 is an intent of no workload"),
    ("UPDATE entries SET step = 'settle' WHERE seq = 8", "entry 8 settles 'cancel/a', which is not open"),
    ("DELETE FROM entries WHERE seq = 5", "entry 6 follows entry 4: 1 are missing"),
    ("UPDATE entries SET detail = replace(detail, '\"idle\":4', '\"idle\":5') WHERE seq = 7", "entry 7 puts 9 GPUs of"),
]


@pytest.mark.parametrize(("statement", "sentence"), ENTRIES, ids=[statement for statement, _ in ENTRIES])
def test_an_entry_changed_past_the_triggers_is_found(database: Path, statement: str, sentence: str) -> None:
    tamper(database, statement, journal_too=True)
    assert any(sentence in problem for problem in problems(database)), problems(database)


def test_a_journal_written_around_and_its_projections_too_is_still_found(database: Path) -> None:
    """Entry and balance changed together agree with each other; the chain of digests tells."""
    tamper(
        database,
        "UPDATE entries SET team = 'nlp' WHERE workload LIKE '%b'",
        "UPDATE grants SET team = 'nlp' WHERE workload LIKE '%b'",
        "INSERT INTO balances VALUES ('nlp', 'h100', 'slurm', 0)",
        journal_too=True,
    )
    found = problems(database)
    assert found[0] == "entry 5 does not match its digest: it, or the entry before it, was changed"


def test_a_missing_trigger_is_found(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TRIGGER entries_no_update")
    assert problems(database) == ["entries: the trigger entries_no_update is missing, so the journal can be changed"]
