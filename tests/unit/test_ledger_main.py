"""`python -m bridge.ledger`: what an admin types beside the database."""

from contextlib import closing
from pathlib import Path

import pytest

from bridge.clock import FakeClock
from bridge.controller import config
from bridge.errors import InvalidInputError
from bridge.ledger import __main__ as administration
from bridge.ledger.fairshare import FairShare
from bridge.ledger.journal import open_ledger
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import NodeName, System, Workload, WorkloadId

DAY = 86_400_000
NOW = 20_000 * DAY
NODE = NodeName("g1")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a ledger with a job that ended 100 days ago and one that runs."""
    made = f"sqlite:///{tmp_path / 'ledger.db'}"
    clock = FakeClock(NOW - 100 * DAY)
    with closing(open_ledger(made, clock)) as ledger:
        ledger.open_epoch(1, "one")
        old, new = (
            Workload(WorkloadId(f"slurm/main/{name}"), System.SLURM, TeamName("vision"), FlavorName("h100"), 1, 4, 0)
            for name in ("old", "new")
        )
        ledger.adopt(old, {NODE: 4}, at_ms=NOW - 100 * DAY, note="")
        ledger.release(old.id, 1, at_ms=NOW - 99 * DAY)
        ledger.adopt(new, {NODE: 4}, at_ms=NOW - DAY, note="")
    return made


def run(url: str, *arguments: str) -> int:
    return administration.main(arguments, {administration.URL: url}, FakeClock(NOW))


def test_archive_verify_backup_and_restore(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    with closing(open_ledger(url, FakeClock(NOW))) as ledger:
        before = ledger.usage(from_ms=0, to_ms=NOW)
    assert run(url, "archive", "--before", "90d", "--to", str(archive)) == 0
    assert capsys.readouterr().out.startswith("entries 1 to ")
    assert run(url, "archive", "--before", "90d", "--to", str(archive)) == 0
    assert capsys.readouterr().out == "nothing to archive: no entry is older\n"
    assert run(url, "verify") == 0
    assert run(url, "verify", "--archive", str(archive)) == 0
    assert "clean: everything adds up from entry 1" in capsys.readouterr().out
    with closing(open_ledger(url, FakeClock(NOW))) as ledger:
        assert [(row.team, row.gpu_ms) for row in ledger.usage(from_ms=0, to_ms=NOW)] == [
            (row.team, row.gpu_ms) for row in before
        ]
        newest = ledger.last_seq()
    assert run(url, "backup", str(tmp_path / "backup.db")) == 0
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert run(other, "restore", str(tmp_path / "backup.db")) == 0
    assert f"restored up to entry {newest}" in capsys.readouterr().out
    with closing(open_ledger(other, FakeClock(NOW))) as ledger:
        assert ledger.last_seq() == newest
        assert not ledger.verify()


def test_fair_share_goes_on_when_entries_are_archived_before_it_read_them(url: str, tmp_path: Path) -> None:
    clock, half_life_ms = FakeClock(NOW), 7 * DAY
    key = (TeamName("vision"), FlavorName("h100"))
    with closing(open_ledger(url, clock)) as ledger:
        followed = FairShare(ledger, half_life_ms)
        followed.history(NOW)
        ledger.open_epoch(1, "one")
        identity = WorkloadId("slurm/main/new")
        ledger.release(identity, 1, at_ms=NOW + DAY)
        clock.advance(30 * DAY)
        ledger.note(identity, "the newest entry stays", at_ms=clock.now_ms())
        expected = FairShare(ledger, half_life_ms).history(clock.now_ms())
    arguments = ["archive", "--before", "1d", "--to", str(tmp_path)]
    assert administration.main(arguments, {administration.URL: url}, clock) == 0
    with closing(open_ledger(url, clock)) as again:
        followed._ledger = again
        assert followed.history(clock.now_ms())[key] == pytest.approx(expected[key], rel=0.02)
        assert FairShare(again, half_life_ms).history(clock.now_ms())[key] == pytest.approx(expected[key], rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["archive", "--before", "soon", "--to", "x"], 2, "--before='soon' is no time"),
        (["archive", "--before", "2999-01-01", "--to", "x"], 2, "is in the future"),
        (["restore", "/nowhere/backup.db"], 2, "is not there"),
        (["restore", "{backup}"], 2, "is not empty"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, sentence: str
) -> None:
    assert run(url, "backup", str(tmp_path / "b.db")) == 0
    capsys.readouterr()
    assert run(url, *(each.format(backup=tmp_path / "b.db") for each in arguments)) == code
    told = capsys.readouterr().err
    assert told.startswith("ledger: ")
    assert told.count("\n") == 1
    assert sentence in told


def test_the_default_is_the_bridges_own_database() -> None:
    assert config.Config().ledger_url == administration.DEFAULT_URL


@pytest.mark.parametrize("verb", [["verify"], ["backup", "b.db"], ["archive", "--before", "1d", "--to", "."]])
def test_a_ledger_that_is_not_there_is_not_made(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(f"sqlite:///{tmp_path / 'none.db'}", *verb) != 0
    assert capsys.readouterr().err.startswith("ledger: ")
    assert not (tmp_path / "none.db").exists()


def test_a_moment_is_a_day_a_time_or_an_age() -> None:
    assert administration.moment("90d", now_ms=NOW) == NOW - 90 * DAY
    assert administration.moment("1970-01-02", now_ms=NOW) == DAY
    assert administration.moment("1970-01-02T01:00:00+01:00", now_ms=NOW) == DAY
    with pytest.raises(InvalidInputError):
        administration.moment("90", now_ms=NOW)
