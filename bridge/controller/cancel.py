"""Cancels asked for through the bridge: recorded as intents, repeated until the owner confirms the end. Pure."""

from dataclasses import dataclass, field
from typing import Any

from bridge.controller import acts
from bridge.controller.world import World
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads import pods, slurmjobs


@dataclass(slots=True)
class Cancels:
    """What cancelling asks for."""

    writes: list[acts.LedgerWrite] = field(default_factory=list)
    acts: list[Any] = field(default_factory=list)


def cancel(world: World) -> Cancels:
    """Return one cancel per open intent whose workload has not ended; settle those whose end was seen."""
    out = Cancels()
    tasks = {t.id: t for t in slurmjobs.tasks(world.slurm.cluster, world.slurm.jobs)} if world.slurm.ok else {}
    by_id = {pods.workload_id(pod): pod for pod in world.kube.pods} if world.kube.ok else {}
    for intent in world.intents.values():
        if intent.kind != "cancel" or intent.settled_ms is not None:
            continue
        if intent.workload.startswith("pod/") and world.kube.ok:
            pod = by_id.get(intent.workload)
            if pod is None or pods.life(pod) is pods.PodLife.ENDED:
                out.writes.append(acts.Settle(intent.id, "ended"))
            elif not pods.deleting(pod):
                out.acts.append(acts.DeletePod(pod, "cancelled"))
        if intent.workload.startswith(f"slurm/{world.slurm.cluster}/") and world.slurm.ok:
            task = tasks.get(intent.workload)
            if task is None or states.phase(task.job.state, task.job.flags) is Phase.ENDED:
                out.writes.append(acts.Settle(intent.id, "ended"))
            elif states.phase(task.job.state, task.job.flags) in (Phase.WAITING, Phase.RUNNING):
                out.acts.append(acts.CancelJob(task.ref, "cancelled"))
    return out
