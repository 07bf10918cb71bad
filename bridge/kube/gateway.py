"""The Gateway over a real API server: raw JSON with msgspec, whole lists or an error, writes never sent twice."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import tenacity

from bridge import wellknown
from bridge.errors import InvalidInputError, OutcomeUnknownError, UnknownStateError
from bridge.kube import answers, paths
from bridge.kube.port import EventType, ExpiredError, Kind, Listing, Object, PatchType, WatchEvent
from bridge.kube.transport import JSON, READ_S, Answer, LostAnswerError, Transport

PAGE_SIZE: Final = 500
MAX_PAGES: Final = 2_000
MAX_EVENT_BYTES: Final = 8 * 1024 * 1024

Fault = Callable[[str], None]

# Reads may be asked again: nothing changes by asking. Bounded, so that a cycle is late by seconds at most.
READ_RETRY: Final = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(UnknownStateError),
    stop=tenacity.stop_after_attempt(3) | tenacity.stop_after_delay(4),
    wait=tenacity.wait_random_exponential(multiplier=0.1, max=1),
    reraise=True,
)


def _silent(_site: str) -> None:
    """Do nothing: the hook of a production process."""


class KubeGateway:
    """Thread safe. `fault` is told "kube.<verb>.<resource>.before" and ".after" around each write."""

    def __init__(self, transport: Transport, *, read_s: float = READ_S, fault: Fault | None = None) -> None:
        self._transport = transport
        self._read_s = read_s
        self._fault = fault or _silent

    def list(self, kind: Kind, *, namespace: str | None = None, label_selector: str = "") -> Listing:
        """List all pages; pages that expired under us are listed again, once."""
        with suppress(ExpiredError):
            return self._list(kind, namespace, label_selector)
        try:
            return self._list(kind, namespace, label_selector)
        except ExpiredError as error:
            raise UnknownStateError(f"the list of {kind.plural} expired while it was read: {error}") from error

    def watch(
        self,
        kind: Kind,
        resource_version: str,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        timeout_s: int = 300,
    ) -> Iterator[WatchEvent]:
        """Stream changes after `resource_version`; UnknownStateError when the stream is torn or silent."""
        path = paths.with_query(
            paths.collection(kind, namespace),
            watch=True,
            allowWatchBookmarks=True,
            resourceVersion=resource_version,
            timeoutSeconds=timeout_s,
            labelSelector=label_selector,
        )
        try:
            # Bookmarks come at no promised rate, so only silence beyond the watch's own end proves a dead stream.
            with self._transport.stream(path, read_s=timeout_s + self._read_s) as (status, chunks):
                if status != 200:  # noqa: PLR2004 -- the only status of a stream
                    answers.refused(status, b"".join(chunks), write=False)
                for line in _lines(chunks):
                    yield _event(kind, line)
        except LostAnswerError as error:
            raise UnknownStateError(str(error)) from error

    def get(self, kind: Kind, name: str, *, namespace: str | None = None) -> Object:
        """Return one object."""
        return self._read(paths.one(kind, name, namespace))

    def create(self, kind: Kind, obj: Object, *, namespace: str | None = None) -> Object:
        """Create; the namespace may stand in the object."""
        namespace = namespace or obj["metadata"].get("namespace")
        if kind.namespaced and not namespace:
            raise InvalidInputError(f"{kind.kind} {obj['metadata'].get('name')!r} is in a namespace: name it")
        path = paths.with_query(paths.collection(kind, namespace), fieldManager=wellknown.FIELD_MANAGER)
        return self._write("POST", path, obj, site=f"create.{kind.plural}")

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        type: PatchType = PatchType.MERGE,  # noqa: A002 -- the port's word
        subresource: str = "",
        force: bool = False,
    ) -> Object:
        """Patch; `force` is for APPLY only, as the API server says."""
        path = paths.with_query(
            paths.one(kind, name, namespace, subresource),
            fieldManager=wellknown.FIELD_MANAGER,
            force=force or None,
        )
        site = f"patch.{kind.plural}" + (f"/{subresource}" if subresource else "")
        return self._write("PATCH", path, patch, content_type=type.value, site=site)

    def delete(
        self, kind: Kind, name: str, *, namespace: str | None = None, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        """Delete in the background: dependents are the garbage collector's."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        self._write("DELETE", paths.one(kind, name, namespace), options, site=f"delete.{kind.plural}")

    def post(self, path: str, body: Object) -> Object:
        """POST to a raw path; its last word names the fault site."""
        return self._write("POST", path, body, site=f"post.{path.rstrip('/').rsplit('/', 1)[-1]}")

    def version(self) -> tuple[int, int]:
        """Return (major, minor) of the server."""
        told = self._read("/version")
        try:
            return int(told["major"]), int(str(told["minor"]).rstrip("+"))
        except (KeyError, ValueError) as error:
            raise UnknownStateError(f"the API server's version is unreadable: {told}") from error

    def _list(self, kind: Kind, namespace: str | None, label_selector: str) -> Listing:
        items: list[Object] = []
        token, version = "", ""
        for _ in range(MAX_PAGES):
            path = paths.with_query(
                paths.collection(kind, namespace), limit=PAGE_SIZE, **{"continue": token}, labelSelector=label_selector
            )
            answer = READ_RETRY.copy()(self._get, path)
            found, version, token = answers.page(kind, answer.status, answer.body)
            items += found
            if not token:
                return answers.listing(items, version)
        raise UnknownStateError(f"the list of {kind.plural} has more than {MAX_PAGES} pages")

    def _read(self, path: str) -> Object:
        def once() -> Object:
            answer = self._get(path)
            return answers.obj(answer.status, answer.body, write=False)

        return READ_RETRY.copy()(once)

    def _get(self, path: str) -> Answer:
        try:
            answer = self._transport.send("GET", path, read_s=self._read_s)
        except LostAnswerError as error:
            raise UnknownStateError(str(error)) from error
        if answer.status >= 500:  # noqa: PLR2004 -- raised here, so that it is asked again
            answers.refused(answer.status, answer.body, write=False)
        return answer

    def _write(self, method: str, path: str, body: Any, *, site: str, content_type: str = JSON) -> Object:
        """Send once. What may have reached the server and was not answered is OutcomeUnknownError."""
        self._fault(f"kube.{site}.before")
        try:
            answer = self._transport.send(
                method, path, body=msgspec.json.encode(body), content_type=content_type, read_s=self._read_s
            )
        except LostAnswerError as error:
            raise OutcomeUnknownError(f"{method} {path.partition('?')[0]}: {error}") from error
        if content_type == PatchType.JSON.value:
            made = answers.patched(answer.status, answer.body)
        else:
            made = answers.obj(answer.status, answer.body, write=True)
        self._fault(f"kube.{site}.after")
        return made


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut chunks into lines; an unfinished last line is dropped with its stream (the next watch repeats it)."""
    rest = bytearray()
    for chunk in chunks:
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > MAX_EVENT_BYTES:
                raise UnknownStateError(f"a watch event is larger than {MAX_EVENT_BYTES} bytes")
            continue
        *whole, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        yield from (line for line in whole if line)


def _event(kind: Kind, line: bytes) -> WatchEvent:
    try:
        told = msgspec.json.decode(line)
        word, obj = told["type"], told["object"]
        if word == "ERROR":
            answers.refused(int(obj.get("code") or 500), msgspec.json.encode(obj), write=False)
        event = WatchEvent(EventType(word), obj)
        if not event.object["metadata"]["resourceVersion"]:
            raise UnknownStateError(f"a watch event of {kind.plural} has no resourceVersion")
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise UnknownStateError(f"a watch event of {kind.plural} is unreadable: {error}") from error
    return event
