"""Grants that hold, with what admission asks about them: when they end, who may make way, who is leaving. Pure.

Of a Slurm job: its time limit (none: the end is not known), `--nice` (nice n is priority -n; root alone may go below
0), and whether slurmctld can requeue it. Of a pod: activeDeadlineSeconds (none: it serves for ever), its priority, and
the annotation slurmbridge.dev/preemptible. What a system does not show just now is nobody's victim.
"""

from collections.abc import Iterable
from typing import Final

from bridge import wellknown
from bridge.admission.model import Earmark, Holding
from bridge.controller import cancel
from bridge.controller.world import World
from bridge.kube.port import Object
from bridge.slurm import states
from bridge.slurm.model import Phase, SlurmJob
from bridge.workloads import pods, slurmjobs
from bridge.workloads.model import Grant, System, WorkloadId
from bridge.workloads.slurmjobs import SlurmTask

LEAVING_BOUND_MS: Final = 120_000
"""What is being cancelled or deleted counts as leaving this long; then it is only what nobody can take."""

_UNSEEN: Final = "its system does not show it now"
_STUCK: Final = "it should have ended and has not"


def holdings(world: World, grants: Iterable[Grant], earmarks: Iterable[Earmark]) -> tuple[Holding, ...]:
    """Return one holding for each grant."""
    victims = {(victim.workload, victim.attempt) for earmark in earmarks for victim in earmark.victims}
    cancels = {i.workload: i.at_ms + LEAVING_BOUND_MS for i in cancel.asked(world.intents.values())}
    return tuple(_holding(grant, world, victims, cancels.get(grant.workload)) for grant in grants)


def _holding(
    grant: Grant, world: World, victims: set[tuple[WorkloadId, int]], cancelled_until_ms: int | None
) -> Holding:
    victim = (grant.workload, grant.attempt) in victims
    if grant.system is System.SLURM:
        found = _of_job(grant, world.slurm.tasks.get(grant.workload), world, cancelled_until_ms)
    else:
        found = _of_pod(grant, world.kube.pods_by_id.get(grant.workload), world, cancelled_until_ms)
    if victim:
        return Holding(grant, found.priority, found.ends_ms, found.endless, found.shield, leaving=True)
    return found


def _of_job(grant: Grant, task: SlurmTask | None, world: World, until_ms: int | None) -> Holding:
    if task is None:
        return Holding(grant, shield=_UNSEEN)
    job, kill = task.job, world.settings.policy.of(grant.team).kill
    limit_ms = None if job.time_limit_s is None else job.time_limit_s * 1000
    start_ms = job.start_ms or grant.running_ms or grant.reserved_ms or world.now_ms
    if states.phase(job.state, job.flags) is Phase.ENDING and until_ms is None:
        until_ms = (job.end_ms or world.now_ms) + LEAVING_BOUND_MS
    return _built(
        grant,
        priority=slurmjobs.priority(job),
        ends_ms=None if limit_ms is None else start_ms + limit_ms,
        endless=False,
        shield="" if kill else unmovable(job),
        until_ms=until_ms,
        now_ms=world.now_ms,
    )


def unmovable(job: SlurmJob) -> str:
    """Say why a job cannot be requeued; "" when it can."""
    return "" if slurmjobs.requeues(job) else "not requeueable"


def _of_pod(grant: Grant, pod: Object | None, world: World, until_ms: int | None) -> Holding:
    if pod is None:
        return Holding(grant, endless=True, shield=_UNSEEN)
    deadline_s = pods.deadline_s(pod)
    start_ms = pods.admitted_ms(pod) or grant.reserved_ms or world.now_ms
    gone_ms = pods.deleted_ms(pod)
    if gone_ms is not None:
        until_ms = gone_ms + LEAVING_BOUND_MS
    return _built(
        grant,
        priority=pods.priority(pod),
        ends_ms=None if deadline_s is None else start_ms + deadline_s * 1000,
        endless=deadline_s is None,
        shield="" if pods.preemptible(pod) else f"annotated {wellknown.PREEMPTIBLE_ANNOTATION}: false",
        until_ms=until_ms,
        now_ms=world.now_ms,
    )


def _built(
    grant: Grant, *, priority: int, ends_ms: int | None, endless: bool, shield: str, until_ms: int | None, now_ms: int
) -> Holding:
    """`until_ms`: it was told to end, and counts as leaving until then. Attempt 0 is recorded only now: not yet one."""
    leaving = until_ms is not None and now_ms < until_ms
    if until_ms is not None and not leaving:
        shield = _STUCK
    return Holding(grant, priority, ends_ms, endless, shield if grant.attempt else _UNSEEN, leaving)
