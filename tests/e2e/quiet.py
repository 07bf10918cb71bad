"""Brings the sandbox to rest: no work, no drain, no cordon, a running bridge, an idle worker on each h100 node."""

from tests.e2e import kube, sbridge, shell, slurm
from tests.e2e.waiting import until

TEAMS = ("vision", "nlp")
H100_WORKERS = ("h100-g1", "h100-g2")
KINDS = "deployments,services,jobs,pods"
REASON = "e2e: bad fan"
"""What a test writes as an admin's drain reason."""

_CANCEL = 'for user in alice bob; do su $user -c "cd && rm -f slurm-*.out e2e-* && scancel --user=$user"; done'


def restore() -> None:
    """Take away what a test made or broke, and wait until the platform is at rest."""
    if kube.get("deployment", "slurm-bridge", "-n", "slurm-bridge")["spec"].get("replicas") != 1:
        sbridge.scale(1)
    nodes = until("slurmctld answers", _nodes, 60)
    slurm.root("sh", "-c", _CANCEL)
    for namespace in {obj["metadata"]["namespace"] for obj in kube.items(KINDS, "-A")} & {*TEAMS}:
        kube.kubectl("-n", namespace, "delete", KINDS, "--all", "--timeout=60s", timeout_s=90)
    for node in kube.items("nodes"):
        if node["spec"].get("unschedulable"):
            kube.kubectl("uncordon", node["metadata"]["name"])
    for name, fields in nodes.items():
        if fields["Reason"] == REASON:
            slurm.root("scontrol", "update", f"nodename={name}", "state=resume")
    until("no work is left", lambda: not sbridge.queue(), 60)
    until("both h100 nodes carry an idle worker", _at_rest, 90)


def tainted(node: str) -> bool:
    """Whether the bridge keeps pods away from a node."""
    return _is_tainted(kube.get("node", node))


def _at_rest() -> bool:
    found = _nodes() or {}
    workers = all(slurm.usable(name, found) for name in H100_WORKERS)
    return workers and not any(_is_tainted(node) for node in kube.items("nodes"))


def _is_tainted(node: kube.Object) -> bool:
    return any(taint["key"] == "slurmbridge.dev/drained" for taint in node["spec"].get("taints") or [])


def _nodes() -> dict[str, dict[str, str]] | None:
    try:
        return slurm.nodes()
    except shell.CommandError:
        return None
