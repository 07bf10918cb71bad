"""Batch Jobs that run in Slurm: find or submit their Slurm job, follow it, tell the Job, let it go. Pure.

Exactly once: a submission is recorded as an intent first and the Slurm job carries the Job's UID as its key. An
intent without an outcome is settled by looking: the key in a read that is later than the answer could be.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge import wellknown
from bridge.controller import acts, settle, workers
from bridge.controller.world import World
from bridge.errors import InvalidInputError
from bridge.kube.port import Object
from bridge.ledger.port import Intent
from bridge.slurm import states
from bridge.slurm.model import JobSpec, JobState, Phase
from bridge.workloads import batchjobs, jobstatus, pods, slurmjobs
from bridge.workloads.jobstatus import JobPhase, JobTold
from bridge.workloads.model import WorkloadId
from bridge.workloads.reasons import Reason, Waiting
from bridge.workloads.slurmjobs import SlurmTask
from bridge.workloads.tenants import Member, Tenant

ANSWER_BOUND_MS: Final = 20_000
"""A submission whose answer was lost has reached slurmctld, or never will, after this: above MessageTimeout."""

MAX_SUBMISSIONS: Final = 2
"""A Job lost by slurmctld before it ran is submitted again, once (J12)."""


@dataclass(slots=True)
class Routed:
    """What routing asks for."""

    writes: list[acts.LedgerWrite] = field(default_factory=list)
    slurm: list[acts.SlurmAct] = field(default_factory=list)
    kube: list[acts.KubeAct] = field(default_factory=list)


def route(world: World) -> Routed:
    """Follow every Job that is ours. Without good reads of both systems nothing is submitted, ended or let go."""
    routed = Routed()
    if not (world.kube.ok and world.slurm.ok):
        return routed
    tasks = {task.job.key: task for task in world.slurm.tasks.values()}
    mirrors = workers.mirrors(world.kube)
    for job in world.kube.jobs:
        if ours(job):
            _one(job, tasks.get(batchjobs.key(job)), mirrors.get(job["metadata"]["uid"]), world, routed)
    return routed


def ours(job: Object) -> bool:
    """Return whether the policy handed this Job to Slurm."""
    return bool(job["spec"].get("managedBy") == wellknown.JOB_MANAGED_BY)


def submit_workload(world: World, job: Object) -> WorkloadId:
    """Return the workload that the Job's Slurm job is."""
    return slurmjobs.workload_id(world.slurm.cluster, batchjobs.key(job), None)


def _one(job: Object, task: SlurmTask | None, mirror: Object | None, world: World, routed: Routed) -> None:
    if job["metadata"].get("deletionTimestamp"):
        _let_go(job, task, world, routed)
        return
    if jobstatus.finished(job):
        _end_mirror(mirror, task, routed)
        return
    if task is None:
        _submit(job, world, routed)
        return
    _settle_found(job, task, world, routed)
    _follow(job, task, mirror, world, routed)


# --- deletion ----------------------------------------------------------------------------------------------
def _let_go(job: Object, task: SlurmTask | None, world: World, routed: Routed) -> None:
    """Cancel a deleted Job's Slurm job; drop the finalizer when the end was seen, or nothing was ever sent."""
    if task is not None and states.phase(task.job.state, task.job.flags) is not Phase.ENDED:
        routed.slurm.append(acts.CancelJob(task.ref, "its Job is deleted"))
        return
    if task is None and (_unsettled(job, world, routed) or _unseen(job, world)):
        return
    if wellknown.JOB_FINALIZER in (job["metadata"].get("finalizers") or []):
        routed.kube.append(acts.DropFinalizer(job))


def _unseen(job: Object, world: World) -> bool:
    """Return True while a job that slurmctld took is merely absent: one read without it is no end (it may restart)."""
    sent = any(intent.outcome.startswith("job ") for intent in _intents(job, world))
    return sent and not settle.long_missing(submit_workload(world, job), world)


# --- submission --------------------------------------------------------------------------------------------
def _intents(job: Object, world: World) -> list[Intent]:
    prefix = f"submit/{batchjobs.key(job)}/"
    return sorted((i for i in world.intents.values() if i.id.startswith(prefix)), key=lambda i: i.id)


