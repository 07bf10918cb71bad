"""The queue as the API shows it: one row per workload, from one beat. Pure but for the ledger's ended grants."""

from collections.abc import Iterable, Iterator, Mapping

from bridge import wellknown
from bridge.api.views import QueueRow, State
from bridge.controller.cycle import Beat
from bridge.kube.port import Object
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads import pods
from bridge.workloads.model import Grant, GrantState, System, Workload, WorkloadId
from bridge.workloads.reasons import Waiting


def rows(beat: Beat, ended: Iterable[Grant], now_ms: int) -> list[QueueRow]:
    """Return waiting workloads by age, then those that hold, then ended ones (given newest first), one row each."""
    finder = _Finder(beat)
    waiting = [finder.waiting(w, beat.plan.waits.get(w.id), now_ms) for w in beat.plan.demand.waiting]
    active = {grant.workload for grant in beat.plan.grants}
    waiting = [row for row in waiting if row.id not in active]
    refused = [finder.refused(i, w, now_ms) for i, w in beat.plan.demand.refused.items()]
    holding = [finder.granted(g, beat.plan.waits.get(g.workload), now_ms) for g in beat.plan.grants]
    known = active | {WorkloadId(row.id) for row in (*waiting, *refused)}
    latest: dict[WorkloadId, Grant] = {}
    for grant in ended:
        if grant.workload not in known:
            latest.setdefault(grant.workload, grant)
    over = [finder.granted(grant, None, now_ms) for grant in latest.values()]
    waiting.sort(key=lambda row: (row.submitted_ms, row.id))
    holding.sort(key=lambda row: (row.submitted_ms, row.id))
    over.sort(key=lambda row: (-(row.ended_ms or 0), row.id))
    return [*waiting, *refused, *holding, *over]


class _Finder:
    """Looks the record of a workload up once per beat."""

    def __init__(self, beat: Beat) -> None:
        world = beat.world
        self._tasks = world.slurm.tasks
        self._pods: Mapping[WorkloadId, Object] = {
            **{WorkloadId(f"pod/{uid}"): pod for uid, pod in world.kube.gone.items()},
            **world.kube.pods_by_id,
        }
        self._jobs = {job["metadata"]["uid"]: job["metadata"] for job in world.kube.jobs}
        self._accounts = {tenant.account: tenant.name for tenant in world.settings.tenants.teams}
        self._tenants = world.settings.tenants
        self._namespaces = world.kube.namespaces

    def waiting(self, workload: Workload, why: Waiting | None, now_ms: int) -> QueueRow:
        """Build the row of a workload that asks."""
        where, refs = self._where(workload.id)
        return QueueRow(
            id=workload.id,
            name=workload.name,
            user=workload.user,
            team=workload.team,
            system=workload.system,
            flavor=workload.flavor,
            gpus=workload.gpus,
            nodes=workload.nodes,
            state=State.REFUSED if why is not None and why.final else State.WAITING,
            reason=why.reason if why else None,
            text=why.text if why else "",
            submitted_ms=workload.submitted_ms,
            waited_s=max(0, now_ms - workload.submitted_ms) / 1000,
            priority=workload.priority,
            position=_position(why),
            where=where,
            refs=refs,
        )

    def refused(self, identity: WorkloadId, why: Waiting, now_ms: int) -> QueueRow:
        """Build the row of something that could not be translated."""
        where, refs = self._where(identity)
        task, pod = self._tasks.get(identity), self._pods.get(identity)
        submitted = task.job.submit_ms if task else _created_ms(pod, now_ms)
        team = self._accounts.get(task.job.account, task.job.account) if task else ""
        return QueueRow(
            id=identity,
            name=task.job.name if task else _pod_name(pod),
            user=self._tenants.user_of(task.job.uid, task.job.user) if task else _submitter(pod),
            team=team or (pods.team_of(pod, self._namespaces) if pod else ""),
            system=System.SLURM if task else System.KUBERNETES,
            flavor="",
            gpus=task.job.requested.gpu_total if task else 0,
            state=State.REFUSED if why.final else State.WAITING,
            reason=why.reason,
            text=why.text,
            submitted_ms=submitted,
            waited_s=max(0, now_ms - submitted) / 1000,
            where=where,
            refs=refs,
        )

    def granted(self, grant: Grant, why: Waiting | None, now_ms: int) -> QueueRow:
        """Build the row of a workload that holds or held GPUs."""
        where, refs = self._where(grant.workload)
        submitted = grant.submitted_ms or grant.reserved_ms or now_ms
        until = grant.running_ms or grant.ended_ms or now_ms
        return QueueRow(
            id=grant.workload,
            name=grant.name,
            user=grant.user,
            team=grant.team,
            system=grant.system,
            flavor=grant.flavor,
            gpus=grant.gpus,
            nodes=max(1, len(grant.placement)),
            state=self._state(grant),
            reason=why.reason if why else None,
            text=why.text if why else grant.note,
            submitted_ms=submitted,
            waited_s=max(0, until - submitted) / 1000,
            started_ms=grant.running_ms,
            ended_ms=grant.ended_ms,
            where=where,
            refs=refs,
        )

    def _state(self, grant: Grant) -> State:
        if not grant.holds:
            return State.ENDED
        if grant.state is GrantState.RESERVED:
            return State.GRANTED
        task, pod = self._tasks.get(grant.workload), self._pods.get(grant.workload)
        if task is not None and states.phase(task.job.state, task.job.flags) is Phase.ENDING:
            return State.ENDING
        return State.ENDING if pod is not None and pods.deleting(pod) else State.RUNNING

    def _where(self, identity: WorkloadId) -> tuple[str, tuple[str, ...]]:
        refs = tuple(self._refs(identity))
        return (refs[0] if refs else ""), refs

    def _refs(self, identity: WorkloadId) -> Iterator[str]:
        """Yield what the owner may call it: a batch Job's name before its JobId."""
        task, pod = self._tasks.get(identity), self._pods.get(identity)
        if task is not None:
            if task.job.key.startswith(wellknown.JOB_KEY_PREFIX):
                meta = self._jobs.get(task.job.key.removeprefix(wellknown.JOB_KEY_PREFIX))
                if meta is not None:
                    yield f"job/{meta['namespace']}/{meta['name']}"
            yield task.shown_id
        elif pod is not None:
            yield f"pod/{_pod_name(pod)}"


def _position(why: Waiting | None) -> int | None:
    position = why.numbers.get("position") if why is not None else None
    return position if isinstance(position, int) else None


def _created_ms(pod: Object | None, now_ms: int) -> int:
    return pods.parse_ms(pod["metadata"]["creationTimestamp"]) if pod else now_ms


def _pod_name(pod: Object | None) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" if pod else ""


def _submitter(pod: Object | None) -> str:
    if pod is None:
        return ""
    return str((pod["metadata"].get("annotations") or {}).get(wellknown.SUBMITTED_BY, ""))
