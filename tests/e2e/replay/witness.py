"""An independent witness: what Slurm allocated and Kubernetes bound, once a second, without the bridge's code.

Slurm is read before and after the pods. A job counts that held its devices at both looks, so it held them at the
moment of the pods, too: no sum is too high only because the two systems are read one after the other.
"""

import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.e2e import kube, shell, slurm
from tests.e2e.apiserver import ApiServer

END = "=== end "
TERMINAL = ("Succeeded", "Failed")
_LOOP = f'while read -r line; do /usr/bin/scontrol -d -o show job; echo "{END}$?"; done'


class SlurmSide:
    """One shell in the login pod that is asked again and again: a process per look would disturb what it looks at."""

    def __init__(self) -> None:
        shell.require()
        command = ["kubectl", "-n", "slurm", "exec", "-i", "deploy/login", "--", "sh", "-c", _LOOP]
        self._shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def jobs(self) -> list[slurm.Job]:
        """Return every record; a look that fails is an error, never an empty list."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write("\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(END):
                if line.strip() != f"{END}0":
                    raise shell.CommandError(f"scontrol show job ended with {line.strip().removeprefix(END)}")
                return slurm.parse_all("".join(lines))
            lines.append(line)
        raise shell.CommandError("the shell in the login pod has ended")

    def close(self) -> None:
        """End the shell."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(timeout=10)


@dataclass(frozen=True, slots=True)
class Ground:
    """What does not change during a replay: devices of nodes, limits and members of teams."""

    devices: Mapping[str, int]
    flavors: Mapping[str, str]  # node -> flavor
    limits: Mapping[tuple[str, str], int]  # (team, flavor) -> limit
    parents: Mapping[str, str | None]
    accounts: Mapping[str, str]  # Slurm account -> team
    namespaces: Mapping[str, str]  # namespace -> team


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: what is held on each node and by each team, and what contradicts the promise."""

    slurm: int
    pods: int
    held: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (team, flavor) -> GPUs, subtree
    violations: tuple[str, ...] = ()


def ground() -> Ground:
    """Read nodes, Teams and namespaces."""
    nodes, flavors, teams = kube.items("nodes"), kube.items("flavors"), kube.items("teams")
    selectors = {each["metadata"]["name"]: each["spec"]["nodeSelector"].items() for each in flavors}
    gpu_nodes = [node for node in nodes if int(node["status"]["capacity"].get(kube.GPU, 0))]
    return Ground(
        devices={node["metadata"]["name"]: int(node["status"]["capacity"][kube.GPU]) for node in gpu_nodes},
        flavors={
            node["metadata"]["name"]: next(
                name for name, selector in selectors.items() if selector <= node["metadata"]["labels"].items()
            )
            for node in gpu_nodes
        },
        limits={
            (team["metadata"]["name"], quota["flavor"]): quota["limit"]
            for team in teams
            for quota in team["spec"]["quotas"]
            if "limit" in quota
        },
        parents={team["metadata"]["name"]: team["spec"].get("parent") for team in teams},
        accounts={team["spec"].get("account") or team["metadata"]["name"]: team["metadata"]["name"] for team in teams},
        namespaces={
            each["metadata"]["name"]: each["metadata"]["labels"][kube.TEAM_LABEL]
            for each in kube.items("namespaces")
            if kube.TEAM_LABEL in each["metadata"].get("labels", {})
        },
    )


def look(at: Ground, side: SlurmSide, api: ApiServer) -> tuple[Sample, list[slurm.Job], list[dict[str, Any]]]:
    """Take one sample."""
    before = {(job.id, job.started_ms) for job in side.jobs() if job.holds}
    pods = api.get("/api/v1/pods")["items"]
    jobs = side.jobs()
    sure = [job for job in jobs if job.holds and (job.id, job.started_ms) in before]
    return judge(at, sure, pods), jobs, pods


def judge(at: Ground, jobs: Iterable[slurm.Job], pods: Iterable[dict[str, Any]]) -> Sample:
    """Compare what is held with what there is and what each team may hold."""
    live = [pod for pod in pods if pod["spec"].get("nodeName") and pod["status"].get("phase") not in TERMINAL]
    workers = {pod["metadata"]["name"]: pod for pod in live if _is_worker(pod)}
    bound = [pod for pod in live if not _is_worker(pod) and kube.gpus(pod)]
    jobs = [job for job in jobs if job.gpus]
    lost = [job for job in jobs if job.nodes not in workers]
    wrong = [f"job {job.id} holds {job.gpus} GPUs on {job.nodes}, which is no live worker pod" for job in lost]
    on_node: Counter[str] = Counter()
    by_team: Counter[tuple[str, str]] = Counter()
    for job in (job for job in jobs if job.nodes in workers):
        node = workers[job.nodes]["spec"]["nodeName"]
        on_node[node] += job.gpus
        by_team[at.accounts.get(job.account, job.account), at.flavors[node]] += job.gpus
    wrong += _overcommitted(jobs, workers)
    for pod in bound:
        node, namespace = pod["spec"]["nodeName"], pod["metadata"]["namespace"]
        on_node[node] += kube.gpus(pod)
        by_team[at.namespaces.get(namespace, ""), at.flavors[node]] += kube.gpus(pod)
    wrong += [
        f"node {node}: Slurm and pods hold {count} of {at.devices[node]} devices"
        for node, count in on_node.items()
        if count > at.devices[node]
    ]
    held = _subtrees(at, by_team)
    wrong += [
        f"team {team} holds {held[team, flavor]} {flavor}, its limit is {limit}"
        for (team, flavor), limit in at.limits.items()
        if held[team, flavor] > limit
    ]
    in_slurm, in_pods = sum(job.gpus for job in jobs), sum(kube.gpus(pod) for pod in bound)
    return Sample(in_slurm, in_pods, held, tuple(wrong))


def _overcommitted(jobs: Iterable[slurm.Job], workers: Mapping[str, dict[str, Any]]) -> list[str]:
    """Name the workers whose jobs hold more than the worker asked Kubernetes for."""
    given: Counter[str] = Counter()
    for job in jobs:
        given[job.nodes] += job.gpus
    return [
        f"worker {name}: Slurm gave out {count} of its {kube.gpus(workers[name])} GPUs"
        for name, count in given.items()
        if name in workers and count > kube.gpus(workers[name])
    ]


def _is_worker(pod: Mapping[str, Any]) -> bool:
    return (pod["metadata"].get("labels") or {}).get("slurmbridge.dev/component") == "worker"


def _subtrees(at: Ground, by_team: Mapping[tuple[str, str], int]) -> Counter[tuple[str, str]]:
    held: Counter[tuple[str, str]] = Counter()
    for (team, flavor), gpus in by_team.items():
        above: str | None = team
        while above is not None:
            held[above, flavor] += gpus
            above = at.parents.get(above)
    return held