def _unsettled(job: Object, world: World, routed: Routed) -> bool:
    """Return True while a submission may still arrive; settle it as not found once it cannot any more."""
    for intent in _intents(job, world):
        if intent.settled_ms is None:
            if world.slurm.read_ms - intent.at_ms < ANSWER_BOUND_MS:
                return True
            routed.writes.append(acts.Settle(intent.id, "not found"))
    return False


def _settle_found(job: Object, task: SlurmTask, world: World, routed: Routed) -> None:
    for intent in _intents(job, world):
        if intent.settled_ms is None:
            routed.writes.append(acts.Settle(intent.id, f"job {task.job.job_id}"))


def _submit(job: Object, world: World, routed: Routed) -> None:
    if job["spec"].get("suspend") or _unsettled(job, world, routed):
        return
    prepared = _prepare(job, world)
    if isinstance(prepared, Waiting):
        _tell(job, jobstatus.refused(prepared), world, routed)
        routed.kube.append(acts.Announce(job, prepared.reason.value, prepared.text, warning=True))
        return
    spec, _member = prepared
    rejected = [i for i in _intents(job, world) if i.outcome.startswith("rejected")]
    if rejected:
        told = JobTold(JobPhase.FAILED, "RejectedBySlurm", rejected[-1].outcome)
        _tell(job, told, world, routed)
        routed.kube.append(acts.Announce(job, told.reason, told.message, warning=True))
        return
    sent = [i for i in _intents(job, world) if i.outcome.startswith("job ")]
    if sent and not _lost(job, world, len(sent), routed):
        return
    number = len(_intents(job, world)) + 1
    intent = Intent(f"submit/{spec.key}/{number:04d}", "submit", submit_workload(world, job), world.now_ms, {})
    routed.writes.append(acts.Intend(intent))
    routed.slurm.append(acts.SubmitJob(spec, intent.id, job))
    note = batchjobs.image_note(job)
    if note:
        routed.kube.append(acts.Announce(job, "ImageNotUsed", note))


def _lost(job: Object, world: World, sent: int, routed: Routed) -> bool:
    """Return True when a Job that slurmctld took and lost before it ran may be submitted once more (J12)."""
    identity = submit_workload(world, job)
    since = world.slurm.missing_ms.get(identity)
    if since is None or world.now_ms - since < ANSWER_BOUND_MS:
        return False
    started = (job.get("status") or {}).get("ready")
    if sent < MAX_SUBMISSIONS and not started:
        return True
    message = "slurmctld no longer knows the job; what it did is in its output file"
    _tell(job, JobTold(JobPhase.FAILED, "LostBySlurm", message), world, routed)
    return False


def _prepare(job: Object, world: World) -> tuple[JobSpec, Member] | Waiting:
    who = owner(job, world)
    if isinstance(who, Waiting):
        return who
    tenant, member = who
    try:
        spec = batchjobs.spec(job, tenant, member, world.settings.flavors)
    except InvalidInputError as bad:
        return Waiting(Reason.UNSUPPORTED, str(bad), final=True)
    return spec if isinstance(spec, Waiting) else (spec, member)


def owner(job: Object, world: World) -> tuple[Tenant, Member] | Waiting:
    """Return the team and the Slurm user that a Job runs as."""
    team = pods.team_of(job, world.kube.namespaces)
    tenant = world.settings.tenants.named(team)
    if tenant is None:
        return pods.unknown_team(team, world.settings.tenants)
    user = str((job["metadata"].get("annotations") or {}).get(wellknown.SUBMITTED_BY, ""))
    member = world.settings.tenants.runs_as(tenant, user)
    if member is None:
        return Waiting(
            Reason.NOT_A_MEMBER,
            f"user {user!r} is no member of team {tenant.name}; a platform admin adds him to Team.spec.members",
            final=True,
        )
    return tenant, member


