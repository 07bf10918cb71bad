"""The API as typed calls. Turns every answer that is not the asked document into one sentence and an exit code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pydantic

from bridge.api.views import (
    CancelView,
    EntryPage,
    Explain,
    Items,
    NodeRow,
    QueueRow,
    QuotaRow,
    StatusView,
    UsageView,
    VerifyView,
)
from bridge.cli.faults import CliError, Exit
from bridge.cli.transport import Query, Reply, Transport

ViewT = TypeVar("ViewT", bound=pydantic.BaseModel)


@dataclass(frozen=True, slots=True)
class Answer(Generic[ViewT]):
    """A document of the API: read for tables, and as it came (fields newer than us included) for machines."""

    view: ViewT
    document: Any


PROBLEM = "urn:slurmbridge:problem:"
_EXIT_OF_PROBLEM: Mapping[str, Exit] = {
    "not-authenticated": Exit.NOT_ALLOWED,
    "not-allowed": Exit.NOT_ALLOWED,
    "not-found": Exit.NOT_FOUND,
    "ambiguous": Exit.NOT_FOUND,
    "invalid": Exit.USAGE,
    "unknown-state": Exit.UNREACHABLE,
    "not-leading": Exit.UNREACHABLE,
}
_FORBIDDEN = (401, 403)


class Client:
    """One method per route."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def status(self) -> Answer[StatusView]:
        """GET /v1/status."""
        return self._get(StatusView, "/v1/status")

    def nodes(self) -> Answer[Items[NodeRow]]:
        """GET /v1/nodes."""
        return self._get(Items[NodeRow], "/v1/nodes")

    def quota(self) -> Answer[Items[QuotaRow]]:
        """GET /v1/quota."""
        return self._get(Items[QuotaRow], "/v1/quota")

    def queue(self, *, states: Sequence[str] = (), team: str | None = None) -> Answer[Items[QueueRow]]:
        """GET /v1/queue."""
        query: dict[str, str | Sequence[str]] = {"state": states} if states else {}
        if team is not None:
            query["team"] = team
        return self._get(Items[QueueRow], "/v1/queue", query)

    def explain(self, ref: str) -> Answer[Explain]:
        """GET /v1/explain."""
        return self._get(Explain, "/v1/explain", {"ref": ref})

    def entries(self, *, after: int, limit: int) -> Answer[EntryPage]:
        """GET /v1/ledger/entries."""
        return self._get(EntryPage, "/v1/ledger/entries", {"after": str(after), "limit": str(limit)})

    def verify(self) -> Answer[VerifyView]:
        """GET /v1/ledger/verify."""
        return self._get(VerifyView, "/v1/ledger/verify")

    def usage(self, *, start: str, end: str, by: str) -> Answer[UsageView]:
        """GET /v1/usage."""
        return self._get(UsageView, "/v1/usage", {"from": start, "to": end, "by": by})

    def cancel(self, ref: str) -> Answer[CancelView]:
        """POST /v1/cancel."""
        body = json.dumps({"ref": ref}).encode()
        return _read(CancelView, self._transport.request("POST", "/v1/cancel", query={}, body=body))

    def _get(self, view: type[ViewT], path: str, query: Query | None = None) -> Answer[ViewT]:
        return _read(view, self._transport.request("GET", path, query=query or {}, body=None))


def _read(view: type[ViewT], reply: Reply) -> Answer[ViewT]:
    if reply.status >= 300:  # noqa: PLR2004 - HTTP's own numbers
        raise _refusal(reply)
    try:
        return Answer(view.model_validate_json(reply.body), json.loads(reply.body))
    except pydantic.ValidationError as error:
        raise CliError(
            Exit.UNREACHABLE, f"what answered is not the bridge's API ({_first(error)}); check SBRIDGE_URL and versions"
        ) from error


def _first(error: pydantic.ValidationError) -> str:
    found = error.errors()[0]
    return f"{'.'.join(str(part) for part in found['loc']) or 'document'}: {found['msg']}"


def _refusal(reply: Reply) -> CliError:
    """Read a problem document of ours, or a Status of the API server in front of it."""
    document = _object(reply.body)
    if document.get("kind") == "Status":
        return _of_api_server(reply.status, str(document.get("message", "")))
    type_, detail = str(document.get("type", "")), str(document.get("detail", ""))
    if type_.startswith(PROBLEM):
        return CliError(_EXIT_OF_PROBLEM.get(type_.removeprefix(PROBLEM), Exit.REFUSED), detail)
    code = Exit.NOT_ALLOWED if reply.status in _FORBIDDEN else Exit.UNREACHABLE
    return CliError(code, f"what answered HTTP {reply.status} is not the bridge; check SBRIDGE_URL")


def _of_api_server(status: int, message: str) -> CliError:
    said = message or f"HTTP {status}"
    if status in _FORBIDDEN:
        way_out = "ask a platform admin, or use the login pod"
        return CliError(Exit.NOT_ALLOWED, f"Kubernetes refuses the way to the bridge: {said}; {way_out}")
    way_out = "look at `kubectl -n slurm-bridge get pods`"
    return CliError(Exit.UNREACHABLE, f"Kubernetes cannot reach the bridge: {said}; {way_out}")


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
