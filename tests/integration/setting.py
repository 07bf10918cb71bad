"""What a test platform is made of in Kubernetes: CRDs, policies, rights, teams, a Slurm cluster, two GPU nodes.

All of it is what is deployed, but for the nodes, which have no kubelet, and the keys, which slurmctld has already.
"""

import time
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from bridge import wellknown
from bridge.errors import RejectedError
from bridge.kube import port
from bridge.kube.port import Object
from tests import kubebox
from tests.kubebox import KubeBox
from tests.kubewait import wait
from tests.slurmbox import ROOT

GPUS: Final = {"g1": 8, "g2": 8}
NAMESPACE: Final = "slurm"
CLUSTER: Final = "box"  # as slurmctld is called
_BASE: Final = ("namespace.yaml", "priorityclass.yaml", "rbac-controller.yaml")
_SANDBOX: Final = ("namespaces.yaml", "flavors.yaml", "teams.yaml")


def apply(kube: KubeBox, keys: Path) -> None:
    """Apply what a platform's admin applies, our two nodes, and the cluster's keys as they are."""
    for path in documents("crds"):
        kube.apply_file(path)
    for name in _BASE:
        kube.apply_file(ROOT / "deploy" / "manifests" / "base" / name)
    for name in _SANDBOX:
        kube.apply_file(ROOT / "deploy" / "manifests" / "sandbox" / name)
    kube.apply(_alice_edits())
    _apply_slurm(kube, keys)
    for path in documents("deploy/policies"):
        kube.apply_file(path)
    for name, gpus in GPUS.items():
        _create_node(kube, name, gpus)
    wait("the policies act", partial(_policies_act, kube), 60, kube.log)


def batch_job(name: str, gpus: int, script: str, **spec: Any) -> Object:
    """Return a kubectl GPU Job that runs a shell script; `spec` goes beside its template."""
    container = {
        "name": "main",
        "image": "slurmbridge.dev/worker",
        "command": ["/bin/sh", "-c", script],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, **spec, "template": template},
    }


def documents(folder: str) -> list[Path]:
    """Return the YAML files of a folder that the API server takes."""
    return sorted(path for path in (ROOT / folder).glob("*.yaml") if path.name != "kustomization.yaml")


def _apply_slurm(kube: KubeBox, keys: Path) -> None:
    """Apply the sandbox's cluster under our slurmctld's name, and its keys as they are."""
    parts = yaml.safe_load_all((ROOT / "deploy" / "manifests" / "sandbox" / "slurm.yaml").read_text())
    for document in parts:
        if document["kind"] == "SlurmCluster":
            document["metadata"]["name"] = CLUSTER
        if document["kind"] == "NodeSet":
            document["spec"]["cluster"] = CLUSTER
            if document["spec"]["flavor"] != "h100":
                continue
        kube.apply(document)
    data = {name: b64encode((keys / name).read_bytes()).decode() for name in ("slurm.key", "jwt_hs256.key")}
    meta = {"name": "slurm-keys", "namespace": NAMESPACE}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}
    kube.gateway().create(port.SECRETS, secret, namespace=NAMESPACE)


def _create_node(kube: KubeBox, name: str, gpus: int) -> None:
    gateway = kube.gateway()
    labels = {wellknown.GPU_PRODUCT_LABEL: "H100", wellknown.HOSTNAME_LABEL: name}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    gateway.create(port.NODES, node)
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "16", "memory": "32Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    gateway.patch(port.NODES, name, {"status": status}, subresource="status")
    gateway.patch(port.NODES, name, {"spec": {"taints": None}})  # the API server adds "not ready" to new nodes


def _policies_act(kube: KubeBox) -> bool:
    """Return whether pods are gated and Jobs routed by now (it takes about two seconds)."""
    alice, admin = kube.gateway("alice"), kube.gateway()
    try:
        pod = alice.create(port.PODS, kubebox.pod("probe", gpus=1), namespace="vision")
    except RejectedError:
        return False  # the policy that guards acts before the one that gates
    admin.delete(port.PODS, "probe", namespace="vision", grace_s=0)
    try:
        job = alice.create(port.JOBS, batch_job(f"probe-{time.monotonic_ns()}", 1, "true"), namespace="vision")
    except RejectedError:
        return False
    name = job["metadata"]["name"]
    admin.delete(port.JOBS, name, namespace="vision")
    if "finalizers" in job["metadata"]:
        admin.patch(port.JOBS, name, {"metadata": {"finalizers": None}}, namespace="vision")
    return "schedulingGates" in pod["spec"] and job["spec"].get("managedBy") == wellknown.JOB_MANAGED_BY


def _alice_edits() -> Object:
    """Bind alice to what `edit` gathers; the gathering itself is the controller-manager's, which does not run here."""
    rbac = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "members", "namespace": "vision"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:aggregate-to-edit"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "alice"}],
    }
