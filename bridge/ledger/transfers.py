"""What each step does to a grant. Pure: a Change to record, or None when it is recorded already, or a refusal.

Invariant: a grant's charge is added once, by reserve or adopt, changed only by run and adjust, and taken back
once, by release or void, whole. Nothing is clamped: what does not fit is refused and recorded nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.errors import BrokenInvariantError, ConflictError, InvalidInputError
from bridge.ledger.model import Step
from bridge.ledger.port import CapacityRow
from bridge.workloads.model import Grant, GrantState, NodeName, Workload, WorkloadId


@dataclass(frozen=True, slots=True)
class Change:
    """One step of one grant."""

    step: Step
    at_ms: int
    grant: Grant  # as it is afterwards
    delta: int  # signed change of what the team holds
    detail: Mapping[str, Any]

    @property
    def transfer(self) -> str:
        """The id that makes the step unique. An adjustment happens many times to one attempt: its time tells which."""
        if self.step is Step.ADJUST:
            return adjustment(self.grant.workload, self.grant.attempt, self.at_ms)
        return f"{self.step}/{self.grant.attempt}/{self.grant.workload}"


def adjustment(workload: WorkloadId, attempt: int, at_ms: int) -> str:
    """Return the transfer id of an adjustment."""
    return f"{Step.ADJUST}@{at_ms}/{attempt}/{workload}"


def reserve(
    latest: Grant | None, workload: Workload, placement: Mapping[NodeName, int], at_ms: int, *, past: int = 0
) -> Change | None:
    """Hold the next attempt; None when an attempt holds already. `past`: attempts that are archived, all of them."""
    if latest is not None and latest.holds:
        return None
    placed = _placed(workload.id, placement)
    if placed != workload.gpus:
        raise BrokenInvariantError(
            f"reserve of {workload.id}: placement holds {placed} GPUs, the workload asks for {workload.gpus}"
        )
    return _grant(Step.RESERVE, latest, workload, placement, at_ms, "", past=past)


def adopt(
    latest: Grant | None,
    workload: Workload,
    placement: Mapping[NodeName, int],
    at_ms: int,
    note: str,
    *,
    past: int = 0,
) -> Change | None:
    """Charge what is found running, as large as it is found; None when an attempt holds already."""
    if latest is not None and latest.holds:
        return None
    return _grant(Step.ADOPT, latest, workload, placement, at_ms, note, past=past)


def run(grant: Grant, gpus: int, placement: Mapping[NodeName, int], at_ms: int) -> Change | None:
    """Start: the charge becomes what was really allocated. None when it has started before."""
    if grant.running_ms is not None:
        return None
    if grant.state is not GrantState.RESERVED:
        raise BrokenInvariantError(f"run of {_named(grant)}: it is {grant.state}, and never ran")
    _check_time(grant, at_ms)
    placed = _placement(grant.workload, placement)
    after = _moved(grant, GrantState.RUNNING, gpus=_charge(grant, gpus), placement=placed, running_ms=at_ms)
    return Change(Step.RUN, at_ms, after, gpus - grant.gpus, {"placement": after.placement})


def adjust(
    grant: Grant, gpus: int, placement: Mapping[NodeName, int], at_ms: int, *, since_ms: int | None
) -> Change | None:
    """Charge another amount from `at_ms` on; None when that amount and placement are charged already.

    `since_ms` is when the present amount began.
    """
    if grant.state is not GrantState.RUNNING or since_ms is None:
        raise BrokenInvariantError(f"adjust of {_named(grant)}: it is {grant.state}; only what runs can change")
    _charge(grant, gpus)
    if gpus == grant.gpus and dict(placement) == dict(grant.placement):
        return None
    _check_not_before(Step.ADJUST, grant, at_ms, since_ms)
    placed = _placement(grant.workload, placement)
    after = _moved(grant, grant.state, gpus=gpus, placement=placed, running_ms=grant.running_ms)
    return Change(Step.ADJUST, at_ms, after, gpus - grant.gpus, {"gpus": gpus, "placement": after.placement})


def release(grant: Grant, at_ms: int, note: str, *, since_ms: int | None) -> Change | None:
    """End: the whole charge is given back. None when it was released before."""
    if grant.state is GrantState.RELEASED:
        return None
    if grant.state is GrantState.VOIDED:
        raise BrokenInvariantError(f"release of {_named(grant)}: it was voided, there is no charge to give back")
    _check_time(grant, at_ms)
    if since_ms is not None:
        _check_not_before(Step.RELEASE, grant, at_ms, since_ms)
    return _ended(Step.RELEASE, grant, GrantState.RELEASED, at_ms, note)


def void(grant: Grant, at_ms: int, note: str) -> Change | None:
    """Take a reservation back that never ran. None when it was voided before."""
    if grant.state is GrantState.VOIDED:
        return None
    if grant.state is not GrantState.RESERVED:
        raise BrokenInvariantError(f"void of {_named(grant)}: it is {grant.state}; only a reservation can be voided")
    _check_time(grant, at_ms)
    return _ended(Step.VOID, grant, GrantState.VOIDED, at_ms, note)


def check_repeat(grant: Grant, at_ms: int, recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse an adjustment whose time already records another one; the same one again is fine."""
    if dict(recorded) != dict(wanted):
        raise ConflictError(
            f"adjust of {_named(grant)}: at_ms={at_ms} already records gpus={recorded['gpus']} on "
            f"{recorded['placement']}, not gpus={wanted['gpus']} on {wanted['placement']}; give a later time"
        )


