"""Retention, backup and restore over both databases: what is open and every sum stay, and the proof stays whole."""

import gzip
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

from bridge.clock import FakeClock
from bridge.errors import BrokenInvariantError, InvalidInputError, UnknownStateError
from bridge.ledger import archive, backup, journal
from bridge.ledger.carried import DAY_MS
from bridge.ledger.journal import SqlLedger
from bridge.ledger.port import CapacityRow, Intent
from bridge.quota.model import FlavorName
from bridge.workloads.model import GrantState
from tests.contract.ledger_sample import NODE, T0, workload
from tests.postgresbox import PostgresBox

START = T0 // DAY_MS * DAY_MS
DAYS = 12
STEPS = 15  # a day


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty(request, request.param, tmp_path)


def empty(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / uuid.uuid4().hex}.db"
    box: PostgresBox = request.getfixturevalue("postgres_box")
    return box.url(f"archive_{uuid.uuid4().hex[:12]}")


def busy_days(url: str, seed: int = 1) -> int:
    """Write days of work that starts, changes, ends and comes again; return the last moment."""
    chance, now_ms, nodes = random.Random(seed), START, 0
    with closing(journal.open_ledger(url, FakeClock(now_ms))) as ledger:
        for day in range(DAYS):
            ledger.open_epoch(day + 1, "one")
            with ledger.batch():
                for part in range(STEPS):
                    now_ms = START + day * DAY_MS + part * DAY_MS // STEPS + chance.randrange(DAY_MS // STEPS)
                    step(ledger, chance, now_ms)
            nodes += ledger.capacity([CapacityRow(NODE, FlavorName("h100"), 8, day % 8, 0, 0, 8 - day % 8, 0)], at_ms=0)
        assert nodes > DAYS // 2
        assert ledger.verify() == ()
    return START + DAYS * DAY_MS


def step(ledger: SqlLedger, chance: random.Random, now_ms: int) -> None:
    """Move one of a score of workloads by one step, as far as its time allows."""
    wanted = workload(f"w{chance.randrange(20)}", team=chance.choice(["vision", "nlp"]))
    held = ledger.reserve(wanted, {NODE: 4}, at_ms=now_ms)
    if held.state is GrantState.RUNNING:
        if chance.random() < 0.3:
            gpus = chance.randrange(1, 9)
            ledger.adjust(wanted.id, held.attempt, gpus=gpus, placement={NODE: gpus}, at_ms=now_ms)
        else:
            ledger.release(wanted.id, held.attempt, at_ms=now_ms)
    elif chance.random() < 0.1:
        ledger.void(wanted.id, held.attempt, at_ms=now_ms, note="not started")
    elif chance.random() < 0.8:
        ledger.run(wanted.id, held.attempt, gpus=4, placement={NODE: 4}, at_ms=now_ms)
    intent = ledger.intend(Intent(f"cancel/{wanted.id}/{held.attempt}", "cancel", wanted.id, now_ms, {"by": "\\x"}))
    if chance.random() < 0.5:
        ledger.settle(intent.id, outcome="\\N", at_ms=now_ms)


def told(ledger: SqlLedger) -> list[object]:
    """Return what must not change when history is archived."""
    days = [START + day * DAY_MS for day in range(DAYS + 1)]
    windows = [(0, days[-1] * 2), *pairwise(days), (days[2], days[9])]
    return [
        ledger.grants(),
        ledger.intents(),
        ledger.capacity_rows(),
        ledger.last_seq(),
        ledger.newest_epoch(),
        [ledger.usage(from_ms=from_ms, to_ms=to_ms) for from_ms, to_ms in windows],
    ]


def archived(url: str, directory: Path, days: float, *, pieces: int = 10_000) -> tuple[archive.Archived, ...]:
    before_ms = START + int(days * DAY_MS)
    clock = FakeClock(START + DAYS * DAY_MS)
    return archive.archive(url, before_ms=before_ms, directory=directory, clock=clock, max_entries=pieces)


