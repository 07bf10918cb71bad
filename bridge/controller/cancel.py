"""Cancels asked for through the bridge: recorded as intents, repeated until the owner confirms the end. Pure.

A Slurm job that one read lacks has not ended (rule 8 of unknowns): slurmctld may be recovering its state. It counts
as ended once good reads have lacked it for LOST_AFTER_MS, as for its charge.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bridge.controller import acts
from bridge.controller.settle import long_missing
from bridge.controller.world import World
from bridge.ledger.port import Intent
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads import pods
from bridge.workloads.slurmjobs import SlurmTask


@dataclass(slots=True)
class Cancels:
    """What cancelling asks for."""

    writes: list[acts.LedgerWrite] = field(default_factory=list)
    acts: list[Any] = field(default_factory=list)


def cancel(world: World) -> Cancels:
    """Return one cancel per open intent whose workload has not ended; settle those whose end was seen."""
    out = Cancels()
    for intent in asked(world.intents.values()):
        if intent.workload.startswith("pod/") and world.kube.ok:
            pod = world.kube.pods_by_id.get(intent.workload)
            if pod is None or pods.life(pod) is pods.PodLife.ENDED:
                out.writes.append(acts.Settle(intent.id, "ended"))
            elif not pods.deleting(pod):
                out.acts.append(acts.DeletePod(pod, "cancelled"))
        if intent.workload.startswith(f"slurm/{world.slurm.cluster}/") and world.slurm.ok:
            _job(intent, world.slurm.tasks.get(intent.workload), world, out)
    return out


def asked(intents: Iterable[Intent]) -> Iterator[Intent]:
    """Yield the cancels that are still to be carried out."""
    return (intent for intent in intents if intent.kind == "cancel" and intent.settled_ms is None)


def _job(intent: Intent, task: SlurmTask | None, world: World, out: Cancels) -> None:
    if task is None:
        if long_missing(intent.workload, world):
            out.writes.append(acts.Settle(intent.id, "ended"))
        return
    phase = states.phase(task.job.state, task.job.flags)
    if phase is Phase.ENDED:
        out.writes.append(acts.Settle(intent.id, "ended"))
    elif phase in (Phase.WAITING, Phase.RUNNING):
        out.acts.append(acts.CancelJob(task.ref, "cancelled"))
