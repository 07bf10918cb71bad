"""Granted work whose capacity is in place starts; for the rest, what it still waits for. Pure."""

from typing import Any

from bridge import wellknown
from bridge.capacity import readiness
from bridge.capacity.model import NodeView
from bridge.controller import acts, workers
from bridge.controller.world import World
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads import pods, slurmjobs
from bridge.workloads.model import Grant, GrantState, System, WorkloadId
from bridge.workloads.reasons import Reason, Waiting


def start(
    world: World, grants: tuple[Grant, ...], views: tuple[NodeView, ...]
) -> tuple[list[Any], dict[WorkloadId, Waiting]]:
    """Return the releases and ungates of this cycle, and a Waiting for every grant whose capacity still moves."""
    started: list[Any] = []
    moving: dict[WorkloadId, Waiting] = {}
    if not (world.kube.ok and world.slurm.ok):
        return started, moving
    tasks = world.slurm.tasks
    gated = {identity: pod for identity, pod in world.kube.pods_by_id.items() if pods.gated(pod)}
    for grant in grants:
        if grant.state is not GrantState.RESERVED:
            continue
        pending = readiness.pending(grant, views)
        if pending:
            moving[grant.workload] = Waiting(Reason.MOVING, f"granted; {pending}")
        elif grant.system is System.SLURM:
            started += _release(tasks.get(grant.workload), grant, world)
        elif grant.workload in gated and not pods.deleting(gated[grant.workload]):
            started.append(acts.UngatePod(gated[grant.workload], next(iter(grant.placement))))
    return started, moving


def _release(task: slurmjobs.SlurmTask | None, grant: Grant, world: World) -> list[Any]:
    if task is None or not task.job.held or states.phase(task.job.state, task.job.flags) is not Phase.WAITING:
        return []
    names = [
        pod["metadata"]["name"]
        for node in sorted(grant.placement)
        for pod in workers.on_node(world.kube, node)
        if not pods.deleting(pod) and wellknown.WORKER_NODE_LABEL in workers.labels(pod)
    ]
    return [acts.ReleaseJob(grant.workload, task.ref, tuple(names))]
