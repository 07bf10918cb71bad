"""Records as slurmctld sends them (see `record` in the build of pyslurm) to our values. Pure; one bad record stays one.

GPUs are read where Slurm really says them. A request: the four tres_per_* fields, since ReqTRES names no GPU on a
cluster without accounting. An allocation: AllocTRES where it names GPUs, else what was handed out on each node.
"""

import pwd
from collections.abc import Mapping
from typing import Any, Final

from bridge.slurm import comment, gracesignal, gres, hostlist, states
from bridge.slurm.model import JobState, Phase, SlurmJob, SlurmNode, Tres

Record = Mapping[str, Any]

NO_VAL: Final = 0xFFFFFFFE
INFINITE: Final = 0xFFFFFFFF
_NICE_ZERO: Final = 0x80000000  # NICE_OFFSET of slurm.h: nice is kept as an unsigned distance from it
EXCLUSIVE: Final = 0  # of the field `shared`
_YEAR_MINUTES: Final = 365 * 24 * 60  # what slurmctld puts for "no limit" into a running job
_TERMINAL: Final = frozenset(states.JOB_STATES) - {JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED}


def job(record: Record) -> SlurmJob:
    """Read a job. What cannot be read becomes a job in UNKNOWN state: it exists, and nothing is concluded from it."""
    try:
        return _job(record)
    except (ValueError, KeyError, TypeError) as problem:
        return _unreadable(record, problem)


def node(record: Record) -> SlurmNode:
    """Read a node."""
    state, flags = states.node_state(record["node_state"])
    if state == "ALLOCATED" and record["alloc_cpus"] < record["cpus"]:
        state = "MIXED"
    return SlurmNode(
        name=record["name"],
        state=state,
        flags=flags,
        gpus=gres.gpus(record["gres"]),
        gpus_allocated=gres.gpus(record["gres_used"]),
        cpus=record["cpus"],
        mem_mib=record["real_memory"],
        reason=record["reason"] or "",
        reason_user=user_name(record["reason_uid"]) if record["reason"] else "",
        reason_ms=_ms(record["reason_time"]) if record["reason"] else None,
        address=record["address"] or "",
        started_ms=_ms(record["slurmd_start_time"]),
        features=tuple((record["features"] or "").split(",")) if record["features"] else (),
    )


