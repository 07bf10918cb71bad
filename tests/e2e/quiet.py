"""Brings the sandbox to rest: no work, no drain, no cordon, a running bridge, an idle worker on each h100 node."""

from tests.e2e import kube, sbridge, shell, slurm
from tests.e2e.waiting import until

USERS = ("alice", "bob")
TEAMS = ("vision", "nlp")
H100_WORKERS = ("h100-g1", "h100-g2")
GPU_NODES = ("g1", "g2", "g3")
REASON = "e2e: bad fan"
"""What a test writes as an admin's drain reason."""


def restore() -> None:
    """Take away what a test made or broke, and wait until the platform is at rest."""
    if kube.get("deployment", "slurm-bridge", "-n", "slurm-bridge")["spec"].get("replicas") != 1:
        sbridge.scale(1)
    for user in USERS:
        slurm.attempt(user, f"scancel --user={user}; rm -f slurm-*.out e2e-*")
    for team in TEAMS:
        kinds = "deployments,services,jobs"
        kube.kubectl("-n", team, "delete", kinds, "--all", "--timeout=60s", timeout_s=90)
        kube.kubectl("-n", team, "delete", "pods", "--all", "--timeout=60s", timeout_s=90)
    for node in kube.items("nodes"):
        if node["spec"].get("unschedulable"):
            kube.kubectl("uncordon", node["metadata"]["name"])
    for name, fields in until("slurmctld answers", _nodes, 60).items():
        if fields["Reason"] == REASON:
            slurm.root("scontrol", "update", f"nodename={name}", "state=resume")
    until("no work is left", lambda: not sbridge.queue(), 60)
    until("both h100 nodes carry an idle worker", at_rest, 90)


def at_rest() -> bool:
    """Whether the workers stand ready and no node is tainted."""
    return all(slurm.usable(name) for name in H100_WORKERS) and not any(tainted(node) for node in GPU_NODES)


def tainted(node: str) -> bool:
    """Whether the bridge keeps pods away from a node."""
    taints = kube.get("node", node)["spec"].get("taints") or []
    return any(taint["key"] == "slurmbridge.dev/drained" for taint in taints)


def _nodes() -> dict[str, dict[str, str]] | None:
    try:
        return slurm.nodes()
    except shell.CommandError:
        return None