def check_columns(row: CapacityRow) -> None:
    """Raise unless each GPU of the node is in exactly one column."""
    columns = (row.worker, row.pods, row.unmanaged, row.idle, row.unavailable)
    if sum(columns) != row.total or min(columns) < 0:
        raise BrokenInvariantError(
            f"capacity of node {row.node}: worker={row.worker} pods={row.pods} unmanaged={row.unmanaged} "
            f"idle={row.idle} unavailable={row.unavailable} do not sum to total={row.total}"
        )


def _grant(
    step: Step,
    latest: Grant | None,
    workload: Workload,
    placement: Mapping[NodeName, int],
    at_ms: int,
    note: str,
    *,
    past: int,
) -> Change:
    gpus = _placed(workload.id, placement)
    if gpus < 1:
        raise BrokenInvariantError(f"{step} of {workload.id}: gpus={gpus}; a grant holds at least one GPU")
    running = step is Step.ADOPT
    grant = Grant(
        workload=workload.id,
        attempt=(past if latest is None else latest.attempt) + 1,
        team=workload.team,
        flavor=workload.flavor,
        system=workload.system,
        gpus=gpus,
        state=GrantState.RUNNING if running else GrantState.RESERVED,
        placement=dict(placement),
        user=workload.user,
        name=workload.name,
        submitted_ms=workload.submitted_ms,
        reserved_ms=at_ms,
        running_ms=at_ms if running else None,
        note=note,
    )
    _check_time(grant, at_ms)
    detail = {
        "placement": grant.placement,
        "user": grant.user,
        "name": grant.name,
        "submitted_ms": grant.submitted_ms,
        "note": note,
    }
    return Change(step, at_ms, grant, gpus, detail)


def _ended(step: Step, grant: Grant, state: GrantState, at_ms: int, note: str) -> Change:
    after = _moved(
        grant,
        state,
        gpus=grant.gpus,
        placement=grant.placement,
        running_ms=grant.running_ms,
        ended_ms=at_ms,
        note=note or grant.note,
    )
    return Change(step, at_ms, after, -grant.gpus, {"note": note})


def _moved(
    grant: Grant,
    state: GrantState,
    *,
    gpus: int,
    placement: Mapping[NodeName, int],
    running_ms: int | None,
    ended_ms: int | None = None,
    note: str | None = None,
) -> Grant:
    """Return a grant with what a step can move; dataclasses.replace takes four times as long."""
    return Grant(
        grant.workload,
        grant.attempt,
        grant.team,
        grant.flavor,
        grant.system,
        gpus,
        state,
        placement,
        grant.user,
        grant.name,
        grant.submitted_ms,
        grant.reserved_ms,
        running_ms,
        ended_ms,
        grant.note if note is None else note,
    )


def _named(grant: Grant) -> str:
    return f"{grant.workload} attempt {grant.attempt}"


def _charge(grant: Grant, gpus: int) -> int:
    if gpus < 1:
        raise BrokenInvariantError(
            f"{_named(grant)}: gpus={gpus} cannot be charged; it holds {grant.gpus}, release gives all of them back"
        )
    return gpus


def _placed(workload: WorkloadId, placement: Mapping[NodeName, int]) -> int:
    return sum(_placement(workload, placement).values())


def _placement(workload: WorkloadId, placement: Mapping[NodeName, int]) -> dict[NodeName, int]:
    for node, gpus in placement.items():
        if gpus < 1 or not node:
            raise BrokenInvariantError(
                f"placement of {workload}: node {node!r} holds {gpus} GPUs; at least one is held"
            )
    return dict(placement)


def _check_time(grant: Grant, at_ms: int) -> None:
    if at_ms < 0:
        raise InvalidInputError(f"{_named(grant)}: at_ms={at_ms} is before 1970; give milliseconds since the epoch")


def _check_not_before(step: Step, grant: Grant, at_ms: int, since_ms: int) -> None:
    if at_ms < since_ms:
        raise InvalidInputError(
            f"{step} of {_named(grant)}: at_ms={at_ms} is before since_ms={since_ms}, when its {grant.gpus} GPUs began "
            "to be held; give the real time"
        )
