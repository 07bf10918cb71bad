"""What users and admins do to a platform, each as a generator of conditions: (what is waited for, whether it is so).

A test drives them with the controller alive, killed or stopped. `Work` says afterwards what must have come of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bridge import wellknown
from bridge.errors import NotFoundError
from bridge.kube import port
from bridge.kube.port import Kind, Object
from bridge.workloads.model import WorkloadId
from tests import kubebox
from tests.integration.bridgebox import WORKERS, BridgeBox
from tests.integration.setting import NAMESPACE, batch_job

Conditions = Iterator[tuple[str, Callable[[], bool]]]
TEAM: Final = "vision"
_BRIEF: Final = "#!/bin/sh\nsleep 1.1\n"
_DONE: Final = "COMPLETED"
LEASE: Final = (port.LEASES, wellknown.LEASE_NAME, wellknown.NAMESPACE)
OBJECTS: Final = (
    (port.CONFIGMAPS, "slurm-config", NAMESPACE),
    (port.CONFIGMAPS, "slurm-users", NAMESPACE),
    (port.SERVICES, "slurmctld", NAMESPACE),
    (port.STATEFULSETS, "slurmctld", NAMESPACE),
    (port.DEPLOYMENTS, "login", NAMESPACE),
    (port.PDBS, "slurm-workers", NAMESPACE),
)


@dataclass(slots=True)
class Work:
    """What one step has begun. `intervals`: how often each of its workloads must have been charged for running."""

    name: str
    scripts: dict[str, int] = field(default_factory=dict)  # name of a script -> how often it must have run
    job_ids: list[str] = field(default_factory=list)  # of sbatch
    job_uids: list[str] = field(default_factory=list)  # of kubectl Jobs
    intervals: list[int] = field(default_factory=list)
    grant: WorkloadId | None = None  # of a single job, where a test follows it


def jobs(box: BridgeBox, work: Work) -> Conditions:
    """Submit a job of 4 GPUs and an array of two as alice; both end."""
    single, array = f"{work.name}-s", f"{work.name}-a"
    submit = partial(box.slurm.submitted, "alice", "--account=vision", "--output=/dev/null")
    work.job_ids = [
        submit("--gres=gpu:4", script=script(single)),
        submit("--gres=gpu:1", "--array=0-1", script=script(array)),
    ]
    work.scripts, work.intervals = {single: 1, array: 2}, [1, 1, 1]
    yield "the job and both tasks have ended", lambda: states(box, work) == {"COMPLETED"}


def pod(box: BridgeBox, work: Work) -> Conditions:
    """Run a pod of 8 GPUs, for which a worker must go and come back; delete it."""
    alice = box.kube.gateway("alice")
    alice.create(port.PODS, kubebox.pod(work.name, gpus=8), namespace=TEAM)
    work.intervals = [1]
    yield "the pod runs", lambda: found(box, port.PODS, work.name)["status"].get("phase") == "Running"
    yield "the charge has begun", lambda: charged(box, work.name)
    alice.delete(port.PODS, work.name, namespace=TEAM)
    yield "the pod is gone", lambda: gone(box, port.PODS, work.name)


def batch(box: BridgeBox, work: Work) -> Conditions:
    """Apply a kubectl GPU Job as alice; it completes; its logs' pod ends; deleting it leaves nothing."""
    create_job(box, work, script(work.name))
    work.scripts, work.intervals = {work.name: 1}, [1]
    yield "the Job is complete", lambda: "Complete" in conditions(found(box, port.JOBS, work.name))
    yield "its mirror has ended", lambda: [p["status"].get("phase") for p in mirrors(box, work)] == ["Succeeded"]
    yield from delete_job(box, work)


def cancelled(box: BridgeBox, work: Work) -> Conditions:
    """Delete a Job that runs."""
    create_job(box, work, waiting_script(work.name))
    work.scripts, work.intervals = {work.name: 1}, [1]
    yield "the Job runs", lambda: (found(box, port.JOBS, work.name).get("status") or {}).get("ready") == 1
    yield "its script runs", lambda: len(box.runs(work.name)) == 1
    yield from delete_job(box, work)
    yield "Slurm has ended it", lambda: {job["JobState"] for job in of_work(box, work)} == {"CANCELLED"}


def retried(box: BridgeBox, work: Work) -> Conditions:
    """Apply a Job whose first attempt fails: backoffLimit gives it another one, as the same Slurm job."""
    lines = f"$(wc -l < /home/alice/{work.name}.runs)"
    create_job(box, work, f"{script(work.name)}test {lines} -ge 2\n", backoffLimit=1)
    work.scripts, work.intervals = {work.name: 2}, [2]
    yield "the Job is complete", lambda: "Complete" in conditions(found(box, port.JOBS, work.name))
    yield from delete_job(box, work)