@pytest.fixture
def ledger_of(url: str) -> Iterator[Callable[[], SqlLedger]]:
    """Return a way to open the ledger (again)."""
    opened: list[SqlLedger] = []

    def again() -> SqlLedger:
        opened.append(journal.open_ledger(url, FakeClock(START + DAYS * DAY_MS)))
        return opened[-1]

    yield again
    for ledger in opened:
        ledger.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_archiving_changes_nothing_that_is_open_and_no_sum(
    url: str, tmp_path: Path, ledger_of: Callable[[], SqlLedger], seed: int
) -> None:
    busy_days(url, seed)
    running = ledger_of()  # a bridge that goes on meanwhile
    running.open_epoch(100, "one")
    before, entries = told(running), running.last_seq()
    first = archived(url, tmp_path / "files", 4, pieces=40)
    assert len(first) > 1
    assert told(running) == before
    second = archived(url, tmp_path / "files", 8.5)
    assert (second[0].first_seq, archived(url, tmp_path / "files", 8.5)) == (first[-1].last_seq + 1, ())
    assert told(running) == before
    assert len(running.log(limit=10_000)) == entries - second[-1].last_seq
    assert running.verify() == ()
    assert running.verify(archive=tmp_path / "files") == ()
    fresh = ledger_of()
    assert told(fresh) == before


def test_an_archived_workload_comes_again_as_its_next_attempt(
    url: str, tmp_path: Path, ledger_of: Callable[[], SqlLedger]
) -> None:
    with closing(journal.open_ledger(url, FakeClock(START))) as early:
        early.open_epoch(1, "one")
    ledger = ledger_of()
    ledger.open_epoch(1, "one")
    for attempt in (1, 2):
        ledger.reserve(workload(), {NODE: 4}, at_ms=START)
        ledger.run(workload().id, attempt, gpus=4, placement={NODE: 4}, at_ms=START)
        ledger.release(workload().id, attempt, at_ms=START + attempt)
    ledger.note(workload("other").id, "the newest entry stays", at_ms=START)
    assert archived(url, tmp_path / "files", 1)[-1].last_seq == 7
    assert list(ledger.grants(holding=False)) == []
    with pytest.raises(BrokenInvariantError, match=r"attempt 2: it ended long ago and is archived \(up to entry 7\)"):
        ledger.release(workload().id, 2, at_ms=START + 9)
    with pytest.raises(BrokenInvariantError, match="attempt 3: the ledger never granted it"):
        ledger.release(workload().id, 3, at_ms=START + 9)
    assert ledger.reserve(workload(), {NODE: 4}, at_ms=START + 9).attempt == 3
    assert ledger.verify(archive=tmp_path / "files") == ()
    ledger.void(workload().id, 3, at_ms=START + 9, note="")
    ledger.note(workload("other").id, "and so does this one", at_ms=START)
    archived(url, tmp_path / "files", 1)
    assert ledger.reserve(workload(), {NODE: 4}, at_ms=START + 9).attempt == 4
    assert ledger.verify(archive=tmp_path / "files") == ()


