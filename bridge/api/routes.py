"""The routes under /v1. Each asks the Source, filters by what the caller may see, and answers a view."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from bridge.api import lookup, problems, visibility, window
from bridge.api import usage as usages
from bridge.api.identity import Authenticator, Identity
from bridge.api.source import Source
from bridge.api.views import (
    ACTIVE,
    CancelRequest,
    CancelState,
    CancelView,
    EntryPage,
    EntryView,
    Explain,
    Items,
    NodeRow,
    QueueRow,
    QuotaRow,
    State,
    StatusView,
    UsageView,
    VerifyView,
)

MAX_PAGE = 1000
TOKEN_HEADER = "X-Slurmbridge-Token"  # noqa: S105 - a header's name; the API server's proxy drops Authorization


@dataclass(frozen=True, slots=True)
class Parts:
    """What the application was made of; kept in `app.state.parts`."""

    source: Source
    authenticator: Authenticator
    now_ms: Callable[[], int]


def parts_of(request: Request) -> Parts:
    """Return the parts of the application that serves this request."""
    parts = request.app.state.parts
    assert isinstance(parts, Parts)  # noqa: S101 - set once, by create_app
    return parts


def caller(request: Request) -> Identity:
    """Authenticate. Runs in a worker thread: a TokenReview may take its time."""
    token = request.headers.get(TOKEN_HEADER, "")
    if not token:
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        token = value.strip() if scheme.lower() == "bearer" else ""
    return parts_of(request).authenticator.identify(token)


Here = Annotated[Parts, Depends(parts_of)]
Caller = Annotated[Identity, Depends(caller)]
Ref = Annotated[str, Query(min_length=1, max_length=400)]

router = APIRouter(prefix="/v1", dependencies=[Depends(caller)])


@router.get("/status")
def status(here: Here) -> StatusView:
    """Health of the bridge and of both systems, as of the last cycle."""
    return here.source.status()


@router.get("/nodes")
def nodes(here: Here) -> Items[NodeRow]:
    """Every GPU node with its holder."""
    return Items(items=tuple(here.source.nodes()))


@router.get("/quota")
def quota(here: Here) -> Items[QuotaRow]:
    """Every team's quota and use."""
    return Items(items=tuple(here.source.quota()))


@router.get("/queue")
def queue(
    here: Here,
    identity: Caller,
    state: Annotated[list[State] | None, Query()] = None,
    team: Annotated[str | None, Query(max_length=253)] = None,
) -> Items[QueueRow]:
    """Workloads, waiting ones first, by age; without `state`, those that are not over."""
    wanted = frozenset(state or ACTIVE)
    found = (row for row in here.source.queue() if row.state in wanted and team in (None, row.team))
    return Items(items=visibility.rows(identity, found))


@router.get("/explain")
def explain(here: Here, identity: Caller, ref: Ref) -> Explain:
    """Everything about one workload: its state, why it waits with numbers, who holds what, its history."""
    return visibility.explain(identity, here.source.explain(_resolve(here.source, identity, ref).id))


@router.post("/cancel", status_code=202)
def cancel(here: Here, identity: Caller, request: CancelRequest) -> CancelView:
    """Record the intent to end a workload; it is repeated until its system confirms the end."""
    row = _resolve(here.source, identity, request.ref)
    visibility.check_cancel(identity, row)
    if row.state is State.ENDED:
        text = "it has ended already; nothing was recorded"
        return CancelView(workload=row.id, intent="", state=CancelState.CONFIRMED, text=text)
    return here.source.cancel(identity, row.id)


@router.get("/ledger/entries")
def ledger_entries(
    here: Here,
    identity: Caller,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> EntryPage:
    """Read the journal after entry `after`, oldest first."""
    found = [EntryView.of(entry) for entry in here.source.entries(after_seq=after, limit=limit)]
    teamless = not identity.admin and any(entry.workload is not None and entry.team is None for entry in found)
    known = {row.id for row in visibility.own(identity, here.source.queue())} if teamless else set()
    items = tuple(visibility.entry(identity, entry, known) for entry in found)
    return EntryPage(items=items, next_after=items[-1].seq if items else after)


@router.get("/ledger/verify")
def ledger_verify(here: Here, identity: Caller) -> VerifyView:
    """Recompute every balance and grant from entry 1."""
    found = here.source.verify()
    texts = tuple(problem.text for problem in found) if identity.admin else ()
    return VerifyView(clean=not found, count=len(found), problems=texts)


@router.get("/usage")
def usage(
    here: Here,
    identity: Caller,
    from_: Annotated[str, Query(alias="from", max_length=64)] = "month",
    to: Annotated[str, Query(max_length=64)] = "now",
    by: Annotated[str, Query(max_length=64)] = "team,system,flavor",
) -> UsageView:
    """GPU-milliseconds held while running, within [from, to), of the teams that the caller may see."""
    now_ms = here.now_ms()
    from_ms, to_ms = window.parse("from", from_, now_ms=now_ms), window.parse("to", to, now_ms=now_ms)
    window.check(from_ms, to_ms)
    chosen = usages.parse(by)
    rows = here.source.usage(from_ms=from_ms, to_ms=to_ms, cuts=usages.cuts(chosen, from_ms, to_ms))
    return usages.view(identity, rows, chosen, from_ms, to_ms)


def _resolve(source: Source, identity: Identity, ref: str) -> QueueRow:
    """Find the one workload that `ref` means among those that the caller may see, or raise the problem."""
    found = lookup.find(ref, visibility.own(identity, source.queue()))
    if isinstance(found, QueueRow):
        return found
    if found is None:
        whose = "no workload" if identity.admin else f"no workload of your teams ({_teams(identity)})"
        raise problems.ProblemError(
            problems.NOT_FOUND, f"ref={ref!r}: {whose} matches; `sbridge queue --all` lists what can be named"
        )
    raise problems.ProblemError(
        problems.AMBIGUOUS,
        f"ref={ref!r} matches {found.total} workloads; name one by its id: {'; '.join(found.candidates)}",
        {"candidates": list(found.candidates)},
    )


def _teams(identity: Identity) -> str:
    return ", ".join(sorted(identity.teams)) or "none"
