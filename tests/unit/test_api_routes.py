"""The API over a fake source: what each caller sees, and how errors read."""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from fastapi import FastAPI

from bridge.api import app, fake, routes, server
from bridge.ledger.port import Problem
from tests.unit import platform_sample as sample


class Failures(logging.Handler):
    """Keeps what the server logs as an error, which it may do after a right answer has left."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture(scope="module")
def failures() -> Iterator[Failures]:
    kept = Failures()
    logging.getLogger("uvicorn.error").addHandler(kept)
    yield kept
    logging.getLogger("uvicorn.error").removeHandler(kept)


@pytest.fixture(scope="module")
def served(failures: Failures) -> Iterator[tuple[FastAPI, str]]:
    """Serve one application for all tests; each test puts its own source in. None may make the server fail."""
    application = app.create_app(sample.source(), sample.authenticator())
    serving = server.serve(application, "127.0.0.1", 0)
    yield application, f"http://127.0.0.1:{serving.port}"
    serving.stop()
    assert failures.messages == []


@pytest.fixture
def source(served: tuple[FastAPI, str]) -> fake.FakeSource:
    source = sample.source()
    served[0].state.parts = routes.Parts(source, sample.authenticator(), lambda: sample.NOW_MS)
    return source


@pytest.fixture
def client(served: tuple[FastAPI, str], source: fake.FakeSource) -> Iterator[httpx.Client]:
    assert source.ready()
    with httpx.Client(base_url=served[1], trust_env=False, timeout=10) as client:
        yield client


def as_(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}-token"}


PROTECTED = (
    "/v1/status", "/v1/nodes", "/v1/quota", "/v1/queue", "/v1/explain?ref=123", "/v1/ledger/entries",
    "/v1/ledger/verify", "/v1/usage", "/v1/openapi.json",
)  # fmt: skip


@pytest.mark.parametrize("path", PROTECTED)
def test_nothing_under_v1_answers_without_a_token(client: httpx.Client, path: str) -> None:
    reply = client.get(path)
    assert reply.status_code == 401
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.json()["type"] == "urn:slurmbridge:problem:not-authenticated"
    assert client.get(path, headers=as_("admin")).status_code == 200


def test_every_route_of_the_document_is_protected(client: httpx.Client) -> None:
    document = client.get("/v1/openapi.json", headers=as_("admin")).json()
    assert {path.split("?")[0] for path in PROTECTED} - {"/v1/openapi.json"} | {"/v1/cancel"} == set(document["paths"])


def test_a_cancel_without_a_token_records_nothing(client: httpx.Client, source: fake.FakeSource) -> None:
    assert client.post("/v1/cancel", json={"ref": "123"}).status_code == 401
    assert source.cancels == {}


def test_the_token_may_come_in_the_header_that_the_api_servers_proxy_leaves(client: httpx.Client) -> None:
    assert client.get("/v1/status", headers={"X-Slurmbridge-Token": "alice-token"}).status_code == 200


def test_probes_and_metrics_are_open_and_name_nobody(client: httpx.Client, source: fake.FakeSource) -> None:
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").status_code == 200
    source.is_ready = False
    assert client.get("/readyz").status_code == 503
    text = client.get("/metrics").text
    assert "alice" not in text
    assert "train-resnet" not in text
    assert 'slurmbridge_queue_gpus{team="vision",state="waiting",reason="QuotaExceeded"} 16\n' in text


def test_metrics_answer_during_an_outage(client: httpx.Client, source: fake.FakeSource) -> None:
    source.unknown = "slurmctld cannot be reached"
    reply = client.get("/metrics")
    assert reply.status_code == 200
    assert "slurmbridge_cycles_total 41203\n" in reply.text


def test_the_queue_keeps_its_order_and_sums_for_everybody_and_names_only_for_members(
    client: httpx.Client,
) -> None:
    everything = client.get("/v1/queue", headers=as_("admin")).json()["items"]
    seen = client.get("/v1/queue", headers=as_("bob")).json()["items"]
    assert [(r["team"], r["gpus"], r["state"]) for r in seen] == [
        (r["team"], r["gpus"], r["state"]) for r in everything
    ]
    others = [row for row in seen if row["team"] != "nlp"]
    assert others
    for row in others:
        assert row["hidden"]
        assert {row[key] for key in ("id", "name", "user", "text", "where")} == {""}
        assert row["refs"] == []
    assert [row["name"] for row in seen if not row["hidden"]] == ["sweep"]


def test_the_queue_filters_by_state_and_team_and_leaves_ended_work_out(client: httpx.Client) -> None:
    def names(query: str) -> list[str]:
        return [row["name"] for row in client.get(f"/v1/queue{query}", headers=as_("admin")).json()["items"]]

    assert "train-resnet" in names("")
    assert names("?state=ended") == ["train-resnet"]
    assert names("?state=waiting&state=granted") == ["llm-server-7d9f8b6c5d-x2x9k", "pretrain"]
    assert names("?team=nlp") == ["sweep"]


def test_an_unknown_state_is_refused_with_the_ones_that_exist(client: httpx.Client) -> None:
    reply = client.get("/v1/queue?state=sleeping", headers=as_("admin"))
    assert reply.status_code == 422
    assert reply.json()["type"] == "urn:slurmbridge:problem:invalid"
    assert "query.state.0='sleeping'" in reply.json()["detail"]
    assert "'waiting'" in reply.json()["detail"]


@pytest.mark.parametrize("ref", ["126", "pretrain", sample.GANG])
def test_explain_takes_what_a_person_has_at_hand(client: httpx.Client, ref: str) -> None:
    found = client.get("/v1/explain", params={"ref": ref}, headers=as_("alice")).json()
    assert found["workload"]["id"] == sample.GANG
    assert found["numbers"] == {"held": 10, "limit": 12, "asked": 16}
    assert found["binding"] == "vision"


def test_a_name_of_several_is_a_409_that_lists_them(client: httpx.Client, source: fake.FakeSource) -> None:
    twin = source.queue_rows[0].model_copy(update={"id": "slurm/main/twin", "where": "130", "refs": ("130",)})
    source.queue_rows.append(twin)
    reply = client.get("/v1/explain?ref=train-resnet", headers=as_("alice"))
    assert reply.status_code == 409
    assert reply.json()["type"] == "urn:slurmbridge:problem:ambiguous"
    assert reply.json()["candidates"] == [f"{sample.TRAIN} (123, running)", "slurm/main/twin (130, running)"]


@pytest.mark.parametrize(
    "ref", ["123", "train-resnet", sample.TRAIN, "pod/team-vision/llm-server-7d9f8b6c5d-x2x9k", "7"]
)
def test_others_work_reads_like_work_that_does_not_exist(client: httpx.Client, ref: str) -> None:
    reply = client.get("/v1/explain", params={"ref": ref}, headers=as_("bob"))
    assert reply.status_code == 404
    detail = reply.json()["detail"]
    assert detail.startswith(f"ref={ref!r}: no workload of your teams (nlp) matches; ")


def test_a_cancel_is_answered_as_recorded_and_again_as_the_same_intent(
    client: httpx.Client, source: fake.FakeSource
) -> None:
    first = client.post("/v1/cancel", json={"ref": "123"}, headers=as_("alice"))
    again = client.post("/v1/cancel", json={"ref": sample.TRAIN}, headers=as_("admin"))
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert first.json()["state"] == "recorded"
    assert source.cancels == {sample.TRAIN: "alice"}


def test_a_cancel_of_what_is_over_is_confirmed_and_records_nothing(
    client: httpx.Client, source: fake.FakeSource
) -> None:
    reply = client.post("/v1/cancel", json={"ref": "99"}, headers=as_("alice"))
    assert (reply.status_code, reply.json()["state"]) == (202, "confirmed")
    assert source.cancels == {}


def test_only_the_owner_or_an_admin_cancels(client: httpx.Client, source: fake.FakeSource) -> None:
    reply = client.post("/v1/cancel", json={"ref": "llm-server-7d9f8b6c5d-x2x9k"}, headers=as_("alice"))
    assert reply.status_code == 403
    assert "you are alice: only its owner or a platform admin can cancel it" in reply.json()["detail"]
    assert source.cancels == {}


@pytest.mark.parametrize("body", [{"ref": ""}, {}, {"ref": "123", "force": True}])
def test_a_bad_cancel_body_names_the_field(client: httpx.Client, body: dict[str, object]) -> None:
    reply = client.post("/v1/cancel", json=body, headers=as_("admin"))
    assert reply.status_code == 422
    assert reply.json()["detail"].startswith("body.")


def test_a_body_larger_than_any_route_needs_is_not_read(client: httpx.Client) -> None:
    reply = client.post("/v1/cancel", content=b"x" * 20_000, headers=as_("admin"))
    assert reply.status_code == 413
    chunks = client.post("/v1/cancel", content=iter([b"x"]), headers=as_("admin"))
    assert chunks.status_code == 411


def test_the_journal_is_paged_and_hides_what_others_ran(client: httpx.Client) -> None:
    page = client.get("/v1/ledger/entries?limit=4", headers=as_("bob")).json()
    rest = client.get(f"/v1/ledger/entries?after={page['next_after']}", headers=as_("bob")).json()
    entries = page["items"] + rest["items"]
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4, 5, 6, 7]
    assert [entry["seq"] for entry in entries if entry["hidden"]] == [2, 3, 6]
    assert entries[6]["workload"] == sample.SWEEP  # a note names no team, but is about work of his own
    alice = client.get("/v1/ledger/entries", headers=as_("alice")).json()["items"]
    assert [entry["seq"] for entry in alice if entry["hidden"]] == [4, 5, 7]
    assert all(entry["workload"] is None and entry["detail"] == {} for entry in entries if entry["hidden"])
    assert entries[1]["gpus"] == 4
    end = client.get("/v1/ledger/entries?after=7", headers=as_("bob")).json()
    assert end == {"items": [], "next_after": 7}


def test_verify_counts_for_everybody_and_tells_admins(client: httpx.Client, source: fake.FakeSource) -> None:
    clean = client.get("/v1/ledger/verify", headers=as_("bob")).json()
    assert clean == {"clean": True, "count": 0, "problems": []}
    source.found_problems = [Problem("balance of vision/h100 is 4, entries say 8")]
    assert client.get("/v1/ledger/verify", headers=as_("bob")).json() == {
        "clean": False,
        "count": 1,
        "problems": [],
    }
    told = client.get("/v1/ledger/verify", headers=as_("admin")).json()
    assert told["problems"] == ["balance of vision/h100 is 4, entries say 8"]


def test_usage_is_exact_and_its_window_is_checked(client: httpx.Client) -> None:
    found = client.get("/v1/usage?from=1000&to=2000", headers=as_("admin")).json()
    assert (found["from_ms"], found["to_ms"]) == (1000, 2000)
    assert sum(row["gpu_ms"] for row in found["items"]) == 9_900_500
    backwards = client.get("/v1/usage?from=2000&to=1000", headers=as_("alice"))
    assert backwards.status_code == 422
    assert backwards.json()["detail"].startswith("from=2000 is not before to=1000")
    assert client.get("/v1/usage?from=yesterday", headers=as_("alice")).json()["detail"].startswith("from='yesterday'")


def test_usage_is_of_this_month_and_of_the_callers_teams(client: httpx.Client) -> None:
    found = client.get("/v1/usage", headers=as_("alice")).json()
    first = datetime.fromtimestamp(sample.NOW_MS / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert (found["from_ms"], found["to_ms"]) == (int(first.timestamp()) * 1000, sample.NOW_MS)
    assert {row["team"] for row in found["items"]} == {"vision"}
    assert {row["team"] for row in client.get("/v1/usage", headers=as_("bob")).json()["items"]} == {"nlp"}


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("team", [("nlp", "", None, 900_000), ("vision", "", None, 9_000_500)]),
        ("user", [("", "alice", None, 9_000_500), ("", "nora", None, 900_000)]),
        (
            "system,team",
            [
                ("nlp", "", "slurm", 900_000),
                ("vision", "", "kubernetes", 1_800_500),
                ("vision", "", "slurm", 7_200_000),
            ],
        ),
    ],
)
def test_usage_is_told_apart_by_what_is_asked_for(
    client: httpx.Client, by: str, rows: list[tuple[str, str, str | None, int]]
) -> None:
    found = client.get(f"/v1/usage?by={by}", headers=as_("admin")).json()["items"]
    assert [(row["team"], row["user"], row["system"], row["gpu_ms"]) for row in found] == rows


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("by=colour", "by='colour': 'colour' is not among day, month, team, user, system, flavor"),
        ("by=day,month", "by='day,month': ask for day or month, not for both"),
        ("by=,", "by=',' names nothing"),
        ("by=day&from=0", "at most 1200 are told at once"),
        ("from=999999999d", "is before 1970 or after the year 9999"),
        ("from=999999999999999", "is before 1970 or after the year 9999"),
    ],
)
def test_usage_that_cannot_be_told_is_refused_in_one_sentence(client: httpx.Client, query: str, sentence: str) -> None:
    refused = client.get(f"/v1/usage?{query}", headers=as_("alice"))
    assert refused.status_code == 422
    assert sentence in refused.json()["detail"]


def test_an_outage_is_a_503_that_says_so_and_status_still_answers(
    client: httpx.Client, source: fake.FakeSource
) -> None:
    source.unknown = "slurmctld of main cannot be reached since 12 s"
    reply = client.get("/v1/queue", headers=as_("alice"))
    assert reply.status_code == 503
    assert reply.json()["type"] == "urn:slurmbridge:problem:unknown-state"
    assert reply.json()["detail"] == source.unknown
    assert client.get("/v1/status", headers=as_("alice")).status_code == 200


def test_a_bug_is_a_problem_document_that_tells_no_internals(
    client: httpx.Client, source: fake.FakeSource, monkeypatch: pytest.MonkeyPatch, failures: Failures
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(source, "nodes", broken)
    reply = client.get("/v1/nodes", headers=as_("alice"))
    assert reply.status_code == 500
    assert reply.json()["type"] == "urn:slurmbridge:problem:internal"
    assert "secret" not in reply.text
    deadline = time.monotonic() + 5
    while not any("Exception in ASGI" in message for message in failures.messages):
        assert time.monotonic() < deadline, "the traceback is not in the log"
        time.sleep(0.01)
    failures.messages.clear()


def test_unknown_paths_and_methods_are_problems_too(client: httpx.Client) -> None:
    assert client.get("/v2/queue").json()["type"] == "urn:slurmbridge:problem:http-404"
    wrong = client.post("/v1/queue", headers=as_("alice"))
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "GET"


def test_no_answer_is_kept_by_a_shared_cache(client: httpx.Client) -> None:
    assert client.get("/v1/queue", headers=as_("alice")).headers["cache-control"] == "no-store"