def test_a_window_that_cuts_an_archived_day_is_refused_with_the_way_out(
    url: str, tmp_path: Path, ledger_of: Callable[[], SqlLedger]
) -> None:
    busy_days(url)
    archived(url, tmp_path / "files", 5)
    ledger = ledger_of()
    with pytest.raises(InvalidInputError, match="usage of 2023-11-15 is archived as a sum of the whole day: begin and"):
        ledger.usage(from_ms=START + DAY_MS + DAY_MS // 2, to_ms=START + 12 * DAY_MS)
    with pytest.raises(InvalidInputError, match="the usage of 2023-11-16 is archived as a sum"):
        ledger.usage(from_ms=0, to_ms=START + 2 * DAY_MS + DAY_MS // 2)
    assert ledger.usage(from_ms=START + 7 * DAY_MS + 12345, to_ms=START + 8 * DAY_MS)


def test_nothing_is_archived_of_a_ledger_that_does_not_add_up(
    url: str, tmp_path: Path, ledger_of: Callable[[], SqlLedger]
) -> None:
    busy_days(url)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("UPDATE balances SET gpus = gpus + 1"))
    engine.dispose()
    with pytest.raises(BrokenInvariantError, match=r"does not add up .* nothing is archived; balances"):
        archived(url, tmp_path / "files", 5)
    assert not (tmp_path / "files").exists()
    assert ledger_of().log()[0].seq == 1


def test_a_future_date_is_refused(url: str, tmp_path: Path) -> None:
    busy_days(url)
    with pytest.raises(InvalidInputError, match="is in the future"):
        archived(url, tmp_path / "files", DAYS + 1)


@pytest.mark.parametrize("where", ["_check", "_record", "_forget_entries"])
def test_a_run_that_is_killed_half_way_is_finished_by_the_next_one(
    url: str, tmp_path: Path, ledger_of: Callable[[], SqlLedger], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    busy_days(url)
    before, files = told(ledger_of()), tmp_path / "files"
    calls: list[int] = []
    real = getattr(archive, where)

    def die(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == (2 if where == "_forget_entries" else 1):  # its first call cleans up after the last run
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(archive, where, die)
        with pytest.raises(KeyboardInterrupt):
            archived(url, files, 5)
    assert told(ledger_of()) == before
    assert ledger_of().verify() == ()
    archived(url, files, 6)
    assert told(ledger_of()) == before
    assert ledger_of().verify(archive=files) == ()
    assert ledger_of().log()[0].seq > 50


def test_a_folder_that_is_not_read_back_as_written_removes_nothing(
    url: str, tmp_path: Path, ledger_of: Callable[[], SqlLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy_days(url)
    real = archive._check

    def damage(piece: archive._Piece, store: object) -> None:
        path = piece.folder / "spans.csv.gz"
        path.write_bytes(path.read_bytes()[:-9])
        real(piece, store)  # type: ignore[arg-type]

    monkeypatch.setattr(archive, "_check", damage)
    with pytest.raises(UnknownStateError, match=r"spans.csv.gz does not match its digest; nothing was removed"):
        archived(url, tmp_path / "files", 5)
    assert ledger_of().log()[0].seq == 1
    assert ledger_of().verify() == ()


# --- the proof finds what was changed ------------------------------------------------------------------------


def in_table(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Return a change of one text in one file of a folder."""

    def change(folder: Path) -> None:
        path = folder / f"{name}.csv.gz"
        content = gzip.decompress(path.read_bytes()).decode()
        assert old in content
        path.write_bytes(gzip.compress(content.replace(old, new, 1).encode()))

    return change


def in_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"nlp", b"nlq"))


FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("an entry", in_table("entries", "alice", "bob"), "does not match its digest"),
    ("a grant", in_table("grants", "alice", "bob"), "grants is not what its entries come to"),
    ("a sum", in_table("usage", "nlp", "nlq"), "usage is not what its entries come to"),
    ("a manifest", in_manifest, "its manifest is not the one that the checkpoint names"),
    ("a lost file", lambda folder: (folder / "spans.csv.gz").unlink(), "cannot be read"),
    ("a lost folder", lambda folder: folder.rename(folder.with_name("elsewhere")), "give the folder that"),
]


@pytest.mark.parametrize(("what", "change", "sentence"), FILES, ids=[what for what, _, _ in FILES])
def test_an_archive_that_was_changed_is_found(
    tmp_path: Path, what: str, change: Callable[[Path], object], sentence: str
) -> None:
    url, files = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "files"
    busy_days(url)
    folder = archived(url, files, 5)[0].folder
    with closing(journal.open_ledger(url, FakeClock(T0))) as ledger:
        assert ledger.verify(archive=files) == ()
        change(folder)
        found = [problem.text for problem in ledger.verify(archive=files)]
        assert any(sentence in problem for problem in found), (what, found)
        assert ledger.verify() == ()  # the ledger itself is whole


CARRIED = [
    ("UPDATE carried_usage SET gpu_ms = gpu_ms + 1", "carried_usage: the sums of checkpoint"),
    ("DELETE FROM carried_usage WHERE team = 'nlp'", "carried_usage: the sums of checkpoint"),
    ("UPDATE carried_usage SET checkpoint = 1", "carried_usage: sums of the checkpoint 1, which does not exist"),
    ("UPDATE carried_attempts SET attempt = attempt - 1", "carried_attempts: not those that were archived"),
    ("UPDATE checkpoints SET state = replace(state, 'nlp', 'nlq')", "balances nlp/"),
    ("UPDATE checkpoints SET digest = 'x'", "does not match its digest"),
    ("UPDATE checkpoints SET state = '{'", "the newest checkpoint cannot be read"),
]


@pytest.mark.parametrize(("statement", "sentence"), CARRIED, ids=[statement for statement, _ in CARRIED])
def test_what_was_carried_forward_and_changed_is_found(tmp_path: Path, statement: str, sentence: str) -> None:
    path = tmp_path / "ledger.db"
    busy_days(f"sqlite:///{path}")
    archived(f"sqlite:///{path}", tmp_path / "files", 5)
    with closing(sqlite3.connect(path)) as connection:
        sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'checkpoints_no_update'").fetchone()[0]
        connection.execute("DROP TRIGGER checkpoints_no_update")
        assert connection.execute(statement).rowcount > 0
        connection.execute(sql)
        connection.commit()
    with closing(journal.open_ledger(f"sqlite:///{path}", FakeClock(T0))) as ledger:
        found = [problem.text for problem in ledger.verify()]
    assert any(sentence in problem for problem in found), found


KEPT = [
    ("DELETE FROM entries", "an entry is never deleted before it is archived"),
    ("DELETE FROM checkpoints", "a checkpoint is never deleted"),
    ("UPDATE checkpoints SET state = ''", "a checkpoint is never changed"),
    ("INSERT INTO checkpoints VALUES (999, 'x', 0, '', '', '', '', '')", "a checkpoint is the digest of an entry"),
    ("UPDATE entries SET gpus = 1", "an entry is never changed"),
]
ON_POSTGRESQL = [
    ("TRUNCATE entries CASCADE", "entries are never emptied"),
    ("TRUNCATE checkpoints", "checkpoints are never emptied"),
]


def test_the_database_itself_keeps_journal_and_checkpoints(url: str, tmp_path: Path) -> None:
    busy_days(url)
    archived(url, tmp_path / "files", 5)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    for statement, why in [*KEPT, *(ON_POSTGRESQL if url.startswith("postgresql") else [])]:
        with pytest.raises(IntegrityError, match=why), engine.begin() as connection:
            connection.execute(text(statement))
    engine.dispose()


# --- backup and restore --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
@pytest.mark.parametrize("archives", [False, True], ids=["whole", "archived"])
def test_a_backup_is_restored_into_either_database(
    url: str, request: pytest.FixtureRequest, tmp_path: Path, target: str, *, archives: bool
) -> None:
    busy_days(url)
    if archives:
        archived(url, tmp_path / "files", 5)
    with closing(journal.open_ledger(url, FakeClock(T0))) as ledger:
        before, newest = [told(ledger), ledger.log(limit=10_000), ledger.grants(holding=False)], ledger.last_seq()
    assert backup.backup(url, tmp_path / "backup.db") == newest
    into = empty(request, target, tmp_path)
    assert backup.restore(tmp_path / "backup.db", into) == newest
    with closing(journal.open_ledger(into, FakeClock(T0))) as ledger:
        assert [told(ledger), ledger.log(limit=10_000), ledger.grants(holding=False)] == before
        assert ledger.verify(archive=tmp_path / "files" if archives else None) == ()
        ledger.open_epoch(1000, "restored")
        ledger.reserve(workload("new"), {NODE: 4}, at_ms=START)
        assert ledger.verify() == ()
    assert list(tmp_path.glob("*partial*")) == []


def test_a_backup_while_the_bridge_writes_is_one_moment(url: str, tmp_path: Path) -> None:
    with closing(journal.open_ledger(url, FakeClock(T0))) as ledger:
        ledger.open_epoch(1, "one")
        for index in range(3):
            ledger.reserve(workload(f"before{index}"), {NODE: 4}, at_ms=T0)
            backup.backup(url, tmp_path / f"{index}.db")
            ledger.reserve(workload(f"after{index}"), {NODE: 4}, at_ms=T0)
        assert ledger.verify() == ()
    for index in range(3):
        with closing(journal.open_ledger(f"sqlite:///{tmp_path / str(index)}.db", FakeClock(T0))) as kept:
            assert (kept.last_seq(), kept.verify()) == (2 + 2 * index, ())


def test_a_restore_goes_into_an_empty_database_only(url: str, tmp_path: Path) -> None:
    busy_days(url)
    backup.backup(url, tmp_path / "backup.db")
    with pytest.raises(InvalidInputError, match=r"restore: .* is not empty \(its table \w+ has rows\)"):
        backup.restore(tmp_path / "backup.db", url)
    with pytest.raises(InvalidInputError, match="exists already; give a new file name"):
        backup.backup(url, tmp_path / "backup.db")
    with pytest.raises(InvalidInputError, match="is not there; give the file that backup wrote"):
        backup.restore(tmp_path / "nothing.db", url)


def test_a_tool_makes_no_ledger_where_there_is_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no ledger"):
        backup.backup(url, tmp_path / "backup.db")
    with pytest.raises(InvalidInputError, match="there is no ledger"):
        archived(url, tmp_path / "files", 5)
    assert list(tmp_path.iterdir()) == []


def test_a_backup_that_does_not_add_up_is_not_restored(
    url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    busy_days(url)
    path = tmp_path / "backup.db"
    backup.backup(url, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE balances SET gpus = gpus + 1")
        connection.commit()
    into = empty(request, "sqlite" if url.startswith("sqlite") else "postgresql", tmp_path)
    with pytest.raises(BrokenInvariantError, match=r"does not add up .* nothing is restored; balances"):
        backup.restore(path, into)
    with closing(journal.open_ledger(into, FakeClock(T0))) as ledger:
        assert (ledger.last_seq(), ledger.verify()) == (0, ())
