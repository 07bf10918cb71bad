"""Tell people where they look: AdminComment of Slurm jobs, a condition on pods. Only what changed, bounded. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.controller import acts
from bridge.controller.world import World
from bridge.kube.port import Object
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads import jobstatus, pods, slurmjobs
from bridge.workloads.model import Grant, GrantState, WorkloadId
from bridge.workloads.reasons import Reason, Waiting

MAX_TOLD: Final = 50
"""Writes per cycle and system: a long queue is told over several cycles, not in one long one."""


def annotations(world: World, waits: Mapping[WorkloadId, Waiting], grants: tuple[Grant, ...]) -> list[acts.AnnotateJob]:
    """Return the AdminComment texts that differ from what stands there; never splits an array to tell a task."""
    if not world.slurm.ok:
        return []
    texts: dict[tuple[int, int], acts.AnnotateJob] = {}
    by_grant = {grant.workload: grant for grant in grants}
    for task in world.slurm.tasks.values():
        if states.phase(task.job.state, task.job.flags) is not Phase.WAITING:
            continue
        text = _text(task.id, waits, by_grant)
        record = (task.job.job_id, task.job.array_task_id or 0)
        if text is None or text == task.job.comment_text or record in texts:
            continue
        ref = slurmjobs.SlurmTask(task.id, task.cluster, task.job, None).ref
        texts[record] = acts.AnnotateJob(ref, text)
    ordered = sorted(texts.items(), key=lambda item: item[0])
    return [act for _, act in ordered][:MAX_TOLD]


def _text(identity: WorkloadId, waits: Mapping[WorkloadId, Waiting], grants: Mapping[WorkloadId, Grant]) -> str | None:
    waiting = waits.get(identity)
    if waiting is not None:
        return f"{waiting.reason.value}: {waiting.text}"
    grant = grants.get(identity)
    if grant is None or grant.state is not GrantState.RESERVED:
        return None
    where = ", ".join(f"{node}:{gpus}" for node, gpus in sorted(grant.placement.items()))
    return f"{Reason.STARTING.value}: granted {grant.gpus} {grant.flavor} on {where}"


def conditions(world: World, waits: Mapping[WorkloadId, Waiting], grants: tuple[Grant, ...]) -> list[acts.KubeAct]:
    """Return the pod conditions that differ from what stands there."""
    if not world.kube.ok:
        return []
    told: list[acts.KubeAct] = []
    reserved = {g.workload: g for g in grants if g.state is GrantState.RESERVED}
    for identity, pod in world.kube.pods_by_id.items():
        if pods.life(pod) is not pods.PodLife.GATED or pods.deleting(pod):
            continue
        waiting = waits.get(identity)
        if waiting is not None:
            told += _tell(pod, "False", waiting.reason.value, waiting.text)
        elif identity in reserved:
            grant = reserved[identity]
            where = ", ".join(grant.placement)
            told += _tell(pod, "True", "Granted", f"granted {grant.gpus} {grant.flavor} on {where}")
    return told[:MAX_TOLD]


def _tell(pod: Object, status: str, reason: str, message: str) -> Iterator[acts.KubeAct]:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition["type"] == jobstatus.ADMITTED_CONDITION:
            if (condition["status"], condition.get("reason"), condition.get("message")) == (status, reason, message):
                return
            break
    yield acts.TellPod(pod, status, reason, message)
