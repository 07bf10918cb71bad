"""What asks to be admitted now, and what is refused before it may ask. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bridge import wellknown
from bridge.controller import cancel
from bridge.controller.world import World
from bridge.kube.port import Object
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads import batchjobs, pods, slurmjobs
from bridge.workloads.model import Grant, Workload, WorkloadId
from bridge.workloads.reasons import Reason, Waiting
from bridge.workloads.slurmjobs import SlurmTask


@dataclass(frozen=True, slots=True)
class Demand:
    """Waiting workloads, and refusals by workload; with the record behind each, to tell its owner."""

    waiting: tuple[Workload, ...]
    refused: Mapping[WorkloadId, Waiting]
    tasks: Mapping[WorkloadId, SlurmTask]
    pods: Mapping[WorkloadId, Object]


def demand(world: World, grants: tuple[Grant, ...]) -> Demand:
    """Collect held GPU jobs and gated GPU pods that no grant holds for; nothing of a system that is unknown."""
    held = {grant.workload for grant in grants}
    tasks = {task.id: task for task in _held_tasks(world) if task.id not in held} if world.slurm.ok else {}
    gated = {identity: pod for identity, pod in _gated_pods(world) if identity not in held} if world.kube.ok else {}
    waiting: list[Workload] = []
    refused: dict[WorkloadId, Waiting] = {}
    for identity, task in tasks.items():
        _sort(identity, _of_task(task, world), waiting, refused)
    for identity, pod in gated.items():
        found = pods.workload(
            pod, world.kube.namespaces, world.kube.nodes, world.settings.tenants, world.settings.flavors
        )
        _sort(identity, found, waiting, refused)
    return Demand(tuple(waiting), refused, tasks, gated)


def _sort(
    identity: WorkloadId, found: Workload | Waiting, waiting: list[Workload], refused: dict[WorkloadId, Waiting]
) -> None:
    if isinstance(found, Waiting):
        refused[identity] = found
    else:
        waiting.append(found)


def _of_task(task: SlurmTask, world: World) -> Workload | Waiting:
    if task.job.dependency:
        return Waiting(Reason.IN_SLURM, f"waits for its dependency: {task.job.dependency}")
    if task.job.eligible_ms is not None and task.job.eligible_ms > world.now_ms:
        return Waiting(Reason.IN_SLURM, "waits for its own begin time (--begin)")
    found = slurmjobs.workload(task, world.settings.tenants, world.settings.flavors)
    if isinstance(found, Workload) and world.settings.policy.of(found.team).kill:
        return replace(found, preemptible=True)  # what cannot be requeued may be cancelled
    return found


def _held_tasks(world: World) -> list[SlurmTask]:
    cancelled = cancelled_ids(world)
    stopped = _stopped_keys(world)
    return [
        task
        for task in world.slurm.tasks.values()
        if task.job.held
        and slurmjobs.wants_gpus(task.job)
        and states.phase(task.job.state, task.job.flags) is Phase.WAITING
        and task.id not in cancelled
        and task.job.key not in stopped
    ]


def _stopped_keys(world: World) -> set[str]:
    """Keys of batch Jobs that are suspended or being deleted: their Slurm jobs do not ask."""
    return {
        batchjobs.key(job)
        for job in world.kube.jobs
        if job["spec"].get("suspend") or job["metadata"].get("deletionTimestamp")
    }


def cancelled_ids(world: World) -> set[WorkloadId]:
    """Workloads with an open cancel."""
    return {intent.workload for intent in cancel.asked(world.intents.values())}


def _gated_pods(world: World) -> list[tuple[WorkloadId, Object]]:
    cancelled = cancelled_ids(world)
    return [
        (identity, pod)
        for identity, pod in world.kube.pods_by_id.items()
        if pods.life(pod) is pods.PodLife.GATED
        and not pods.deleting(pod)
        and [gate["name"] for gate in pod["spec"]["schedulingGates"]] == [wellknown.QUOTA_GATE]
        and identity not in cancelled
    ]