def suspended(box: BridgeBox, work: Work) -> Conditions:
    """Suspend a Job that runs, and let it go on: it is requeued, and runs a second time."""
    create_job(box, work, waiting_script(work.name))
    work.scripts, work.intervals = {work.name: 2}, [2]
    yield "its script runs", lambda: len(box.runs(work.name)) == 1
    suspend(box, work, value=True)
    yield "Slurm holds it again", lambda: {job["JobState"] for job in of_work(box, work)} == {"PENDING"}
    suspend(box, work, value=False)
    yield "its script runs again", lambda: len(box.runs(work.name)) == 2
    box.let_go(work.name)
    yield "the Job is complete", lambda: "Complete" in conditions(found(box, port.JOBS, work.name))
    yield from delete_job(box, work)


def cancel_by_api(box: BridgeBox, work: Work) -> Conditions:
    """Cancel a running sbatch job as `sbridge cancel` does."""
    text = "#!/bin/sh\n" + waiting_script(work.name)
    options = ("--account=vision", "--output=/dev/null", "--gres=gpu:1")
    work.job_ids = [box.slurm.submitted("alice", *options, script=text)]
    work.scripts, work.intervals = {work.name: 1}, [1]
    yield "its script runs", lambda: len(box.runs(work.name)) == 1
    # A caller whose answer was lost asks again; asking twice cancels once.
    yield "the cancel is taken", partial(cancel_taken, box, work.job_ids[0])
    yield "Slurm has ended it", lambda: states(box, work) == {"CANCELLED"}


def taken_back(box: BridgeBox, work: Work) -> Conditions:
    """Lend vision 4 of nlp's GPUs; bob asks for a whole node: alice's borrowing job is signalled and put back."""
    grace = {"spec": {"preemption": {"grace": "2s"}}}
    box.kube.gateway().patch(port.TEAMS, TEAM, grace)
    whole, lent = f"{work.name}-w", f"{work.name}-l"
    submit = partial(box.slurm.submitted, "alice", "--account=vision", "--output=/dev/null")
    work.job_ids = [submit("--gres=gpu:8", script=f"#!/bin/sh\n{waiting_script(whole)}")]
    yield "the whole node is alice's", lambda: len(box.runs(whole)) == 1
    signalled = f"#!/bin/sh\ntrap '' USR1\n{waiting_script(lent)}"
    work.job_ids.append(submit("--gres=gpu:4", "--signal=B:USR1@60", script=signalled))
    work.scripts, work.intervals = {whole: 1, lent: 2}, [1, 1, 2]
    yield "what is lent is in use", lambda: len(box.runs(lent)) == 1
    asking = box.slurm.submitted("bob", "--account=nlp", "--output=/dev/null", "--gres=gpu:8", script=_BRIEF)
    work.job_ids.append(asking)
    yield "bob's job has run", lambda: [j["JobState"] for j in of_work(box, work) if j["JobId"] == asking] == [_DONE]
    yield "alice's runs again", lambda: len(box.runs(lent)) == 2
    box.let_go(whole)
    box.let_go(lent)
    yield "all have ended", lambda: states(box, work) == {_DONE}


def evicted(box: BridgeBox, work: Work) -> Conditions:
    """Lend vision's pods 4 of nlp's GPUs; bob asks for a whole node: the borrowing pod is evicted."""
    alice = box.kube.gateway("alice")
    whole, lent = f"{work.name}-w", f"{work.name}-l"
    alice.create(port.PODS, kubebox.pod(whole, gpus=8), namespace=TEAM)
    yield "the whole node is alice's", lambda: charged(box, whole)
    alice.create(port.PODS, kubebox.pod(lent, gpus=4), namespace=TEAM)
    yield "what is lent is in use", lambda: charged(box, lent)
    work.job_ids = [box.slurm.submitted("bob", "--account=nlp", "--output=/dev/null", "--gres=gpu:8", script=_BRIEF)]
    work.intervals = [1, 1, 1]
    yield "the borrowing pod is gone", lambda: gone(box, port.PODS, lent)
    yield "bob's job has run", lambda: states(box, work) == {_DONE}
    assert exists(box, port.PODS, whole, TEAM), "the pod within the guarantee stays"
    alice.delete(port.PODS, whole, namespace=TEAM)
    yield "the other pod is gone", lambda: gone(box, port.PODS, whole)


def cordon(box: BridgeBox, _: Work) -> Conditions:
    """Cordon a node and uncordon it."""
    admin = box.kube.gateway()
    admin.patch(port.NODES, "g1", {"spec": {"unschedulable": True}})
    yield "Slurm has drained it", lambda: drain_of(box) == "bridge: node cordoned"
    admin.patch(port.NODES, "g1", {"spec": {"unschedulable": None}})
    yield "Slurm's drain is lifted", lambda: drain_of(box) == "none"


def foreign(box: BridgeBox, _: Work) -> Conditions:
    """Drain a node in Slurm as an admin, and lift it."""
    box.slurm.ctl("scontrol", "update", "nodename=h100-g1", "state=drain", "reason=fan broken")
    yield "the node is tainted", lambda: tainted(box)
    assert drain_of(box) == "fan broken"
    box.slurm.ctl("scontrol", "update", "nodename=h100-g1", "state=undrain")
    yield "the taint is lifted", lambda: not tainted(box)


