"""Grants against reality: what started, ended, was lost, or runs without a grant. Pure.

Invariant: a charge ends only on positive evidence that the devices are free (rule 5): a terminal record of
slurmctld that is no longer COMPLETING, a pod that is terminal or gone from a good list, or, for a job that
slurmctld no longer knows, every worker of its placement registered again and not busy, or gone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from bridge import wellknown
from bridge.controller import acts, earmarks, workers
from bridge.controller.world import World
from bridge.kube.port import Object
from bridge.quota.model import TeamName
from bridge.slurm import states
from bridge.slurm.model import JobState, Phase, SlurmJob
from bridge.workloads import pods, slurmjobs
from bridge.workloads.model import Grant, GrantState, NodeName, System, WorkloadId
from bridge.workloads.reasons import Waiting
from bridge.workloads.slurmjobs import SlurmTask

LOST_AFTER_MS: Final = 15_000
"""A job missing from good reads for this long is lost: longer than slurmctld takes to recover its state."""

_DONE: Final = ("completed", "pod succeeded")

STUCK_AFTER_MS: Final = 60_000
"""A job still pending in Slurm this long after its release is held again and its grant voided."""


def settle(world: World) -> tuple[list[acts.LedgerWrite], list[acts.SlurmAct]]:
    """Return the ledger writes that bring grants to what both systems show, and the holds that go with them."""
    writes: list[acts.LedgerWrite] = []
    slurm_acts: list[acts.SlurmAct] = []
    by_id, pods_by_id = world.slurm.tasks, world.kube.pods_by_id
    for grant in world.grants:
        if grant.system is System.SLURM and world.slurm.ok and _of_cluster(grant, world):
            writes += _slurm(grant, by_id.get(grant.workload), world)
        if grant.system is System.KUBERNETES and world.kube.ok:
            writes += _pod(grant, pods_by_id.get(grant.workload), world)
    held = {grant.workload for grant in world.grants}
    if world.slurm.ok:
        writes += list(_adopt_jobs(world, held))
        slurm_acts += list(_holds(by_id, writes, held))
    if world.kube.ok:
        writes += list(_adopt_pods(world, held))
    return _explained(writes, world), slurm_acts


def _explained(writes: list[acts.LedgerWrite], world: World) -> list[acts.LedgerWrite]:
    """Note at the end of each victim of a preemption why it ended; one that completed first was none."""
    reasons = earmarks.reasons(world.intents.values())
    explained: list[acts.LedgerWrite] = []
    for write in writes:
        why = reasons.get((write.workload, write.attempt)) if isinstance(write, acts.Release) else None
        if isinstance(write, acts.Release) and why is not None and write.note not in _DONE:
            write = replace(write, note=f"{write.note}; {why}")  # noqa: PLW2901 -- the same write, said better
        explained.append(write)
    return explained


def project(grants: tuple[Grant, ...], writes: list[acts.LedgerWrite]) -> tuple[Grant, ...]:
    """Return the grants that hold after these writes, as the ledger will have them."""
    kept = {grant.workload: grant for grant in grants}
    for write in writes:
        match write:
            case acts.Release() | acts.Void():
                kept.pop(write.workload, None)
            case acts.Run() | acts.Adjust():
                grant = kept[write.workload]
                started_ms = write.at_ms if grant.running_ms is None else grant.running_ms
                kept[write.workload] = replace(
                    grant,
                    state=GrantState.RUNNING,
                    gpus=write.gpus,
                    placement=write.placement,
                    running_ms=started_ms,
                )
            case acts.Reserve() | acts.Adopt():
                kept[write.workload.id] = projected(write)
            case _:
                pass
    return tuple(kept.values())


def projected(write: acts.Reserve | acts.Adopt) -> Grant:
    """Return the grant that a reservation or an adoption makes (its attempt number is the ledger's to give)."""
    workload = write.workload
    return Grant(
        workload=workload.id,
        attempt=0,
        team=workload.team,
        flavor=workload.flavor,
        system=workload.system,
        gpus=sum(write.placement.values()),
        state=GrantState.RUNNING if isinstance(write, acts.Adopt) else GrantState.RESERVED,
        placement=write.placement,
        user=workload.user,
        name=workload.name,
        running_ms=write.at_ms if isinstance(write, acts.Adopt) else None,
    )


def _of_cluster(grant: Grant, world: World) -> bool:
    return grant.workload.startswith(f"slurm/{world.slurm.cluster}/")


def _slurm(grant: Grant, task: SlurmTask | None, world: World) -> Iterator[acts.LedgerWrite]:
    if task is None:
        yield from _lost(grant, world)
        return
    job, phase = task.job, states.phase(task.job.state, task.job.flags)
    ran = job.start_ms is not None and bool(job.nodes)
    match phase:
        case Phase.WAITING if grant.state is GrantState.RUNNING:
            yield acts.Release(grant.workload, grant.attempt, world.now_ms, "requeued by slurm")
        case Phase.WAITING if _stuck(grant, task, world):
            why = f"{wellknown.GROUP}: not started within {STUCK_AFTER_MS // 1000} s; slurm says {job.state_reason}"
            yield acts.Void(grant.workload, grant.attempt, why)
        case Phase.RUNNING | Phase.ENDING if ran:
            yield from _running(grant, task, world)
        case Phase.ENDED if grant.state is GrantState.RUNNING or (ran and _took_time(job)):
            if grant.state is GrantState.RESERVED:
                yield from _running(grant, task, world)
            end_ms = max(job.end_ms or world.now_ms, _start(grant, job.start_ms))
            yield acts.Release(grant.workload, grant.attempt, end_ms, f"{job.state.value.lower()}")
        case Phase.ENDED:
            yield acts.Void(grant.workload, grant.attempt, f"ended before it ran: {job.state.value.lower()}")
        case _:
            pass


def _took_time(job: SlurmJob) -> bool:
    """Return whether an ended job ran: one that exited did, though within one second of Slurm's clock."""
    exited = job.state in (JobState.COMPLETED, JobState.FAILED)
    return exited or (job.end_ms is not None and job.start_ms is not None and job.end_ms > job.start_ms)


def _start(grant: Grant, start_ms: int | None) -> int:
    return grant.running_ms if grant.running_ms is not None else (start_ms or 0)


def _running(grant: Grant, task: SlurmTask, world: World) -> Iterator[acts.LedgerWrite]:
    """Charge what was really allocated: AllocTRES, from Slurm's own start time."""
    job = task.job
    gpus = job.allocated.gpu_total or grant.gpus
    placement = placement_of(task, grant, world, gpus)
    if grant.state is GrantState.RESERVED and job.start_ms is not None:
        yield acts.Run(grant.workload, grant.attempt, gpus, placement, job.start_ms)
    elif grant.state is GrantState.RUNNING and gpus != grant.gpus and job.state is JobState.RUNNING:
        yield acts.Adjust(grant.workload, grant.attempt, gpus, placement, world.now_ms)


def placement_of(task: SlurmTask, grant: Grant | None, world: World, gpus: int) -> Mapping[NodeName, int]:
    """Spread a job's devices over the Kubernetes nodes of its workers; as granted when these are not known."""
    nodes = [workers.kube_node(world.kube, name) for name in task.job.nodes]
    known = [node for node in nodes if node is not None]
    if not known or len(known) != len(nodes) or gpus % len(known):
        return dict(grant.placement) if grant else {}
    return {node: gpus // len(known) for node in known}


def _stuck(grant: Grant, task: SlurmTask, world: World) -> bool:
    since = world.slurm.released_ms.get(grant.workload)
    return not task.job.held and since is not None and world.now_ms - since > STUCK_AFTER_MS


def long_missing(workload: WorkloadId, world: World) -> bool:
    """Return whether good reads have lacked a watched job for so long that slurmctld does not know it any more."""
    since = world.slurm.missing_ms.get(workload)
    return since is not None and world.now_ms - since >= LOST_AFTER_MS


def _lost(grant: Grant, world: World) -> Iterator[acts.LedgerWrite]:
    if not long_missing(grant.workload, world):
        return
    if grant.state is GrantState.RESERVED:
        yield acts.Void(grant.workload, grant.attempt, "slurmctld no longer knows the job: lost before it ran")
    elif all(_physically_free(node, world) for node in grant.placement):
        yield acts.Release(grant.workload, grant.attempt, world.now_ms, "slurmctld no longer knows the job: lost")


def _physically_free(node: NodeName, world: World) -> bool:
    """Positive evidence only: the node's worker is registered and not busy, or no worker pod is there."""
    if not world.kube.ok:
        return False
    for pod in workers.on_node(world.kube, node):
        record = world.slurm.nodes.get(pod["metadata"]["name"])
        if record is None or record.busy or "NOT_RESPONDING" in record.flags:
            return False
    return True


def _pod(grant: Grant, pod: Object | None, world: World) -> Iterator[acts.LedgerWrite]:
    if pod is None:
        last = world.kube.gone.get(grant.workload.removeprefix("pod/"))
        yield from _ended(grant, last, world, "pod gone")
        return
    match pods.life(pod):
        case pods.PodLife.ENDED:
            yield from _ended(grant, pod, world, f"pod {pod['status']['phase'].lower()}")
        case pods.PodLife.RUNNING:
            yield from _pod_run(grant, pod)
        case _:
            pass


def _pod_run(grant: Grant, pod: Object) -> Iterator[acts.LedgerWrite]:
    """Start the charge of a reserved grant at the first container's start, once that is known."""
    node, started = pods.node(pod), pods.started_ms(pod)
    if grant.state is GrantState.RESERVED and started is not None:
        placement = {node: grant.gpus} if node else dict(grant.placement)
        yield acts.Run(grant.workload, grant.attempt, grant.gpus, placement, started)


def _ended(grant: Grant, pod: Object | None, world: World, note: str) -> Iterator[acts.LedgerWrite]:
    started = pods.started_ms(pod) if pod else None
    if grant.state is GrantState.RESERVED and started is None:
        yield acts.Void(grant.workload, grant.attempt, note)
        return
    if pod is not None:
        yield from _pod_run(grant, pod)
    end_ms = (pods.ended_ms(pod) if pod else None) or world.now_ms
    yield acts.Release(grant.workload, grant.attempt, max(end_ms, _start(grant, started)), note)


def _holds(
    by_id: Mapping[WorkloadId, SlurmTask], writes: list[acts.LedgerWrite], held: set[WorkloadId]
) -> Iterator[acts.SlurmAct]:
    """Hold as root: running GPU jobs (so that any requeue lands held, J13) and whatever may start ungranted."""
    gone = {write.workload for write in writes if isinstance(write, acts.Void | acts.Release)}
    seen: set[tuple[int, int | None]] = set()
    for task in by_id.values():
        job = task.job
        if job.held or not slurmjobs.wants_gpus(job) or (job.job_id, task.task) in seen:
            continue
        seen.add((job.job_id, task.task))
        match states.phase(job.state, job.flags):
            case Phase.RUNNING if task.task is None:
                yield acts.HoldJob(task.ref, "a requeue must come back through the ledger")
            case Phase.WAITING if task.id not in held or task.id in gone:
                yield acts.HoldJob(task.ref, "no grant")
            case _:
                pass


def _adopt_jobs(world: World, held: set[WorkloadId]) -> Iterator[acts.LedgerWrite]:
    for task in world.slurm.tasks.values():
        if task.id in held or states.phase(task.job.state, task.job.flags) not in (Phase.RUNNING, Phase.ENDING):
            continue
        workload = slurmjobs.adopted(task, world.settings.tenants, world.settings.flavors, world.settings.fallback_team)
        if workload is None or task.job.start_ms is None:
            continue
        placement = placement_of(task, None, world, task.job.allocated.gpu_total)
        if placement:
            yield acts.Adopt(workload, placement, task.job.start_ms, "found running without a grant")


def _adopt_pods(world: World, held: set[WorkloadId]) -> Iterator[acts.LedgerWrite]:
    for pod in world.kube.pods:
        identity = pods.workload_id(pod)
        if identity in held or pods.life(pod) in (pods.PodLife.GATED, pods.PodLife.ENDED):
            continue
        team = pods.team_of(pod, world.kube.namespaces)
        node = pods.node(pod)
        if not team or node is None or pods.request(pod, world.settings.flavors.resources) is None:
            continue
        found = pods.workload(
            pod, world.kube.namespaces, world.kube.nodes, world.settings.tenants, world.settings.flavors
        )
        if isinstance(found, Waiting):
            continue
        started = pods.started_ms(pod)
        if started is not None:
            yield acts.Adopt(
                replace(found, team=TeamName(team)), {node: found.gpus}, started, "found running without a grant"
            )
