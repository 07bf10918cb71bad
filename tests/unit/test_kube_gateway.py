"""The gateway against servers that lie, stall and break off: nothing is concluded, nothing is written twice (N1)."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes import client

from bridge.errors import ConflictError, NotFoundError, OutcomeUnknownError, RejectedError, UnknownStateError
from bridge.kube import port, transport
from bridge.kube.gateway import KubeGateway
from bridge.kube.port import EventType, ExpiredError, Object, PatchType

Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers each request with the next reply of the script, the last one again and again."""

    protocol_version = "HTTP/1.1"

    def do(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        script = self.server.script  # type: ignore[attr-defined]
        script.credentials.append(self.headers.get("Authorization"))
        script.seen.append((self.command, self.path, self.headers.get("Content-Type"), body))
        script.reply()(self)

    do_GET = do_POST = do_PATCH = do_DELETE = do  # noqa: N815 -- the names that the library calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Script:
    def __init__(self, *replies: Reply) -> None:
        self.seen: list[tuple[str, str, str | None, bytes]] = []
        self.credentials: list[str | None] = []
        self._replies = list(replies)

    def reply(self) -> Reply:
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    @property
    def methods(self) -> list[str]:
        return [method for method, *_ in self.seen]


def says(status: int, body: Any) -> Reply:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def reply(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return reply


def streams(*parts: bytes, then: Callable[[], None] = lambda: None) -> Reply:
    def reply(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            handler.wfile.flush()
        then()
        handler.close_connection = True

    return reply


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True


def breaks_off(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"kind":"PodList"')
    handler.close_connection = True


def stalls(handler: Handler) -> None:
    time.sleep(1)
    handler.close_connection = True


@contextmanager
def serving(*replies: Reply, read_s: float = 0.4) -> Iterator[tuple[KubeGateway, Script]]:
    script = Script(*replies)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.script = script  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield KubeGateway(over(f"http://127.0.0.1:{server.server_address[1]}"), read_s=read_s), script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def over(url: str) -> transport.Transport:
    settings = client.Configuration()
    settings.host = url
    return transport.over(settings, connections=4)


def nobody() -> KubeGateway:
    return KubeGateway(over("http://127.0.0.1:1"), read_s=0.4)


def status(code: int, reason: str, message: str, **details: Any) -> Reply:
    return says(code, {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details})


def pod(name: str, version: str = "5") -> Object:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": version, "uid": f"u-{name}"}}


def page(*names: str, more: str = "", **change: Any) -> Reply:
    meta = {"resourceVersion": "9", "continue": more}
    return says(
        200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": [pod(n) for n in names], **change}
    )


# --- lists -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "lie",
    [
        page(items=None),
        page(kind="NodeList"),
        page(metadata={}),
        page(metadata=None),
        page(items=[{"metadata": {"name": "a"}}]),
        page(items=[None]),
        page("a", "a"),
        says(200, {"kind": "Status", "status": "Success"}),
        says(200, {"items": []}),
        says(200, b""),
        says(200, b"null"),
        says(200, b"[]"),
        says(200, b"<html>sign in</html>"),
        says(204, b""),
        says(302, b""),
        says(404, b"404 page not found"),
        status(404, "NotFound", "the server could not find the requested resource"),
        status(500, "InternalError", "etcdserver: leader changed"),
        status(503, "ServiceUnavailable", "apiserver not ready"),
        status(429, "TooManyRequests", "too many requests"),
        breaks_off,
        hangs_up,
        stalls,
    ],
)
def test_what_is_no_whole_list_is_unknown_and_never_empty(lie: Reply) -> None:
    """N1."""
    with serving(lie) as (gateway, _), pytest.raises(UnknownStateError):
        gateway.list(port.PODS)


@pytest.mark.parametrize(("code", "reason"), [(401, "Unauthorized"), (403, "Forbidden"), (400, "BadRequest")])
def test_a_refused_list_is_the_servers_own_sentence(code: int, reason: str) -> None:
    with (
        serving(status(code, reason, "pods is forbidden")) as (gateway, _),
        pytest.raises(RejectedError, match="pods is forbidden"),
    ):
        gateway.list(port.PODS)


def test_nobody_there_is_unknown() -> None:
    with pytest.raises(UnknownStateError, match="cannot connect"):
        nobody().list(port.PODS)


def test_our_token_travels_and_without_one_nothing_is_sent() -> None:
    def lost(_: object) -> None:
        raise FileNotFoundError("the token is gone")

    settings = client.Configuration()
    settings.api_key = {"authorization": "Bearer mine"}
    with serving(page("a")) as (plain, script):
        settings.host = plain._transport._host
        gateway = KubeGateway(transport.over(settings, connections=1))
        assert len(gateway.list(port.PODS).items) == 1
        assert script.credentials == ["Bearer mine"]
        settings.refresh_api_key_hook = lost  # type: ignore[assignment]
        with pytest.raises(UnknownStateError, match="no credentials"):
            gateway.list(port.PODS)
        with pytest.raises(UnknownStateError, match="no credentials"):
            WRITES["create"](gateway)
    assert len(script.seen) == 1


def test_a_list_is_all_of_its_pages() -> None:
    with serving(page("a", "b", more="t1"), page("c", more="t2"), page("d")) as (gateway, script):
        found = gateway.list(port.PODS)
    assert [p["metadata"]["name"] for p in found.items] == ["a", "b", "c", "d"]
    assert [p["kind"] for p in found.items] == ["Pod"] * 4
    assert ["continue" in path for _, path, _, _ in script.seen] == [False, True, True]


def test_a_list_without_its_last_page_is_unknown() -> None:
    """N1: a partial list is never returned."""
    with (
        serving(page("a", more="t1"), status(500, "InternalError", "x")) as (gateway, _),
        pytest.raises(UnknownStateError),
    ):
        gateway.list(port.PODS)


def test_pages_that_expired_are_listed_again_once() -> None:
    gone = status(410, "Expired", "the provided continue parameter is too old")
    with serving(page("a", more="t1"), gone, page("a", more="t2"), page("b")) as (gateway, _):
        assert len(gateway.list(port.PODS).items) == 2
    with (
        serving(page("a", more="t1"), gone, page("a", more="t2"), gone) as (gateway, _),
        pytest.raises(UnknownStateError, match="expired while it was read"),
    ):
        gateway.list(port.PODS)


def test_a_read_is_asked_again_when_the_server_faltered() -> None:
    with serving(status(500, "InternalError", "x"), hangs_up, page("a")) as (gateway, script):
        assert len(gateway.list(port.PODS).items) == 1
    assert script.methods == ["GET"] * 3


# --- single objects ----------------------------------------------------------------------------------------------
def test_only_an_answer_that_names_the_object_says_that_it_is_gone() -> None:
    """N1: a single unknown object is not a missing one."""
    with (
        serving(status(404, "NotFound", 'pods "a" not found', name="a", kind="pods")) as (gateway, _),
        pytest.raises(NotFoundError),
    ):
        gateway.get(port.PODS, "a", namespace="n")
    for lie in (says(404, b"not here"), status(404, "NotFound", "the server could not find the requested resource")):
        with serving(lie) as (gateway, _), pytest.raises(UnknownStateError):
            gateway.get(port.PODS, "a", namespace="n")


# --- writes ------------------------------------------------------------------------------------------------------
Write = Callable[[KubeGateway], object]
WRITES: dict[str, Write] = {
    "create": lambda g: g.create(port.PODS, {"metadata": {"name": "a"}}, namespace="n"),
    "patch": lambda g: g.patch(port.PODS, "a", {}, namespace="n"),
    "json-patch": lambda g: g.patch(port.PODS, "a", [], namespace="n", type=PatchType.JSON),
    "delete": lambda g: g.delete(port.PODS, "a", namespace="n"),
    "post": lambda g: g.post("/api/v1/namespaces/n/pods/a/eviction", {}),
}
LOST = {
    "stalls": stalls,
    "hangs-up": hangs_up,
    "breaks-off": breaks_off,
    "500": status(500, "InternalError", "etcdserver: request timed out"),
    "504": status(504, "Timeout", "request did not complete"),
    "502": says(502, b"<html>bad gateway</html>"),
    "200-without-object": says(200, b""),
    "redirect": says(307, b""),
}


@pytest.mark.parametrize("loss", LOST.values(), ids=LOST)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_whose_answer_was_lost_is_sent_once_and_its_outcome_unknown(write: Write, loss: Reply) -> None:
    with serving(loss) as (gateway, script), pytest.raises(OutcomeUnknownError):
        write(gateway)
    assert len(script.seen) == 1


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_that_certainly_did_nothing_says_so(write: Write) -> None:
    with pytest.raises(UnknownStateError, match="cannot connect"):
        write(nobody())
    with (
        serving(status(429, "TooManyRequests", "too many requests")) as (gateway, _),
        pytest.raises(UnknownStateError, match="did nothing"),
    ):
        write(gateway)


def test_an_eviction_that_a_budget_forbids_is_refused_not_retried() -> None:
    budget = status(429, "TooManyRequests", "would violate", causes=[{"reason": "DisruptionBudget"}])
    with serving(budget) as (gateway, script), pytest.raises(RejectedError, match="would violate"):
        gateway.post("/api/v1/namespaces/n/pods/a/eviction", {})
    assert len(script.seen) == 1


def test_a_json_patch_that_does_not_fit_conflicts_and_an_invalid_spec_is_refused() -> None:
    unfit = status(422, "Invalid", "the server rejected our request due to an error in our request")
    invalid = status(422, "Invalid", "spec is invalid", name="a", causes=[{"field": "spec.x"}])
    for reply, fault in ((unfit, ConflictError), (invalid, RejectedError)):
        with serving(reply) as (gateway, _), pytest.raises(fault):
            gateway.patch(port.PODS, "a", [], namespace="n", type=PatchType.JSON)


def test_the_hook_is_told_each_write_before_and_after_it() -> None:
    sites: list[str] = []
    with serving(says(200, pod("a"))) as (gateway, script):
        hooked = KubeGateway(gateway._transport, fault=sites.append)
        hooked.patch(port.PODS, "a", {}, namespace="n", subresource="status")
        hooked.get(port.PODS, "a", namespace="n")
    assert sites == ["kube.patch.pods/status.before", "kube.patch.pods/status.after"]
    assert script.seen[0][1].startswith("/api/v1/namespaces/n/pods/a/status?fieldManager=")


def test_after_a_lost_answer_the_hook_is_not_told_that_it_was_written() -> None:
    sites: list[str] = []
    with serving(hangs_up) as (gateway, _), pytest.raises(OutcomeUnknownError):
        WRITES["create"](KubeGateway(gateway._transport, fault=sites.append))
    assert sites == ["kube.create.pods.before"]


@pytest.mark.parametrize("kind", list(PatchType))
def test_a_patch_travels_with_its_own_content_type(kind: PatchType) -> None:
    with serving(says(200, pod("a"))) as (gateway, script):
        gateway.patch(port.TEAMS, "a", {}, type=kind)
    assert script.seen[0][2] == kind.value


# --- watches -----------------------------------------------------------------------------------------------------
def event(word: str, obj: Object) -> bytes:
    return json.dumps({"type": word, "object": obj}).encode() + b"\n"


def test_events_are_put_together_from_chunks() -> None:
    whole = event("ADDED", pod("a", "6")) + event("MODIFIED", pod("a", "7")) + event("BOOKMARK", pod("", "8"))
    for size in (7, 100, len(whole)):
        parts = [whole[i : i + size] for i in range(0, len(whole), size)]
        with serving(streams(*parts, b"")) as (gateway, _):
            seen = list(gateway.watch(port.PODS, "5", timeout_s=1))
        assert [e.type for e in seen] == [EventType.ADDED, EventType.MODIFIED, EventType.BOOKMARK]


def test_an_event_that_broke_off_is_not_told() -> None:
    half = event("ADDED", pod("b"))[:20]
    with serving(streams(event("ADDED", pod("a")), half)) as (gateway, _):
        stream = gateway.watch(port.PODS, "5", timeout_s=1)
        assert next(stream).object["metadata"]["name"] == "a"
        with pytest.raises(UnknownStateError, match="ended early"):
            next(stream)


def test_a_silent_watch_is_taken_for_dead_soon_after_its_end() -> None:
    ended = threading.Event()
    with serving(streams(event("ADDED", pod("a")), then=lambda: bool(ended.wait(10)))) as (gateway, _):  # type: ignore[arg-type]
        stream = gateway.watch(port.PODS, "5", timeout_s=1)
        next(stream)
        begun = time.monotonic()
        with pytest.raises(UnknownStateError):
            next(stream)
        assert time.monotonic() - begun < 3
        ended.set()


@pytest.mark.parametrize(
    "garbage",
    [b"garbage\n", b"{}\n", event("WHATEVER", pod("a")), event("ADDED", {}), b'{"type":"ADDED","object":null}\n'],
)
def test_an_unreadable_event_is_unknown(garbage: bytes) -> None:
    with serving(streams(garbage, b"")) as (gateway, _), pytest.raises(UnknownStateError):
        list(gateway.watch(port.PODS, "5", timeout_s=1))


def test_a_version_that_is_too_old_is_said_at_once_or_in_the_stream() -> None:
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    for reply in (says(410, expired), streams(event("ERROR", expired), b"")):
        with serving(reply) as (gateway, _), pytest.raises(ExpiredError, match="too old"):
            list(gateway.watch(port.PODS, "5", timeout_s=1))


def test_a_version_that_is_unreadable_is_unknown() -> None:
    with serving(says(200, {"gitVersion": "v1"})) as (gateway, _), pytest.raises(UnknownStateError):
        gateway.version()
    with serving(says(200, {"major": "1", "minor": "37+"})) as (gateway, _):
        assert gateway.version() == (1, 37)
