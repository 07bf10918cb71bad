"""Tries to take borrowed GPUs back, carried on by what the record shows: victims told, requeued, evicted. Pure.

The try is recorded before anybody is told. A job that asked for a signal (`sbatch --signal`) gets it once, which is
recorded too, and keeps its devices for its team's grace from then on; one that did not is requeued at once (slurmctld
itself sends TERM, and KILL after KillWait). Pods are evicted: with their own grace period, and as far as disruption
budgets allow. Each act is repeated until the systems show its effect, so it does not matter where the bridge was
killed; only a signal whose record was lost with it is sent a second time.

A try is over when its workload was granted, when nobody asks any more, or when it lapses.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.admission.model import Earmark, Victim
from bridge.controller import acts, demand, earmarks, settle
from bridge.controller.world import World
from bridge.kube.port import Object
from bridge.ledger.port import Intent
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads import batchjobs, pods, slurmjobs
from bridge.workloads.model import Grant, GrantState, System, WorkloadId
from bridge.workloads.slurmjobs import SlurmTask


@dataclass(slots=True)
class Preempting:
    """What the open tries ask for, and what they still keep."""

    writes: list[acts.LedgerWrite] = field(default_factory=list)
    acts: list[Any] = field(default_factory=list)
    earmarks: list[Earmark] = field(default_factory=list)
    pauses_ms: dict[WorkloadId, int] = field(default_factory=dict)  # no new try before this
    numbers: dict[WorkloadId, int] = field(default_factory=dict)  # tries so far


def preempt(world: World, grants: tuple[Grant, ...]) -> Preempting:
    """Carry every open try on. While one of the systems is unknown no try ends, and only the known one is acted on."""
    out = Preempting()
    holds = {grant.workload: grant for grant in grants}
    for workload, tries in earmarks.tries(world.intents.values()).items():
        out.numbers[workload] = len(tries)
        until_ms = earmarks.pause_ends_ms(tries)
        if until_ms > world.now_ms:
            out.pauses_ms[workload] = until_ms
    for intent in earmarks.under_way(world.intents.values()):
        earmark = earmarks.earmark_of(intent)
        over = _over(earmark, holds, world)
        if over:
            out.writes.append(acts.Settle(intent.id, over))
            out.writes += [acts.Settle(signal, over) for signal in _open_signals(intent, earmark, world)]
            if over.startswith(earmarks.LAPSED):
                out.pauses_ms[earmark.workload] = world.now_ms + earmarks.FIRST_PAUSE_MS  # the next cycle knows better
            continue
        out.earmarks.append(earmark)
        for victim in earmark.victims:
            grant = holds.get(victim.workload)
            if grant is not None and grant.attempt == victim.attempt:
                _make_way(victim, grant, intent, world, out)
    return out


def record(preemptions: tuple[Earmark, ...], so_far: Preempting) -> list[acts.LedgerWrite]:
    """Return the records of new tries."""
    return [acts.Intend(earmarks.intent_of(made, so_far.numbers.get(made.workload, 0) + 1)) for made in preemptions]


def watched(intents: Mapping[str, Intent]) -> Iterator[WorkloadId]:
    """Slurm jobs that a try is for: the observer watches whether slurmctld still knows them."""
    return (i.workload for i in earmarks.under_way(intents.values()) if not i.workload.startswith("pod/"))


# --- the end of a try --------------------------------------------------------------------------------------
def _over(earmark: Earmark, holds: Mapping[WorkloadId, Grant], world: World) -> str:
    """Say how a try ended; "" while it goes on, or while that cannot be known."""
    if earmark.workload in holds:
        return earmarks.STARTED
    if not (world.kube.ok and world.slurm.ok):
        return ""
    if _gone(earmark.workload, world):
        return earmarks.GONE
    if world.now_ms < earmark.lapses_ms:
        return ""
    left = [v.workload for v in earmark.victims if v.workload in holds and holds[v.workload].attempt == v.attempt]
    return f"{earmarks.LAPSED}: " + (
        f"still held by {', '.join(left)}" if left else "nothing is held, and it did not fit"
    )


def _gone(workload: WorkloadId, world: World) -> bool:
    """Return whether nobody asks for it any more: ended, deleted, cancelled, or long unknown to slurmctld."""
    if workload in demand.cancelled_ids(world):
        return True
    if workload.startswith("pod/"):
        pod = world.kube.pods_by_id.get(workload)
        return pod is None or pods.deleting(pod) or pods.life(pod) is pods.PodLife.ENDED
    task = world.slurm.tasks.get(workload)
    if task is None:
        return settle.long_missing(workload, world)
    return states.phase(task.job.state, task.job.flags) is Phase.ENDED


def _open_signals(intent: Intent, earmark: Earmark, world: World) -> Iterator[str]:
    for victim in earmark.victims:
        found = world.intents.get(earmarks.signal_id(intent, victim))
        if found is not None and found.settled_ms is None:
            yield found.id


# --- victims -----------------------------------------------------------------------------------------------
def _make_way(victim: Victim, grant: Grant, intent: Intent, world: World, out: Preempting) -> None:
    told = earmarks.why(earmarks.earmark_of(intent), victim)
    if grant.system is System.KUBERNETES and world.kube.ok:
        pod = world.kube.pods_by_id.get(grant.workload)
        if pod is not None:
            _pod(pod, grant, told, out)
    if grant.system is System.SLURM and world.slurm.ok:
        task = world.slurm.tasks.get(grant.workload)
        if task is not None:
            _job(task, victim, grant, intent, told, world, out)


def _pod(pod: Object, grant: Grant, told: str, out: Preempting) -> None:
    """Evict a pod; one that never left its gate only loses its grant."""
    if pods.deleting(pod) or pods.life(pod) is pods.PodLife.ENDED:
        return
    if pods.gated(pod):
        out.writes.append(acts.Void(grant.workload, grant.attempt, told))
    else:
        out.acts.append(acts.EvictPod(pod, told))


def _job(
    task: SlurmTask, victim: Victim, grant: Grant, intent: Intent, told: str, world: World, out: Preempting
) -> None:
    """Move a job one step on: held before it started, or told, then put back when its grace is over."""
    match states.phase(task.job.state, task.job.flags):
        case Phase.WAITING if not task.job.held:
            out.acts.append(acts.HoldJob(task.ref, told))  # it may be starting: looked at again before the void
        case Phase.WAITING if grant.state is GrantState.RESERVED:
            out.writes.append(acts.Void(grant.workload, grant.attempt, told))
        case Phase.RUNNING:
            out.acts += _tell(task, told, world)
            if _graced(task, victim, intent, world, out):
                out.acts += _put_back(task, grant, told, world)
        case _:
            pass


def _tell(task: SlurmTask, told: str, world: World) -> Iterator[Any]:
    """Write why into the job's AdminComment, once, and with that an Event on the batch Job that it runs for."""
    if task.job.comment_text == told:
        return
    yield acts.AnnotateJob(task.ref, told)
    for job in world.kube.jobs:
        if batchjobs.key(job) == task.job.key:
            yield acts.Announce(job, "Preempted", told, warning=True)


def _graced(task: SlurmTask, victim: Victim, intent: Intent, world: World, out: Preempting) -> bool:
    """Return whether a job has had its grace; send its signal on the way there, with a record of when."""
    if task.job.signal is None:
        return True
    name = earmarks.signal_id(intent, victim)
    record = world.intents.get(name)
    if record is None:
        out.writes.append(acts.Intend(Intent(name, earmarks.SIGNAL_KIND, victim.workload, world.now_ms, {})))
    if record is None or record.settled_ms is None:
        out.acts.append(acts.SignalJob(task.ref, task.job.signal, name))
        return False
    return world.now_ms >= record.settled_ms + victim.grace_ms


def _put_back(task: SlurmTask, grant: Grant, told: str, world: World) -> Iterator[Any]:
    """Requeue a job; cancel one that cannot be requeued, where its team allows that still."""
    if slurmjobs.requeues(task.job):
        yield acts.RequeueJob(task.ref, told)
    elif world.settings.policy.of(grant.team).kill:
        yield acts.CancelJob(task.ref, told)
