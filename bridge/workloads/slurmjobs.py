"""Slurm jobs to workloads, from slurmctld's own ReqTRES. One workload per job and per array task."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bridge.quota.model import TeamName
from bridge.slurm.model import SlurmJob
from bridge.slurm.port import JobRef
from bridge.workloads.flavors import Flavors, FlavorSpec
from bridge.workloads.model import System, Workload, WorkloadId
from bridge.workloads.reasons import Reason, Waiting
from bridge.workloads.tenants import Tenants


@dataclass(frozen=True, slots=True)
class SlurmTask:
    """One workload's view of a job record: the record itself, or one pending task of an unsplit array."""

    id: WorkloadId
    cluster: str
    job: SlurmJob
    task: int | None  # index to act on inside an unsplit array record; None acts on the record

    @property
    def ref(self) -> JobRef:
        """Address for a write."""
        return JobRef(job_id=self.job.job_id, key=self.job.key, task=self.task)

    @property
    def shown_id(self) -> str:
        """The id as squeue shows it, e.g. "12" or "12_3"."""
        index = self.task if self.task is not None else self.job.array_task_id
        if index is None:
            return str(self.job.job_id)
        return f"{self.job.array_job_id or self.job.job_id}_{index}"


def workload_id(cluster: str, key: str, task: int | None) -> WorkloadId:
    """Name a workload by the unique key that stands in its AdminComment, never by its JobId."""
    return WorkloadId(f"slurm/{cluster}/{key}" if task is None else f"slurm/{cluster}/{key}_{task}")


def tasks(cluster: str, jobs: Iterable[SlurmJob]) -> Iterator[SlurmTask]:
    """Expand job records into one task each; records without a key are not ours to name and are left out."""
    for job in jobs:
        if not job.key:
            continue
        if job.array_tasks:
            for index in job.array_tasks:
                yield SlurmTask(workload_id(cluster, job.key, index), cluster, job, index)
        else:
            yield SlurmTask(workload_id(cluster, job.key, job.array_task_id), cluster, job, None)


def wants_gpus(job: SlurmJob) -> bool:
    """Return whether slurmctld recorded a GPU request or allocation."""
    return job.requested.gpu_total > 0 or job.allocated.gpu_total > 0


def flavor_of(job: SlurmJob, flavors: Flavors) -> FlavorSpec | Waiting:
    """Return the one flavor that a job asks for (or holds), or why there is none."""
    gpus = job.allocated.gpus if job.allocated.gpu_total else job.requested.gpus
    types = sorted(kind for kind, count in gpus.items() if count > 0)
    if len(types) != 1:
        return Waiting(
            Reason.UNSUPPORTED,
            f"asks for several GPU types at once ({', '.join(types)}); ask for one type in --gres or --gpus",
            final=True,
        )
    found = flavors.for_gres(types[0])
    if found is not None:
        return found
    known = ", ".join(sorted(spec.gres_type for spec in flavors.specs)) or "none"
    asked = types[0] or "no type, and no flavor is the default"
    return Waiting(Reason.NO_SUCH_FLAVOR, f"GPU type {asked}: no flavor has it; known types: {known}", final=True)


def workload(task: SlurmTask, tenants: Tenants, flavors: Flavors) -> Workload | Waiting:
    """Translate a pending task's request, or say in one sentence why it cannot be one."""
    job = task.job
    tenant = tenants.of_account(job.account)
    if tenant is None:
        known = ", ".join(team.account for team in tenants.teams) or "none"
        return Waiting(Reason.UNKNOWN_TEAM, f"account {job.account!r} is no team's; accounts: {known}", final=True)
    user = tenants.user_of(job.uid, job.user)
    if not any(member.uid == job.uid for member in tenant.members):
        return Waiting(Reason.NOT_A_MEMBER, f"user {user!r} is not a member of team {tenant.name}", final=True)
    if job.het_job_id:
        told = "heterogeneous GPU jobs are not admitted; submit the parts as jobs"
        return Waiting(Reason.UNSUPPORTED, told, final=True)
    flavor = flavor_of(job, flavors)
    if isinstance(flavor, Waiting):
        return flavor
    nodes, gpus = max(1, job.requested.nodes), job.requested.gpu_total
    if gpus % nodes:
        return Waiting(
            Reason.UNSUPPORTED,
            f"{gpus} GPUs do not divide over {nodes} nodes; ask with --gpus-per-node, or a --nodes that divides --gpus",
            final=True,
        )
    return Workload(
        id=task.id,
        system=System.SLURM,
        team=tenant.name,
        flavor=flavor.name,
        nodes=nodes,
        gpus_per_node=gpus // nodes,
        submitted_ms=job.submit_ms,
        priority=priority(job),
        user=user,
        name=job.name,
        time_limit_s=job.time_limit_s,
        preemptible=requeues(job),
    )


def priority(job: SlurmJob) -> int:
    """Return a job's place among the team's: --nice, the other way round, so that pods and jobs compare."""
    return -job.nice


def requeues(job: SlurmJob) -> bool:
    """Return whether slurmctld can put the job back: a batch job that does not say --no-requeue."""
    return job.batch and job.requeueable


def adopted(task: SlurmTask, tenants: Tenants, flavors: Flavors, fallback: TeamName) -> Workload | None:
    """Describe something found running without a grant by what it really holds (AllocTRES)."""
    job = task.job
    tenant = tenants.of_account(job.account)
    flavor = flavor_of(job, flavors)
    if isinstance(flavor, Waiting) or job.allocated.gpu_total == 0:
        return None
    nodes = max(1, len(job.nodes))
    return Workload(
        id=task.id,
        system=System.SLURM,
        team=tenant.name if tenant else fallback,
        flavor=flavor.name,
        nodes=nodes,
        gpus_per_node=job.allocated.gpu_total // nodes,
        submitted_ms=job.submit_ms,
        user=tenants.user_of(job.uid, job.user),
        name=job.name,
    )
