"""What an answer of the API server means: an object, a list, or one of our faults with the server's own sentence."""

from typing import Any, Final, NoReturn

import msgspec

from bridge.errors import ConflictError, NotFoundError, OutcomeUnknownError, RejectedError, UnknownStateError
from bridge.kube.port import ExpiredError, Kind, Listing, Object

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_GONE: Final = 410
_INVALID: Final = 422
_TOO_MANY: Final = 429
_SERVER_FAULT: Final = 500


def patched(status: int, body: bytes) -> Object:
    """Return the object that a JSON patch made; ConflictError when the patch does not fit the object as it stands."""
    if _does_not_apply(status, body):
        raise ConflictError("the object changed: a `test` of the patch does not hold, or a path of it is gone")
    return obj(status, body, write=True)


def obj(status: int, body: bytes, *, write: bool) -> Object:
    """Return the object of a 2xx answer; raise what any other means."""
    decoded = _decoded(body)
    if not 200 <= status < 300:  # noqa: PLR2004 -- success, as HTTP defines it
        _refuse(status, decoded, body, write=write)
    if not isinstance(decoded, dict):
        fault = OutcomeUnknownError if write else UnknownStateError
        raise fault(f"HTTP {status} without a JSON object: {_excerpt(body)}")
    return decoded


def page(kind: Kind, status: int, body: bytes) -> tuple[list[Object], str, str]:
    """Return (items, resourceVersion, continue) of one page of a list. Anything but a whole list raises.

    The API server writes `"items": []` for none, never null: a null or absent list says that somebody else answered.
    """
    decoded = obj(status, body, write=False)
    if decoded.get("kind") != f"{kind.kind}List":
        raise UnknownStateError(f"asked for {kind.plural}, got HTTP {status} and kind {decoded.get('kind')!r}")
    items, meta = decoded.get("items"), decoded.get("metadata")
    if not isinstance(items, list) or not isinstance(meta, dict) or not meta.get("resourceVersion"):
        raise UnknownStateError(f"the list of {kind.plural} has no items or no resourceVersion: {_excerpt(body)}")
    for item in items:
        _check(kind, item)
        item.setdefault("apiVersion", api_version(kind))  # a list leaves out what all its items have in common
        item.setdefault("kind", kind.kind)
    return items, meta["resourceVersion"], meta.get("continue") or ""


def listing(items: list[Object], resource_version: str) -> Listing:
    """Return the whole list; the same name twice says that pages of two lists were mixed."""
    names = {(i["metadata"].get("namespace"), i["metadata"]["name"]) for i in items}
    if len(names) != len(items):
        raise UnknownStateError(f"a list names {len(items) - len(names)} objects twice")
    return Listing(tuple(items), resource_version)


def api_version(kind: Kind) -> str:
    """Return "v1" or "group/version"."""
    return f"{kind.group}/{kind.version}" if kind.group else kind.version


def is_refusal(status: int, body: bytes) -> bool:
    """Return whether an answer is the API server's own refusal (a Status), not that of what it passed us on to."""
    if status < 400:  # noqa: PLR2004 -- refusals are 4xx and 5xx
        return False
    decoded = _decoded(body)
    return isinstance(decoded, dict) and (decoded.get("kind"), decoded.get("apiVersion")) == ("Status", "v1")


def refused(status: int, body: bytes, *, write: bool) -> NoReturn:
    """Raise what a status outside 2xx means."""
    _refuse(status, _decoded(body), body, write=write)


def _refuse(status: int, decoded: Any, body: bytes, *, write: bool) -> NoReturn:
    said = decoded if isinstance(decoded, dict) and decoded.get("kind") == "Status" else None
    sentence = str(said.get("message") or said.get("reason")) if said else f"HTTP {status}: {_excerpt(body)}"
    if status == _GONE:
        raise ExpiredError(sentence)
    details = (said or {}).get("details") or {}
    if status == _NOT_FOUND:
        # Only a Status that names the object says that the object is not there. Otherwise it is the path that does not
        # exist: a CRD that is not installed, something in front of the API server.
        raise NotFoundError(sentence) if details.get("name") else UnknownStateError(f"no such path: {sentence}")
    causes = details.get("causes") or []
    if status == _CONFLICT or any(cause.get("field") == "metadata.uid" for cause in causes):
        raise ConflictError(sentence)  # a patch for one UID met another object of the same name
    if status == _TOO_MANY and not any(cause.get("reason") == "DisruptionBudget" for cause in causes):
        raise UnknownStateError(f"the API server is busy and did nothing: {sentence}")
    if status >= _SERVER_FAULT or status < 400:  # noqa: PLR2004 -- a redirect is an answer of somebody else
        raise OutcomeUnknownError(sentence) if write else UnknownStateError(sentence)
    raise RejectedError(sentence)


def _does_not_apply(status: int, body: bytes) -> bool:
    """Return whether a JSON patch did not fit the object as it stands: a `test` that does not hold, a missing path.

    The API server says no more than 422 Invalid without any details; a spec that it finds invalid comes with details.
    """
    if status != _INVALID:
        return False
    said = _decoded(body)
    return isinstance(said, dict) and said.get("reason") == "Invalid" and not said.get("details")


def _check(kind: Kind, item: Any) -> None:
    meta = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(meta, dict) or not all(isinstance(meta.get(k), str) for k in ("name", "resourceVersion")):
        raise UnknownStateError(f"an item in the list of {kind.plural} has no name or no resourceVersion")


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:300].decode(errors="replace").split())
    return text[:200] or "an empty body"