# --- following ---------------------------------------------------------------------------------------------
def _follow(job: Object, task: SlurmTask, mirror: Object | None, world: World, routed: Routed) -> None:
    phase = states.phase(task.job.state, task.job.flags)
    if job["spec"].get("suspend") and phase is Phase.RUNNING:
        routed.slurm.append(acts.RequeueJob(task.ref, "its Job is suspended"))
        return
    deadline = job["spec"].get("activeDeadlineSeconds")
    started = (job.get("status") or {}).get("startTime")
    late = deadline and started and world.now_ms > pods.parse_ms(started) + deadline * 1000
    if late and phase in (Phase.WAITING, Phase.RUNNING):
        routed.slurm.append(acts.CancelJob(task.ref, "its Job's activeDeadlineSeconds passed"))
    if _retries(job, task, phase):
        routed.slurm.append(acts.RetryJob(task.ref, "backoffLimit allows another attempt"))
    told = told_of(job, task, phase, late=bool(late))
    if told is None:
        return
    if mirror is None and told.phase in (JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.FAILED):
        who = owner(job, world)
        if not isinstance(who, Waiting):
            routed.kube.append(acts.CreateMirror(job, who[1], batchjobs.output_path(job, who[1])))
    _tell(job, told, world, routed)


def _retries(job: Object, task: SlurmTask, phase: Phase) -> bool:
    """Return whether a failed job is to be tried again, as `backoffLimit` says."""
    failed = phase is Phase.ENDED and task.job.state in (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY)
    return failed and task.job.restart_count < int(job["spec"].get("backoffLimit", 6))


def told_of(job: Object, task: SlurmTask, phase: Phase, *, late: bool) -> JobTold | None:
    """Return what Slurm's record means for the Job; None: nothing to tell (unknown, or about to be retried)."""
    record = task.job
    match phase:
        case Phase.WAITING:
            message = record.comment_text or "waits in Slurm"
            return JobTold(JobPhase.WAITING, "Waiting", message, failures=record.restart_count)
        case Phase.RUNNING | Phase.ENDING:
            message = f"Slurm job {record.job_id} on {', '.join(record.nodes)}"
            return JobTold(JobPhase.RUNNING, "Granted", message, record.start_ms, failures=record.restart_count)
        case Phase.ENDED if _retries(job, task, phase):
            return None
        case Phase.ENDED if record.state is JobState.COMPLETED:
            message = f"Slurm job {record.job_id}"
            times = (record.start_ms, record.end_ms)
            return JobTold(JobPhase.SUCCEEDED, "Completed", message, *times, record.restart_count)
        case Phase.ENDED:
            return _failure(record.state, task, late=late)
        case _:
            return None


def _failure(state: JobState, task: SlurmTask, *, late: bool) -> JobTold:
    record = task.job
    code = f", exit code {record.exit_code}" if record.exit_code else ""
    reason = "DeadlineExceeded" if late or state in (JobState.TIMEOUT, JobState.DEADLINE) else "BackoffLimitExceeded"
    return JobTold(
        JobPhase.FAILED,
        reason,
        f"Slurm job {record.job_id} ended {state.value}{code}",
        record.start_ms,
        record.end_ms,
        record.restart_count + 1,
    )


def _tell(job: Object, told: JobTold, world: World, routed: Routed) -> None:
    status = jobstatus.patch(job, told, world.now_ms)
    if status is not None:
        routed.kube.append(acts.TellJob(job, status))


def _end_mirror(mirror: Object | None, task: SlurmTask | None, routed: Routed) -> None:
    """Tell the mirror the exit code once, so that `kubectl logs -f` returns."""
    if mirror is None or wellknown.MIRROR_ENDED_ANNOTATION in (mirror["metadata"].get("annotations") or {}):
        return
    code = 1
    if task is not None:
        code = 0 if task.job.state is JobState.COMPLETED else (task.job.exit_code or 1)
    routed.kube.append(acts.EndMirror(mirror, code))


def missing(world_intents: Mapping[str, Intent]) -> Iterator[WorkloadId]:
    """Workloads whose submission slurmctld acknowledged: the observer watches whether it still knows them."""
    return (i.workload for i in world_intents.values() if i.kind == "submit" and i.outcome.startswith("job "))
