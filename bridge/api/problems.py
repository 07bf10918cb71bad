"""Errors as RFC 9457 problem documents. Clients compare the stable `type`; `detail` is the sentence."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from bridge import errors
from bridge.api.identity import NotAllowedError, NotAuthenticatedError

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:slurmbridge:problem:"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: its stable name, HTTP status and title."""

    name: str
    status: int
    title: str


NOT_AUTHENTICATED = Kind("not-authenticated", 401, "Not authenticated")
NOT_ALLOWED = Kind("not-allowed", 403, "Not allowed")
NOT_FOUND = Kind("not-found", 404, "No such workload")
AMBIGUOUS = Kind("ambiguous", 409, "Several workloads match")
CONFLICT = Kind("conflict", 409, "Changed meanwhile")
INVALID = Kind("invalid", 422, "Invalid request")
REFUSED = Kind("refused", 422, "Refused")
UNKNOWN_STATE = Kind("unknown-state", 503, "Cannot be known now")
NOT_LEADING = Kind("not-leading", 503, "Another replica leads")
INTERNAL = Kind("internal", 500, "Fault of the bridge")

_OF_FAULT: tuple[tuple[type[errors.BridgeError], Kind], ...] = (
    (NotAuthenticatedError, NOT_AUTHENTICATED),
    (NotAllowedError, NOT_ALLOWED),
    (errors.NotFoundError, NOT_FOUND),
    (errors.ConflictError, CONFLICT),
    (errors.InvalidInputError, INVALID),
    (errors.RejectedError, REFUSED),
    (errors.UnknownStateError, UNKNOWN_STATE),
    (errors.OutcomeUnknownError, UNKNOWN_STATE),
    (errors.StaleLeaderError, NOT_LEADING),
)


class ProblemError(Exception):
    """A problem that a route raises itself, with extension members beside the standard ones."""

    def __init__(self, kind: Kind, detail: str, extensions: Mapping[str, object] | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.extensions = extensions or {}


def document(kind: Kind, detail: str, extensions: Mapping[str, object] | None = None) -> JSONResponse:
    """Make the response that carries a problem."""
    body = {**(extensions or {}), "type": TYPE_PREFIX + kind.name, "title": kind.title, "status": kind.status}
    headers = {"WWW-Authenticate": "Bearer"} if kind is NOT_AUTHENTICATED else None
    return JSONResponse({**body, "detail": detail}, status_code=kind.status, media_type=MEDIA_TYPE, headers=headers)


def kind_of(fault: errors.BridgeError) -> Kind:
    """Map a fault to its kind; one that is not meant for callers is internal."""
    return next((kind for type_, kind in _OF_FAULT if isinstance(fault, type_)), INTERNAL)


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem document."""
    app.add_exception_handler(ProblemError, _raised)
    app.add_exception_handler(errors.BridgeError, _fault)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


def _raised(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProblemError)  # noqa: S101 - starlette registers handlers by this very type
    return document(error.kind, error.detail, error.extensions)


def _fault(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.BridgeError)  # noqa: S101 - as above
    return document(kind_of(error), str(error))


def _invalid(_: Request, error: Exception) -> JSONResponse:
    """Say the first bad field in one sentence, and all of them for machines."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    found = [
        {
            "field": ".".join(str(part) for part in e["loc"]),
            "value": repr(e.get("input")),
            "problem": str(e["msg"]),
        }
        for e in error.errors()
    ]
    first = found[0]
    return document(INVALID, f"{first['field']}={first['value']}: {first['problem']}", {"errors": found})


def _http(_: Request, error: Exception) -> JSONResponse:
    """Unknown routes and methods, as the framework raises them."""
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    kind = Kind(f"http-{error.status_code}", error.status_code, str(error.detail))
    response = document(kind, f"{error.detail}; /v1/openapi.json lists what exists")
    response.headers.update(error.headers or {})
    return response


def _bug(_: Request, __: Exception) -> JSONResponse:
    """Tell nothing of what is inside; the server logs the traceback."""
    return document(INTERNAL, "the bridge failed to answer; its log has the traceback")
