"""Slurm state to the status of a batch Job, in the steps that the Job API's validation accepts.

With `spec.managedBy` set the API server still validates the status: a finished Job has no active pods, Complete
comes with SuccessCriteriaMet and completionTime, Failed with FailureTarget; startTime, once set, stays (KEP-4368).
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from bridge.workloads import pods
from bridge.workloads.reasons import Waiting

Object = dict[str, Any]

ADMITTED_CONDITION = "slurmbridge.dev/Admitted"


class JobPhase(StrEnum):
    """Where a Job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobTold:
    """What the owner of the Job is told. `reason` and `message` go into the condition."""

    phase: JobPhase
    reason: str = ""
    message: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    failures: int = 0  # attempts that failed before and including this one


def finished(job: Object) -> bool:
    """Return whether the Job carries a terminal condition."""
    return any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in _conditions(job))


def refused(waiting: Waiting) -> JobTold:
    """Tell a final refusal as a failed Job."""
    return JobTold(JobPhase.FAILED, waiting.reason.value, waiting.text)


def patch(job: Object, told: JobTold, now_ms: int) -> Object | None:
    """Return the whole new status, or None when the Job already says this."""
    if finished(job):
        return None
    current: Object = job.get("status") or {}
    status: Object = {
        "startTime": current.get("startTime") or stamp(told.started_ms or now_ms),
        "active": 1 if told.phase is JobPhase.RUNNING else 0,
        "ready": 1 if told.phase is JobPhase.RUNNING else 0,
        "terminating": 0,
        "succeeded": 1 if told.phase is JobPhase.SUCCEEDED else 0,
        "failed": max(told.failures, 1 if told.phase is JobPhase.FAILED and told.ended_ms else 0),
        "uncountedTerminatedPods": {},
        "conditions": _new_conditions(job, told, now_ms),
    }
    if told.phase is JobPhase.SUCCEEDED:
        start_ms = pods.parse_ms(status["startTime"])
        status["completionTime"] = stamp(max(told.ended_ms or now_ms, start_ms))
    return None if _same(current, status) else status


def steps(job: Object, status: Object) -> list[Object]:
    """Split a finishing status into the two writes that validation wants: criteria met first, then finished."""
    final = [c for c in status["conditions"] if c["type"] in ("Complete", "Failed")]
    already = any(c["type"] in ("SuccessCriteriaMet", "FailureTarget") for c in _conditions(job))
    if not final or already:
        return [status]
    first = {key: value for key, value in status.items() if key != "completionTime"}
    first["conditions"] = [c for c in status["conditions"] if c["type"] not in ("Complete", "Failed")]
    return [first, status]


def _new_conditions(job: Object, told: JobTold, now_ms: int) -> list[Object]:
    ours = (ADMITTED_CONDITION, "SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")
    kept = [c for c in _conditions(job) if c["type"] not in ours]
    waiting = told.phase is JobPhase.WAITING or (told.phase is JobPhase.FAILED and not told.ended_ms)
    admitted = "False" if waiting else "True"
    conditions = [
        *kept,
        _condition(job, ADMITTED_CONDITION, admitted, told.reason or "Granted", told.message, now_ms),
    ]
    pair = {
        JobPhase.SUCCEEDED: ("SuccessCriteriaMet", "Complete", "CompletionsReached"),
        JobPhase.FAILED: ("FailureTarget", "Failed", told.reason or "BackoffLimitExceeded"),
    }.get(told.phase)
    if pair:
        criteria, final, reason = pair
        conditions.append(_condition(job, criteria, "True", reason, told.message, now_ms))
        conditions.append(_condition(job, final, "True", reason, told.message, now_ms))
    return conditions


def _condition(job: Object, kind: str, status: str, reason: str, message: str, now_ms: int) -> Object:
    """Build a condition; its transition time moves only when its status does."""
    for old in _conditions(job):
        if old["type"] == kind and old["status"] == status:
            if old.get("reason") == reason and old.get("message", "") == message:
                return old
            moved = old.get("lastTransitionTime") or stamp(now_ms)
            return _written(kind, status, reason, message, moved, now_ms)
    return _written(kind, status, reason, message, stamp(now_ms), now_ms)


def _written(kind: str, status: str, reason: str, message: str, moved: str, now_ms: int) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": moved,
        "lastProbeTime": stamp(now_ms),
    }


def _conditions(job: Object) -> list[Object]:
    return (job.get("status") or {}).get("conditions") or []


def _same(current: Object, wanted: Object) -> bool:
    """Compare what is told; absent numbers are zero."""
    for key, value in wanted.items():
        empty: object = 0 if isinstance(value, int) else None
        default: object = {"conditions": [], "uncountedTerminatedPods": {}}.get(key, empty)
        if (current.get(key) or default) != (value or default):
            return False
    return True


def stamp(ms: int) -> str:
    """Format milliseconds as the API server writes times (whole seconds, UTC)."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
