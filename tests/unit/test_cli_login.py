"""Where the bridge is and whose token is used; what each kind of strange answer becomes."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from bridge.cli import client, login, transport
from bridge.cli.faults import CliError, Exit


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def scontrol(tmp_path: Path, script: str) -> Mapping[str, str]:
    executable(tmp_path / "scontrol", f"#!/bin/sh\n{script}\n")
    return {"PATH": f"{tmp_path}:/bin:/usr/bin"}


def test_tokens_of_the_environment_come_before_scontrol(tmp_path: Path) -> None:
    environment = scontrol(tmp_path, "echo SLURM_JWT=signed")
    assert login.token_for_url({**environment, "SBRIDGE_TOKEN": "mine\n", "SLURM_JWT": "theirs"}) == "mine"
    assert login.token_for_url({**environment, "SLURM_JWT": "theirs"}) == "theirs"
    assert login.token_for_url(environment) == "signed"


def test_scontrol_is_asked_for_a_short_lived_token(tmp_path: Path) -> None:
    environment = scontrol(tmp_path, f'echo "$@" > {tmp_path}/asked; echo SLURM_JWT=x')
    login.token_for_url(environment)
    assert (tmp_path / "asked").read_text() == "token lifespan=300\n"


def test_scontrols_own_sentence_is_passed_on(tmp_path: Path) -> None:
    environment = scontrol(tmp_path, "echo 'slurm_load: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(CliError, match="gave no token: slurm_load: Unable to contact slurm controller;") as caught:
        login.token_for_url(environment)
    assert caught.value.code is Exit.NOT_ALLOWED


def test_a_scontrol_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "SCONTROL_TIMEOUT_S", 0.2)
    with pytest.raises(CliError, match="did not answer") as caught:
        login.token_for_url(scontrol(tmp_path, "exec sleep 20"))
    assert caught.value.code is Exit.UNREACHABLE


def test_no_token_and_no_scontrol_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no token: set SBRIDGE_TOKEN") as caught:
        login.token_for_url({"PATH": str(tmp_path)})
    assert caught.value.code is Exit.NOT_ALLOWED


def test_nothing_configured_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="set SBRIDGE_URL, or KUBECONFIG") as caught:
        login.connect({"HOME": str(tmp_path)})
    assert caught.value.code is Exit.UNREACHABLE


@pytest.mark.parametrize("url", ["bridge:8080", "ftp://bridge", "http://", "file:///etc/passwd"])
def test_a_url_that_is_none_is_bad_usage(url: str) -> None:
    with pytest.raises(CliError, match="is no URL") as caught:
        login.connect({"SBRIDGE_URL": url, "SBRIDGE_TOKEN": "x"})
    assert caught.value.code is Exit.USAGE


class Scripted:
    """A transport that gives one reply."""

    def __init__(self, status: int, body: bytes) -> None:
        self._reply = transport.Reply(status, body)

    def request(self, method: str, path: str, *, query: transport.Query, body: bytes | None) -> transport.Reply:
        assert (method, path, query, body) == ("GET", "/v1/nodes", {}, None)
        return self._reply


def problem(kind: str, **extra: object) -> bytes:
    return json.dumps({"type": f"urn:slurmbridge:problem:{kind}", "detail": "a sentence", **extra}).encode()


def status(code: int) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "message": "said so"}).encode()


@pytest.mark.parametrize(
    ("code", "body", "exit_code", "sentence"),
    [
        (401, problem("not-authenticated"), Exit.NOT_ALLOWED, "a sentence"),
        (403, problem("not-allowed"), Exit.NOT_ALLOWED, "a sentence"),
        (404, problem("not-found"), Exit.NOT_FOUND, "a sentence"),
        (409, problem("ambiguous"), Exit.NOT_FOUND, "a sentence"),
        (409, problem("conflict"), Exit.REFUSED, "a sentence"),
        (422, problem("invalid"), Exit.USAGE, "a sentence"),
        (422, problem("refused"), Exit.REFUSED, "a sentence"),
        (503, problem("unknown-state"), Exit.UNREACHABLE, "a sentence"),
        (503, problem("not-leading"), Exit.UNREACHABLE, "a sentence"),
        (500, problem("internal"), Exit.REFUSED, "a sentence"),
        (404, problem("http-404"), Exit.REFUSED, "a sentence"),
        (403, status(403), Exit.NOT_ALLOWED, "Kubernetes refuses the way to the bridge: said so"),
        (404, status(404), Exit.UNREACHABLE, "Kubernetes cannot reach the bridge: said so"),
        (503, status(503), Exit.UNREACHABLE, "Kubernetes cannot reach the bridge: said so"),
        (302, b"", Exit.UNREACHABLE, "HTTP 302 is not the bridge"),
        (404, b"<html>nginx</html>", Exit.UNREACHABLE, "HTTP 404 is not the bridge"),
        (403, b"[]", Exit.NOT_ALLOWED, "HTTP 403 is not the bridge"),
        (200, b"<html>captive portal</html>", Exit.UNREACHABLE, "what answered is not the bridge's API"),
        (200, b"{}", Exit.UNREACHABLE, "items: Field required"),
        (200, b'{"items": [{"node": "g1"}]}', Exit.UNREACHABLE, "items.0.flavor: Field required"),
        (200, b"", Exit.UNREACHABLE, "what answered is not the bridge's API"),
    ],
)
def test_each_answer_has_its_exit_code(code: int, body: bytes, exit_code: Exit, sentence: str) -> None:
    with pytest.raises(CliError) as caught:
        client.Client(Scripted(code, body)).nodes()
    assert caught.value.code is exit_code
    assert sentence in caught.value.sentence


def test_fields_newer_than_this_client_reach_machines_and_do_not_break_tables() -> None:
    answer = client.Client(Scripted(200, b'{"items": [], "later": 1}')).nodes()
    assert answer.document == {"items": [], "later": 1}
    assert answer.view.items == ()


class Redirecting(BaseHTTPRequestHandler):
    """Sends everybody to /stolen and notes what was asked."""

    paths: list[str]

    def do_GET(self) -> None:
        """Redirect, whatever is asked."""
        self.paths.append(self.path)
        self.send_response(302)
        self.send_header("Location", "/stolen")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Stay quiet."""


@pytest.fixture
def redirecting() -> Iterator[tuple[str, list[str]]]:
    paths: list[str] = []
    handler = type("Handler", (Redirecting,), {"paths": paths})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/base/", paths
        server.shutdown()
        thread.join(5)


def test_a_redirect_is_not_followed_with_the_token(redirecting: tuple[str, list[str]]) -> None:
    url, paths = redirecting
    reply = transport.Direct(url, "secret").request(
        "GET", "/v1/queue", query={"state": ["running", "ended"]}, body=None
    )
    assert reply.status == 302
    assert paths == ["/base/v1/queue?state=running&state=ended"]


def test_a_bridge_that_does_not_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "TIMEOUT_S", 0.2)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:  # listens, never answers
        direct = transport.Direct(f"http://127.0.0.1:{silent.server_port}", "x")
        with pytest.raises(CliError, match="did not answer in time") as caught:
            direct.request("GET", "/v1/queue", query={}, body=None)
    assert caught.value.code is Exit.UNREACHABLE


def test_a_closed_port_is_unreachable() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_port
    with pytest.raises(CliError, match="cannot be reached") as caught:
        transport.Direct(f"http://127.0.0.1:{port}", "x").request("GET", "/", query={}, body=None)
    assert caught.value.code is Exit.UNREACHABLE
