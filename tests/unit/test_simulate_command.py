"""`sbridge simulate` as a person calls it, and an independent check of what it says."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bridge.cli import main
from bridge.simulate import plots
from tests.unit import simulate_check as check

DATA = Path(__file__).parents[1] / "data"
PHILLY, OPENB = DATA / "philly_60.csv", DATA / "openb_25.csv"


def sbridge(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main.app, ["simulate", *map(str, arguments)])


def summary(*arguments: str | Path) -> dict[str, Any]:
    result = sbridge(*arguments)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def dense_jobs(folder: Path) -> Path:
    """Write two teams that press against a small fleet: one arrives early and borrows, the other comes back."""
    lines = ["timestamp,duration,num_gpus,cluster"]
    lines += [f"{1_700_000_000 + 7 * n},{900 + 13 * n % 700},{(1, 2, 4, 8)[n % 4]},early" for n in range(40)]
    lines += [f"{1_700_000_200 + 11 * n},{600 + 17 * n % 900},{(8, 1, 16, 2)[n % 4]},late" for n in range(40)]
    path = folder / "jobs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("policies", [("shared", "static"), ("shared", "split", "fifo")])
def test_an_independent_reading_of_the_events_gives_the_same_figures(tmp_path: Path, policies: Sequence[str]) -> None:
    """Q1, Q10: also, no node ever holds more than it has, and whoever is a victim ends in the end."""
    jobs, events = dense_jobs(tmp_path), tmp_path / "events.csv"
    chosen = [part for policy in policies for part in ("--policy", policy)]
    document = summary("--jobs", jobs, "--gpus", "40", "--events", events, *chosen)
    nodes = {f"node-{index}": 8 for index in range(1, 6)}
    assert check.differences(document, check.replay(events, check.durations_of(jobs), nodes)) == []
    assert [each["policy"] for each in document["policies"]] == list(policies)
    if "static" in policies:
        assert document["policies"][0]["preemptions"]["victims"] > 0  # the check had something to check
        assert document["policies"][1]["waits"]["all"]["p95_s"] > 0


def test_the_check_finds_a_wrong_figure(tmp_path: Path) -> None:
    jobs, events = dense_jobs(tmp_path), tmp_path / "events.csv"
    document = summary("--jobs", jobs, "--gpus", "40", "--events", events, "-p", "shared")
    told = check.replay(events, check.durations_of(jobs), {f"node-{index}": 8 for index in range(1, 6)})
    document["policies"][0]["waits"]["all"]["p95_s"] += 1
    document["policies"][0]["whole_run"]["utilisation"] *= 0.99
    assert len(check.differences(document, told)) == 2
    assert check.replay(events, check.durations_of(jobs), {f"node-{index}": 7 for index in range(1, 6)})[
        "shared"
    ].problems


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    jobs = dense_jobs(tmp_path)
    arguments = ("--jobs", jobs, "--gpus", "40", "--limit-factor", "2", "--seed", "3")
    one, two = (sbridge(*arguments, "--to", tmp_path / name) for name in ("one", "two"))
    assert (one.exit_code, two.exit_code) == (0, 0), one.output
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    policies = json.loads((tmp_path / "one").read_text())["policies"]
    assert plots.gpu_time(policies, "arrivals") == plots.gpu_time(policies, "arrivals")


def test_public_rows_of_both_systems_run_side_by_side() -> None:
    document = summary("--jobs", PHILLY, "--pods", OPENB, "--gpus", "16", "-p", "shared", "-p", "split")
    assert document["jobs"] == sum(each["jobs"] for each in document["input"])
    for policy in document["policies"]:
        assert policy["jobs"]["ran"] + policy["jobs"]["refused"] == document["jobs"]
        assert policy["whole_run"]["gpu_h_by_system"]["kubernetes"] > 0
    assert document["against_static"] is None


def test_accounting_and_teams_are_taken_together() -> None:
    folder = DATA / "simulate"
    document = summary(
        "--sacct", folder / "sacct.txt", "--teams", folder / "teams.yaml", "--gpus", "16", "--policy", "shared"
    )  # fmt: skip
    (policy,) = document["policies"]
    assert policy["guarantees"] == {"nlp": 4, "research": 4, "vision": 8}
    assert policy["jobs"] == {"ran": 4, "refused": 0, "never_started": 0}
    assert policy["waits"]["by_team"]["vision"]["jobs"] == 3


def test_the_page_needs_nothing_else_and_says_whether_the_statement_holds(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = sbridge("--jobs", dense_jobs(tmp_path), "--gpus", "40", "-o", "html", "--to", page)
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "no team&#x27;s p95 wait is worse than under static" in text
    assert text.count("<svg") >= 8
    for outside in ("src=", "@import", "<script", 'href="http', "url(http"):
        assert outside not in text, outside


def test_the_page_without_matplotlib_is_one_sentence_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    result = sbridge("--jobs", PHILLY, "--gpus", "16", "-o", "html", "--to", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "install the extra `report`" in result.stderr
    assert sbridge("--jobs", PHILLY, "--gpus", "16", "-p", "fifo").exit_code == 0


def test_what_is_not_used_is_told_on_stderr_and_in_the_summary(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("timestamp,duration,num_gpus,cluster\n5,60,1,a\n5,60,x,a\n5,60,0,a\n5,60,900,a\n")
    result = sbridge("--jobs", jobs, "--gpus", "8", "-p", "shared")
    assert result.exit_code == 0
    assert f"sbridge: {jobs}:3: num_gpus='x' is no number" in result.stderr
    assert f"{jobs}: 1 of 4 rows are broken and not used" in result.stderr
    assert f"{jobs}: 1 of 4 rows left out: asks for no GPU" in result.stderr
    document = json.loads(result.stdout)
    assert (document["input"][0]["broken"], document["input"][0]["left_out"]) == (1, {"asks for no GPU": 1})
    assert document["policies"][0]["refused"][0]["why"] == "900 GPUs are more than team a may ever hold here (8)"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--gpus", "8"), "no demand: give --jobs, --pods or --sacct"),
        (("--jobs", PHILLY), "give the fleet by either --gpus N or --nodes FILE"),
        (("--jobs", "none.csv", "--gpus", "8"), "none.csv: cannot be read: No such file or directory"),
        (("--jobs", PHILLY, "--gpus", "8", "--events", "/no/such/folder/e.csv"), "cannot be written: No such file"),
        (("--jobs", PHILLY, "--gpus", "8", "-p", "fifo", "--to", "/no/such/folder/e.json"), "choose another file"),
    ],
)
def test_bad_calls_end_in_one_sentence(arguments: tuple[str | Path, ...], told: str) -> None:
    result = sbridge(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