def restart(box: BridgeBox, _: Work) -> Conditions:
    """Kill the controller; it starts again."""
    box.kill()
    box.start()
    yield "it leads", box.ready


def objects(box: BridgeBox, _: Work) -> Conditions:
    """Delete the Lease and the cluster's objects while the controller is dead; it makes them again."""
    box.kill()
    for kind, name, namespace in (LEASE, *OBJECTS):
        box.kube.gateway().delete(kind, name, namespace=namespace)
    box.start()
    yield "they exist again", lambda: all(exists(box, *where) for where in (LEASE, *OBJECTS))


# --- parts of steps --------------------------------------------------------------------------------------------
def script(name: str) -> str:
    """Return a script that leaves a line for each time it runs, and then runs into the next second of Slurm's clock."""
    return f"#!/bin/sh\necho run >> /home/alice/{name}.runs\nsleep 1.1\n"


def waiting_script(name: str) -> str:
    """Return a script's body that leaves a line and then waits to be let go."""
    return f"echo run >> /home/alice/{name}.runs; while [ ! -e /home/alice/{name}.go ]; do sleep 0.1; done\n"


def create_job(box: BridgeBox, work: Work, text: str, **spec: int) -> None:
    """Apply a Job of 2 GPUs as alice."""
    made = box.kube.gateway("alice").create(port.JOBS, batch_job(work.name, 2, text, **spec), namespace=TEAM)
    work.job_uids = [made["metadata"]["uid"]]


def suspend(box: BridgeBox, work: Work, *, value: bool) -> None:
    """Suspend the Job as alice, or let it go on."""
    box.kube.gateway("alice").patch(port.JOBS, work.name, {"spec": {"suspend": value}}, namespace=TEAM)


def delete_job(box: BridgeBox, work: Work) -> Conditions:
    """Delete the Job as alice, and its mirror as the garbage collector does, which does not run here."""
    box.kube.gateway("alice").delete(port.JOBS, work.name, namespace=TEAM)
    yield "the Job is gone", lambda: gone(box, port.JOBS, work.name)
    for mirror in mirrors(box, work):
        box.kube.gateway().delete(port.PODS, mirror["metadata"]["name"], namespace=TEAM)


def cancel_taken(box: BridgeBox, job_id: str) -> bool:
    """Return whether the API took a cancel."""
    try:
        box.call("POST", "/v1/cancel", "alice", {"ref": job_id})
    except OSError:
        return False
    return True


def found(box: BridgeBox, kind: Kind, name: str) -> Object:
    """Return an object of the team's namespace."""
    return box.kube.gateway().get(kind, name, namespace=TEAM)


def gone(box: BridgeBox, kind: Kind, name: str) -> bool:
    """Return whether an object of the team's namespace does not exist."""
    return not exists(box, kind, name, TEAM)


def exists(box: BridgeBox, kind: Kind, name: str, namespace: str) -> bool:
    """Return whether an object exists."""
    try:
        box.kube.gateway().get(kind, name, namespace=namespace)
    except NotFoundError:
        return False
    return True


def conditions(job: Object) -> set[str]:
    """Return the conditions that are true."""
    return {c["type"] for c in (job.get("status") or {}).get("conditions") or [] if c["status"] == "True"}


def mirrors(box: BridgeBox, work: Work) -> list[Object]:
    """Return the pods that follow this work's Jobs."""
    every = box.kube.gateway().list(port.PODS, namespace=TEAM).items
    return [p for p in every if (p["metadata"].get("labels") or {}).get(wellknown.MIRROR_OF_LABEL) in work.job_uids]


def of_work(box: BridgeBox, work: Work) -> list[dict[str, str]]:
    """Return Slurm's records of this work's jobs: by JobId what sbatch submitted, by key what a Job became."""
    keys = tuple(f"{wellknown.KEY_PREFIX}{wellknown.JOB_KEY_PREFIX}{uid}" for uid in work.job_uids)
    return [
        job
        for job in box.slurm_jobs()
        if job.get("ArrayJobId", job["JobId"]) in work.job_ids or (keys and job["AdminComment"].startswith(keys))
    ]


def states(box: BridgeBox, work: Work) -> set[str]:
    """Return the states of this work's jobs."""
    return {job["JobState"] for job in of_work(box, work)}


def charged(box: BridgeBox, pod_name: str) -> bool:
    """Return whether the ledger holds a running charge of a pod."""
    with box.ledger() as ledger:
        return any(g.name == f"{TEAM}/{pod_name}" and g.running_ms for g in ledger.grants(holding=True))


def drain_of(box: BridgeBox) -> str:
    """Return the first worker's reason in Slurm."""
    return box.slurm_nodes()[WORKERS[0]][1]


def tainted(box: BridgeBox) -> bool:
    """Return whether the first node carries the bridge's taint."""
    taints = box.kube.gateway().get(port.NODES, "g1")["spec"].get("taints") or []
    return any(taint["key"] == wellknown.DRAINED_TAINT for taint in taints)
