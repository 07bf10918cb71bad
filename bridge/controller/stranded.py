"""Reserved grants whose place is gone before they started: taken back, so that they are placed again. Pure.

Safe because nothing runs: the job is still held, the pod still gated; both would start only by an act of ours.
"""

from collections.abc import Iterator, Mapping

from bridge.capacity.model import NodeView
from bridge.controller import acts
from bridge.controller.world import World
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads import pods
from bridge.workloads.model import Grant, GrantState, NodeName, System, WorkloadId


def stranded(world: World, grants: tuple[Grant, ...], views: tuple[NodeView, ...]) -> list[acts.LedgerWrite]:
    """Return the voids; none while one of the systems is unknown."""
    if not (world.kube.ok and world.slurm.ok):
        return []
    waiting = set(_not_started(world))
    by_name = {view.name: view for view in views}
    writes: list[acts.LedgerWrite] = []
    for grant in grants:
        if grant.state is GrantState.RESERVED and grant.workload in waiting:
            why = _gone(grant, by_name)
            if why:
                writes.append(acts.Void(grant.workload, grant.attempt, f"its place is gone: {why}"))
    return writes


def _not_started(world: World) -> Iterator[WorkloadId]:
    for task in world.slurm.tasks.values():
        if task.job.held and states.phase(task.job.state, task.job.flags) is Phase.WAITING:
            yield task.id
    for pod in world.kube.pods:
        if pods.gated(pod):
            yield pods.workload_id(pod)


def _gone(grant: Grant, by_name: Mapping[NodeName, NodeView]) -> str:
    """Say which node cannot take its share any more, and why; "" when all can, if only after a move."""
    for name, gpus in sorted(grant.placement.items()):
        view = by_name.get(name)
        if view is None:
            return f"node {name} is gone"
        if view.trouble:
            return f"{name}: {view.trouble}"
        if view.record is not None and view.record.foreign:
            return f"{name}: drained in Slurm ({view.record.reason})"
        if view.allocatable < gpus:
            return f"{name} has {view.allocatable} GPUs, {gpus} were granted"
        if grant.system is System.SLURM and view.nodeset is None:
            return f"no node set covers {name} any more"
    return ""
