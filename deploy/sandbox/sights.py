"""What the tour looks at to check what it tells: pods, workers, Slurm jobs, the journal."""

import re
from typing import Any

from deploy.sandbox.narration import TourError, as_user, document, quiet

Object = dict[str, Any]

OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def workers() -> dict[str, Object]:
    """Return the worker pods that are not going, by name."""
    found = document("kubectl -n slurm get pods -l slurmbridge.dev/component=worker -o json")["items"]
    return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def worker_uses_all(pod: Object) -> int:
    """Return how many GPUs a worker pod asked the device plugin for."""
    return int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])


def slurm_nodes() -> dict[str, str]:
    """Return Slurm's nodes with their states."""
    answer = quiet(as_user("alice", "sinfo -h -N -o '%N %T'"))
    return dict(line.split()[:2] for line in answer.splitlines() if line.strip())


def job_field(job: str, field: str) -> str:
    """Return one field of `scontrol show job`."""
    answer = quiet(as_user("alice", f"scontrol -o show job {job}"))
    found = re.search(rf"(?:^|\s){field}=(\S*)", answer)
    if found is None:
        raise TourError(f"`scontrol show job {job}` shows no {field}")
    return found[1]


def jobs_named(name: str) -> list[str]:
    """Return the state of every Slurm job that ever had this name, as slurmctld still knows them."""
    answer = quiet(as_user("alice", f"squeue -h -a -t all --name={name} -o '%T'"))
    return answer.split()


def pods(namespace: str, selector: str) -> list[Object]:
    """Return pods that are not going."""
    found = document(f"kubectl -n {namespace} get pods -l {selector} -o json")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def scheduled(pod: Object) -> str:
    """Return when a pod was bound to its node, as the API server wrote it; "" before."""
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "True":
            return str(condition["lastTransitionTime"])
    return ""


def explained(workload: str) -> Object:
    """Return what the bridge knows about a workload."""
    found: Object = document(f"sbridge explain {workload} --output json")
    return found


def moment_ms(explain: Object, what: str) -> int:
    """Return when a line of a workload's history happened."""
    for moment in explain["timeline"]:
        if moment["what"] == what:
            return int(moment["at_ms"])
    raise TourError(f"the history of {explain['workload']['id']} has no line {what!r}")


def newest_entry() -> int:
    """Return the number of the newest journal entry."""
    return int(document("sbridge status --output json")["status"]["ledger_seq"])


def grants_after(seq: int, job_prefix: str) -> list[Object]:
    """Return the grants written after an entry for workloads whose id contains a text."""
    page = document(f"sbridge ledger log --after {seq} --limit 1000 --output json")["items"]
    return [entry for entry in page if entry["step"] == "reserve" and job_prefix in (entry["workload"] or "")]
