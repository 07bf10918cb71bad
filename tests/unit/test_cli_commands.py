"""sbridge against a served fake source: what people read, what machines read, and how each failure ends."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result

from bridge.api import app as api
from bridge.api import fake, routes, server
from bridge.api.views import Problem
from bridge.cli import main, transport
from bridge.ledger import port
from tests.unit import platform_sample as sample


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FastAPI, str]]:
    application = api.create_app(sample.source(), sample.authenticator())
    serving = server.serve(application, "127.0.0.1", 0)
    yield application, f"http://127.0.0.1:{serving.port}"
    serving.stop()


@pytest.fixture
def source(served: tuple[FastAPI, str]) -> fake.FakeSource:
    source = sample.source()
    served[0].state.parts = routes.Parts(source, sample.authenticator(), lambda: sample.NOW_MS)
    return source


@pytest.fixture
def url(served: tuple[FastAPI, str], source: fake.FakeSource) -> str:
    assert source.ready()
    return served[1]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path) -> None:
    """Start each test from the admin's environment, with nothing of the developer's own."""
    for name in ("SLURM_JWT", "KUBECONFIG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("SBRIDGE_URL", url)
    monkeypatch.setenv("SBRIDGE_TOKEN", "admin-token")


def sbridge(*arguments: str) -> Result:
    return CliRunner().invoke(main.app, list(arguments))


def rows_of(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


COMMANDS = (
    ("status",),
    ("queue", "--all"),
    ("quota",),
    ("explain", "126"),
    ("explain", "123"),
    ("ledger", "log"),
    ("ledger", "verify"),
    ("usage",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_table_fits_100_columns_without_colours_and_cuts_nothing(command: tuple[str, ...]) -> None:
    result = sbridge(*command)
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout


def test_status_shows_health_holders_and_teams() -> None:
    result = sbridge("status")
    lines = rows_of(result)
    assert ["g1", "h100", "8", "8", "0", "0", "0", "0", "vision", "6,", "nlp", "2", "h100-g1", "MIXED"] in lines
    assert ["g2", "h100", "8", "0", "4", "0", "4", "0", "vision", "4", "-", "-"] in lines
    assert ["vision", "h100", "8", "12", "6", "4", "10", "2", "2", "16"] in lines
    assert "slurm main 26.05.5 ok, seen 0.3s ago" in result.stdout
    assert "! node g3: device plugin advertises 3 GPUs" in result.stdout


def test_status_tells_what_is_known_during_an_outage_and_ends_as_unreachable(source: fake.FakeSource) -> None:
    source.unknown = "slurmctld of main cannot be reached"
    slurm = source.status_view.slurm[0].model_copy(update={"ok": False, "age_s": 12.0, "text": "Connection refused"})
    source.status_view = source.status_view.model_copy(update={"slurm": (slurm,)})
    result = sbridge("status")
    assert result.exit_code == 5
    assert "slurm main 26.05.5 NOT OK, seen 12s ago: Connection refused" in result.stdout
    assert "nodes are not known: slurmctld of main cannot be reached" in result.stdout
    machine = sbridge("status", "--output", "json")
    assert machine.exit_code == 5
    assert json.loads(machine.stdout)["nodes"] is None


def test_the_queue_names_each_workload_by_what_can_be_typed_back() -> None:
    lines = rows_of(sbridge("queue"))
    assert ["123", "train-resnet", "vision", "alice", "4", "h100", "running", "1.2s"] in lines
    assert ["126", "pretrain", "vision", "alice", "2x8", "h100", "waiting", "1h06m", "QuotaExceeded"] in lines
    assert not any(line[0] == "99" for line in lines)
    assert any(line[0] == "99" for line in rows_of(sbridge("queue", "--all")))
    assert len(rows_of(sbridge("queue", "-s", "running", "-t", "nlp"))) == 2


def test_a_pipe_gets_one_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    lines = [line for line in sbridge("queue").stdout.splitlines() if "llm-server" in line]
    assert lines[0].split()[0] == "pod/team-vision/llm-server-7d9f8b6c5d-x2x9k"
    assert lines[0].split()[-1] == "CapacityMoving"


def test_a_member_sees_others_work_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBRIDGE_TOKEN", "bob-token")
    result = sbridge("queue")
    assert result.stdout.count("(hidden)") == 4
    assert "alice" not in result.stdout
    assert "4 of other teams: names are for their members and platform admins" in result.stdout


def test_explain_says_why_with_numbers_who_holds_and_when() -> None:
    text = sbridge("explain", "pretrain").stdout
    assert "waiting for 1h06m: QuotaExceeded: team vision holds 10 of its limit 12 h100 and asks for 16" in text
    assert "bound by   vision: held 10, limit 12, asked 16" in text
    assert "held by    vision 6 slurm, vision 4 kubernetes" in text
    ran = sbridge("explain", "123").stdout
    assert [line.split()[1] for line in ran.splitlines()[-3:]] == ["submitted", "reserved", "running"]


def test_ledger_log_shows_the_newest_entries_or_those_after_one() -> None:
    newest = rows_of(sbridge("ledger", "log", "-n", "3"))
    assert [line[0] for line in newest if line[0].isdigit()] == ["5", "6", "7"]
    after = json.loads(sbridge("ledger", "log", "--after", "2", "-n", "2", "-o", "json").stdout)
    assert [entry["seq"] for entry in after["items"]] == [3, 4]


def test_verify_ends_with_1_when_the_ledger_does_not_add_up(source: fake.FakeSource) -> None:
    assert sbridge("ledger", "verify").exit_code == 0
    source.found_problems = [port.Problem("balance of vision/h100 is 4, entries say 8")]
    result = sbridge("ledger", "verify")
    assert result.exit_code == 1
    assert "- balance of vision/h100 is 4, entries say 8" in result.stdout
    machine = sbridge("ledger", "verify", "-o", "json")
    assert (machine.exit_code, json.loads(machine.stdout)["clean"]) == (1, False)


def test_usage_adds_up() -> None:
    lines = rows_of(sbridge("usage", "--from", "-7d"))
    assert ["vision", "kubernetes", "h100", "0.500"] in lines
    assert ["all", "2.750"] in lines


def test_usage_as_csv_has_the_exact_milliseconds() -> None:
    result = sbridge("usage", "--from", "2026-12-01", "--to", "2026-12-02", "--by", "team,user,system", "-o", "csv")
    window = "2026-12-01T00:00:00.000Z,2026-12-02T00:00:00.000Z"
    assert result.stdout.splitlines() == [
        "from,to,team,user,system,gpu_ms,gpu_hours",
        f"{window},nlp,nora,slurm,900000,0.250000",
        f"{window},vision,alice,kubernetes,1800500,0.500139",
        f"{window},vision,alice,slurm,7200000,2.000000",
    ]


def test_usage_by_day_is_told_by_day() -> None:
    lines = rows_of(sbridge("usage", "--from", "2026-12-01", "--to", "2026-12-03", "--by", "team,day"))
    assert lines[0] == ["DAY", "TEAM", "GPU-HOURS"]
    assert ["2026-12-01", "vision", "2.500"] in lines
    assert json.loads(sbridge("usage", "--by", "month", "-o", "json").stdout)["by"] == ["month"]


def test_cancel_records_each_and_ends_with_the_first_failure(source: fake.FakeSource) -> None:
    result = sbridge("cancel", "nope", "123", "train-resnet")
    assert result.exit_code == 4
    assert result.stdout.count("is recorded: asked by platform-admin") == 2
    assert "ref='nope': no workload matches" in result.stderr
    assert source.cancels == {sample.TRAIN: "platform-admin"}
    assert sbridge("cancel", "124_4").exit_code == 0


@pytest.mark.parametrize(
    ("token", "arguments", "code", "sentence"),
    [
        ("wrong", ["queue"], 3, "not known here"),
        (
            "alice-token",
            ["cancel", "pod/team-vision/llm-server-7d9f8b6c5d-x2x9k"],
            3,
            "only its owner or a platform admin",
        ),
        ("bob-token", ["explain", "123"], 4, "no workload of your teams (nlp) matches"),
        ("admin-token", ["queue", "--state", "sleeping"], 2, "choose from waiting, refused, granted"),
        ("admin-token", ["queue", "--watch", "-o", "json"], 2, "leave out --output json"),
        ("admin-token", ["usage", "--from", "soon"], 2, "from='soon' is no time: write an age"),
        ("admin-token", ["usage", "--from", "1h", "--to", "2h"], 2, "is not before"),
        ("new\nline", ["queue"], 2, "characters that no token has"),
    ],
)
def test_each_failure_is_one_sentence_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, token: str, arguments: list[str], code: int, sentence: str
) -> None:
    monkeypatch.setenv("SBRIDGE_TOKEN", token)
    result = sbridge(*arguments)
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("sbridge: ")
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["queue", "-o", "yaml"], ["explain"], ["ledger", "log", "-n", "0"]]
)
def test_bad_usage_ends_with_2(arguments: list[str]) -> None:
    assert sbridge(*arguments).exit_code == 2


def test_an_ambiguous_name_lists_what_to_type(source: fake.FakeSource) -> None:
    source.queue_rows.append(
        source.queue_rows[0].model_copy(update={"id": "slurm/main/twin", "where": "130", "refs": ()})
    )
    result = sbridge("explain", "train-resnet")
    assert result.exit_code == 4
    assert f"{sample.TRAIN} (123, running); slurm/main/twin (130, running)" in result.stderr


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("queue", "/v1/queue"),
        ("quota", "/v1/quota"),
        ("explain 126", "/v1/explain?ref=126"),
        ("ledger log --after 2", "/v1/ledger/entries?after=2&limit=20"),
        ("ledger verify", "/v1/ledger/verify"),
        ("usage --from 1000 --to 2000 --by team", "/v1/usage?from=1000&to=2000&by=team"),
    ],
)
def test_json_is_the_apis_document(url: str, command: str, path: str) -> None:
    reply = transport.Direct(url, "admin-token").request("GET", path, query={}, body=None)
    assert json.loads(sbridge(*command.split(), "--output", "json").stdout) == json.loads(reply.body)


def test_names_that_users_choose_cannot_drive_the_terminal_or_the_markup(source: fake.FakeSource) -> None:
    source.queue_rows[0] = source.queue_rows[0].model_copy(update={"name": "[red]x\x1b[2J\x07"})
    text = sbridge("queue").stdout
    assert "[red]x" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_watch_redraws_through_an_outage_until_it_is_interrupted(
    source: fake.FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def next_look(_: float) -> None:
        looks.append(source.unknown)
        source.unknown = "slurmctld cannot be reached"
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", next_look)
    result = sbridge("queue", "--watch")
    assert result.exit_code == 0
    assert looks == ["", "slurmctld cannot be reached"]
    assert "slurmctld cannot be reached" in result.stdout


def test_version_shows_both_sides() -> None:
    assert sbridge("version").stdout.splitlines()[-1] == "bridge 0.1.0"
    assert len(sbridge("version", "--client").stdout.splitlines()) == 1


def test_problems_without_an_admin_are_still_counted(source: fake.FakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    source.found_problems = [port.Problem("secret")]
    source.status_view = source.status_view.model_copy(update={"problems": (Problem(about="x", text="y"),)})
    monkeypatch.setenv("SBRIDGE_TOKEN", "bob-token")
    result = sbridge("ledger", "verify")
    assert (result.exit_code, "secret" in result.stdout) == (1, False)
    assert "NOT CLEAN: 1 difference" in result.stdout


def test_help_imports_no_client_no_table_and_no_model() -> None:
    code = (
        "import sys; sys.argv = ['kubectl-bridge', '--help']\n"
        "from bridge.cli import main\n"
        "try:\n    main.run()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print(sorted({'httpx', 'pydantic', 'rich', 'kubernetes', 'fastapi', 'urllib.request'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.startswith("Usage: kubectl bridge")
