"""Small worlds for the controller's tests: the sandbox's nodes, two teams, jobs and pods by their essentials."""

from collections.abc import Iterable, Mapping
from typing import Any

from bridge import wellknown
from bridge.controller.world import KubeView, NodeSetView, Settings, SlurmView, World
from bridge.ledger.port import Intent
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Tree
from bridge.slurm.model import JobState, SlurmJob, SlurmNode, Tres
from bridge.workloads.flavors import Flavors, FlavorSpec
from bridge.workloads.model import Grant, GrantState, NodeName, System, WorkloadId
from bridge.workloads.tenants import Member, Tenant, Tenants

NOW_MS = 1_800_000_000_000
GPU = "nvidia.com/gpu"
H100 = FlavorName("h100")
VISION, NLP = TeamName("vision"), TeamName("nlp")
Object = dict[str, Any]


def settings() -> Settings:
    quotas = {H100: Quota(8, 12)}
    tree = Tree.build(
        [
            TeamSpec(TeamName("org"), None, 1, {H100: Quota(16)}),
            TeamSpec(VISION, TeamName("org"), 1, quotas),
            TeamSpec(NLP, TeamName("org"), 1, quotas),
        ]
    )
    tenants = Tenants.of(
        [
            Tenant(VISION, "vision", (Member("alice", "alice", 2001, 2001),), "alice"),
            Tenant(NLP, "nlp", (Member("bob", "bob", 2002, 2002),), "bob"),
        ]
    )
    flavors = Flavors.of([FlavorSpec(H100, GPU, {wellknown.GPU_PRODUCT_LABEL: "H100"}, "h100", default=True)])
    nodeset = NodeSetView("h100", "slurm", "main", "h100", 0, 2, 60, {})
    return Settings(tree, tenants, flavors, (nodeset,), "main", "slurm")


def node(name: str, gpus: int = 8, *, cordoned: bool = False) -> Object:
    amounts = {GPU: str(gpus)}
    return {
        "metadata": {"name": name, "uid": name, "labels": {wellknown.GPU_PRODUCT_LABEL: "H100"}},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def worker(on: str, gpus: int = 8) -> Object:
    return {
        "metadata": {
            "name": f"h100-{on}",
            "namespace": "slurm",
            "uid": f"worker-{on}",
            "creationTimestamp": "2027-01-15T07:00:00Z",
            "labels": {wellknown.COMPONENT_LABEL: "worker", wellknown.WORKER_NODE_LABEL: on},
        },
        "spec": {"nodeName": on, "containers": [{"name": "slurmd", "resources": {"limits": {GPU: str(gpus)}}}]},
        "status": {"phase": "Running"},
    }


def slurm_node(
    on: str, state: str = "IDLE", *, flags: Iterable[str] = (), reason: str = "", used: int = 0
) -> SlurmNode:
    return SlurmNode(
        name=f"h100-{on}",
        state=state,
        flags=frozenset(flags),
        gpus={"h100": 8},
        gpus_allocated={"h100": used},
        cpus=16,
        mem_mib=2048,
        reason=reason,
        reason_user="root",
        reason_ms=None,
        address="10.0.0.1",
        started_ms=NOW_MS - 60_000,
    )


def job(key: str = "k1", state: JobState = JobState.PENDING, **changes: Any) -> SlurmJob:
    base: dict[str, Any] = {
        "job_id": 7,
        "key": key,
        "comment_text": "",
        "state": state,
        "flags": frozenset(),
        "user": "alice",
        "uid": 2001,
        "account": "vision",
        "partition": "all",
        "name": "train",
        "held": state is JobState.PENDING,
        "admin_held": False,
        "priority": 0,
        "requested": Tres({"h100": 4}, nodes=1, cpus=1),
        "allocated": Tres(),
        "nodes": (),
        "submit_ms": NOW_MS - 10_000,
        "start_ms": None,
        "end_ms": None,
        "time_limit_s": None,
        "exit_code": None,
        "exit_signal": None,
        "restart_count": 0,
        "state_reason": "JobHeldUser",
        "requeueable": True,
    }
    if state is not JobState.PENDING:
        base |= {"nodes": ("h100-g1",), "allocated": Tres({"h100": 4}, nodes=1), "start_ms": NOW_MS - 5_000}
    return SlurmJob(**(base | changes))


def pod(uid: str = "p1", gpus: int = 2, *, gated: bool = True, team: str = "vision", **spec: Any) -> Object:
    return {
        "metadata": {
            "name": f"web-{uid}",
            "namespace": team,
            "uid": uid,
            "creationTimestamp": "2027-01-15T07:59:00Z",
            "labels": {wellknown.TEAM_LABEL: team},
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}],
            **({"schedulingGates": [{"name": wellknown.QUOTA_GATE}]} if gated else {}),
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def grant(workload: str, state: GrantState = GrantState.RESERVED, **changes: Any) -> Grant:
    system = System.SLURM if workload.startswith("slurm/") else System.KUBERNETES
    base: dict[str, Any] = {
        "workload": WorkloadId(workload),
        "attempt": 1,
        "team": VISION,
        "flavor": H100,
        "system": system,
        "gpus": 4,
        "state": state,
        "placement": {NodeName("g1"): 4},
        "reserved_ms": NOW_MS - 9_000,
        "running_ms": NOW_MS - 5_000 if state is GrantState.RUNNING else None,
    }
    return Grant(**(base | changes))


def world(
    *,
    nodes: Iterable[Object] = (),
    pods: Iterable[Object] = (),
    jobs: Iterable[Object] = (),
    slurm_jobs: Iterable[SlurmJob] = (),
    slurm_nodes: Iterable[SlurmNode] = (),
    grants: Iterable[Grant] = (),
    intents: Iterable[Intent] = (),
    kube_ok: bool = True,
    slurm_ok: bool = True,
    missing_ms: Mapping[WorkloadId, int] | None = None,
    released_ms: Mapping[WorkloadId, int] | None = None,
    gone: Mapping[str, Object] | None = None,
) -> World:
    spaces = {team: {"metadata": {"name": team, "labels": {wellknown.TEAM_LABEL: team}}} for team in ("vision", "nlp")}
    kube = KubeView(
        ok=kube_ok,
        nodes={NodeName(n["metadata"]["name"]): n for n in nodes},
        namespaces=spaces,
        pods=tuple(pods),
        jobs=tuple(jobs),
        gone=gone or {},
        worker_namespace="slurm",
        error="" if kube_ok else "kubernetes is away",
    )
    slurm = SlurmView(
        cluster="main",
        ok=slurm_ok,
        read_ms=NOW_MS,
        jobs=tuple(slurm_jobs),
        nodes={n.name: n for n in slurm_nodes},
        error="" if slurm_ok else "slurmctld is away",
        missing_ms=missing_ms or {},
        released_ms=released_ms or {},
    )
    return World(NOW_MS, kube, slurm, settings(), tuple(grants), {i.id: i for i in intents})