def user_name(uid: int) -> str:
    """Return a user's name where this host knows it, else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def requested_gpus(record: Record) -> gres.Gpus:
    """Return the GPUs that a job asks for in all. A request per socket cannot be counted: the policy refuses it."""
    tracked = gres.tracked_gpus(record["tres_req"])
    if tracked:
        return tracked
    nodes, tasks = max(1, _number(record["num_nodes"]) or 1), max(1, _number(record["num_tasks"]) or 1)
    for field, times in (
        ("tres_per_job", 1),
        ("tres_per_node", nodes),
        ("tres_per_task", tasks),
        ("tres_per_socket", nodes),
    ):
        found = gres.gpus(record[field])
        if found:
            return {kind: count * times for kind, count in found.items()}
    return {}


def allocated_gpus(record: Record) -> gres.Gpus:
    """Return the GPUs that a job holds. While it is COMPLETING they are not named any more: it asked for them."""
    tracked = gres.tracked_gpus(record["tres_alloc"])
    if tracked:
        return tracked
    if not record["gres_detail"]:
        return requested_gpus(record)
    total: gres.Gpus = {}
    for on_node in record["gres_detail"]:
        for kind, count in gres.gpus(on_node).items():
            total[kind] = total.get(kind, 0) + count
    return total


def _job(record: Record) -> SlurmJob:
    state, flags = states.job_state(record["job_state"])
    key, text = comment.parse(record["admin_comment"])
    ended = state in _TERMINAL
    ran = state is not JobState.PENDING and bool(record["start_time"])
    exit_code, signal = _exit(record["exit_code"]) if ended else (None, None)
    task = _number(record["array_task_id"])
    array = record["array_job_id"] or None
    nodes = hostlist.expand(record["nodes"])
    holds = states.phase(state, flags) in (Phase.RUNNING, Phase.ENDING)
    return SlurmJob(
        job_id=record["job_id"],
        key=key,
        comment_text=text,
        state=state,
        flags=flags,
        user=record["user_name"] or user_name(record["user_id"]),
        uid=record["user_id"],
        account=record["account"] or "",
        partition=record["partition"] or "",
        name=record["name"] or "",
        held=record["priority"] == 0,
        admin_held=record["priority"] == 0 and record["state_reason"] == "JobHeldAdmin",
        priority=record["priority"],
        requested=gres.tres(record["tres_req"], requested_gpus(record)),
        allocated=gres.tres(record["tres_alloc"], allocated_gpus(record)) if holds else Tres(),
        nodes=nodes,
        submit_ms=record["submit_time"] * 1000,
        start_ms=_ms(record["start_time"]) if ran else None,
        end_ms=_ms(record["end_time"]) if ended else None,
        time_limit_s=_limit_s(record["time_limit"]),
        exit_code=exit_code,
        exit_signal=signal,
        restart_count=record["restart_cnt"],
        state_reason=record["state_reason"] or "",
        requeueable=record["requeue"] == 1,
        array_job_id=array,
        array_task_id=task,
        array_tasks=hostlist.tasks(record["array_task_str"]) if array and task is None else (),
        array_throttle=_number(record["array_max_tasks"]) or None if array else None,
        het_job_id=record["het_job_id"] or None,
        het_offset=record["het_job_offset"] if record["het_job_id"] else None,
        work_dir=record["work_dir"] or "",
        std_out=record["std_out"] or "",
        features=record["features"] or "",
        requested_nodes=hostlist.expand(record["req_nodes"]),
        exclusive=record["shared"] == EXCLUSIVE,
        comment=record["comment"] or "",
        dependency=record["dependency"] or "",
        eligible_ms=_ms(record["eligible_time"]) if record["eligible_time"] > record["submit_time"] else None,
        batch=record["batch_flag"] == 1,
        nice=(_number(record["nice"]) or _NICE_ZERO) - _NICE_ZERO,
        signal=gracesignal.of_command(record["submit_line"] or "") or comment.signal(record["admin_comment"]),
    )


def _unreadable(record: Record, problem: Exception) -> SlurmJob:
    key, text = comment.parse(record["admin_comment"])
    return SlurmJob(
        job_id=record["job_id"],
        key=key,
        comment_text=text,
        state=JobState.UNKNOWN,
        flags=frozenset(),
        user=record["user_name"] or str(record["user_id"]),
        uid=record["user_id"],
        account=record["account"] or "",
        partition=record["partition"] or "",
        name=record["name"] or "",
        held=record["priority"] == 0,
        admin_held=False,
        priority=record["priority"],
        requested=Tres(),
        allocated=Tres(),
        nodes=(),
        submit_ms=record["submit_time"] * 1000,
        start_ms=None,
        end_ms=None,
        time_limit_s=None,
        exit_code=None,
        exit_signal=None,
        restart_count=record["restart_cnt"],
        state_reason=f"the record cannot be read: {problem}",
        requeueable=False,
    )


def _number(value: int) -> int | None:
    """Return a 32-bit number, None when it is not set."""
    return None if value >= NO_VAL else value


def _ms(seconds: int) -> int | None:
    return seconds * 1000 if 0 < seconds < NO_VAL else None


def _limit_s(minutes: int) -> int | None:
    return None if minutes >= _YEAR_MINUTES else minutes * 60


def _exit(status: int) -> tuple[int | None, int | None]:
    """Take a wait status apart: (exit code, signal)."""
    if status >= NO_VAL:
        return None, None
    return status >> 8 & 0xFF, status & 0x7F or None
