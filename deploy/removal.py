"""Takes the bridge out. Running work stays: workers, slurmctld, pods, jobs, custom resources and the ledger.

First the policies, so that no pod gets a gate that nobody would lift; then the controller and its rights.
What waits keeps waiting, and is told below with the way out; `--purge` removes all of it.
"""

import json
from typing import Any

from bridge import wellknown
from deploy import overlay
from deploy.kubectl import DeployError, Kubectl

# Of the base: what others' objects still stand on, or what would be missed after a new deployment.
KEPT_KINDS = frozenset({"Namespace", "PersistentVolumeClaim", "PriorityClass", "ServiceAccount"})
OURS = "app.kubernetes.io/part-of=slurm-bridge"
KINDS = ("nodesets", "slurmclusters", "teams", "flavors")

Object = dict[str, Any]


def undeploy(kubectl: Kubectl) -> None:
    """Remove policies and controller; nothing that runs is touched."""
    policies = overlay.ROOT / "deploy" / "policies"
    kubectl.run("delete", "-k", str(policies), "--ignore-not-found", timeout_s=300)
    print("removed the admission policies")
    base = overlay.rendered(kubectl, overlay.directory("base"))
    doomed = [document for document in base if document["kind"] not in KEPT_KINDS]
    bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": doomed})
    kubectl.run("delete", "-f", "-", "--ignore-not-found", "--cascade=foreground", text=bundle, timeout_s=300)
    print("removed the controller; the ledger, the custom resources and everything that runs stay")
    for line in left_waiting(kubectl):
        print(line)


def left_waiting(kubectl: Kubectl) -> list[str]:
    """Tell what nobody moves on now, each with the way out."""
    lines = []
    gated = gated_pods(kubectl)
    if gated:
        lines.append(
            f"{len(gated)} GPU pods still carry the gate {wellknown.QUOTA_GATE} and stay Pending until the bridge is "
            "deployed again; or delete them, what replaces them carries no gate"
        )
    jobs = routed_jobs(kubectl)
    if jobs:
        lines.append(
            f"{len(jobs)} Jobs belong to Slurm: their Slurm jobs go on, their status stands still, "
            f"and `kubectl delete` waits for the bridge; or take the finalizer {wellknown.JOB_FINALIZER} off by hand"
        )
    return lines


def gated_pods(kubectl: Kubectl) -> list[Object]:
    """Return the pods that still have the quota gate."""
    return [
        pod
        for pod in kubectl.items("pods", "--all-namespaces")
        if any(gate["name"] == wellknown.QUOTA_GATE for gate in pod["spec"].get("schedulingGates") or [])
    ]


def routed_jobs(kubectl: Kubectl) -> list[Object]:
    """Return the Jobs that carry our finalizer."""
    return [
        job
        for job in kubectl.items("jobs", "--all-namespaces")
        if wellknown.JOB_FINALIZER in (job["metadata"].get("finalizers") or [])
    ]


def purge(kubectl: Kubectl) -> None:
    """Remove what `undeploy` keeps, running workers and their jobs included."""
    for job in routed_jobs(kubectl):
        _drop_finalizers(kubectl, "job", job, wellknown.JOB_FINALIZER)
    for pod in gated_pods(kubectl):
        meta = pod["metadata"]
        kubectl.run("delete", "pod", meta["name"], "-n", meta["namespace"], "--ignore-not-found", "--wait=false")
    for kind in KINDS:
        for each in kubectl.items(f"{kind}.{wellknown.GROUP}", "--all-namespaces"):
            _drop_finalizers(kubectl, f"{kind}.{wellknown.GROUP}", each, f"{wellknown.GROUP}/")
    _delete_objects(kubectl)
    for node in kubectl.items("nodes"):
        if any(taint["key"] == wellknown.DRAINED_TAINT for taint in node["spec"].get("taints") or []):
            kubectl.run("taint", "node", node["metadata"]["name"], f"{wellknown.DRAINED_TAINT}-")
    print("purged workers, Slurm, custom resources and the ledger")


def _delete_objects(kubectl: Kubectl) -> None:
    """Slurm first, so that no worker is made again; then the kinds, then the bridge's own namespace."""
    for kind in ("statefulsets", "deployments", "services", "poddisruptionbudgets", "pods", "configmaps", "secrets"):
        _delete_labelled(kubectl, kind)
    _delete_labelled(kubectl, "persistentvolumeclaims")
    crds = [f"{kind}.{wellknown.GROUP}" for kind in KINDS]
    kubectl.run("delete", "crd", *crds, "--ignore-not-found", timeout_s=300)
    kubectl.run("delete", "priorityclass", wellknown.WORKER_PRIORITY_CLASS, "--ignore-not-found")
    kubectl.run("delete", "namespace", wellknown.NAMESPACE, "--ignore-not-found", timeout_s=300)


def _delete_labelled(kubectl: Kubectl, kind: str) -> None:
    for each in kubectl.items(kind, "--all-namespaces", "-l", OURS):
        meta = each["metadata"]
        kubectl.run("delete", kind, meta["name"], "-n", meta["namespace"], "--ignore-not-found", timeout_s=180)


def _drop_finalizers(kubectl: Kubectl, kind: str, obj: Object, prefix: str) -> None:
    meta = obj["metadata"]
    kept = [name for name in meta.get("finalizers") or [] if not name.startswith(prefix)]
    if kept == (meta.get("finalizers") or []):
        return
    where = ["-n", meta["namespace"]] if meta.get("namespace") else []
    patch = json.dumps({"metadata": {"finalizers": kept, "resourceVersion": meta["resourceVersion"]}})
    try:
        kubectl.run("patch", kind, meta["name"], *where, "--type=merge", "-p", patch)
    except DeployError as error:
        raise DeployError(f"could not take the finalizer off {kind} {meta['name']}: {error}; run it again") from error
