"""What runs inside the sandbox's cluster before anything of ours does, and the proof that all of it works."""

import datetime as dt
import json
import string
from pathlib import Path
from typing import Any

from deploy.images import catalog
from deploy.sandbox import containers, layout
from deploy.sandbox.engine import docker, kubectl, kubectl_works, step, wait_until

MANIFESTS = Path(__file__).parent / "manifests"
API_DEADLINE_S = 90.0
NODES_DEADLINE_S = 120.0
PODS_DEADLINE_S = 180.0


def bring_up() -> None:
    """Apply the system's manifests and wait until nodes, GPUs, names and image pulls work."""
    started = dt.datetime.now(dt.UTC)
    api_log = f"docker exec {layout.CONTROL.container} tail /var/log/node/kube-apiserver.log"
    with step("API server ready"):
        wait_until("the API server is ready", lambda: kubectl_works("get", "--raw", "/readyz"), API_DEADLINE_S, api_log)
    apply()
    with step("nodes ready"):
        node_log = "docker exec sbx-NODE tail /var/log/node/kubelet.log"
        wait_until("every node is ready", lambda: _nodes_ready(started), NODES_DEADLINE_S, node_log)
        kubectl("label", "--overwrite", "node", layout.CONTROL.name, "node-role.kubernetes.io/control-plane=")
    with step("GPUs advertised"):
        pods = "kubectl -n kube-system get pods -o wide"
        wait_until("every GPU is advertised", _gpus_advertised, PODS_DEADLINE_S, pods)
    with step("names resolve, images are pulled"):
        _probe()


def apply() -> None:
    """Apply the system's manifests; unchanged ones stay as they are."""
    values = {
        "CLUSTER_DOMAIN": layout.CLUSTER_DOMAIN,
        "DNS_SERVICE_IP": layout.DNS_SERVICE_IP,
        "COREDNS_IMAGE": image("coredns"),
        "FAKE_GPU_IMAGE": image("fake-gpu"),
    }
    texts = [_render(name, values) for name in ("access.yaml", "coredns.yaml", "fake-gpu.yaml")]
    numbers = range(1, layout.PERSISTENT_VOLUMES + 1)
    texts += [_render("volume.yaml", {"NUMBER": str(number)}) for number in numbers]
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin="\n---\n".join(texts))
    _recycle_volumes()


def image(name: str) -> str:
    """Return the name under which the nodes pull one of our images."""
    return f"{layout.IMAGE_PREFIX}/{name}:{catalog.tag(name)}"


def _render(name: str, values: dict[str, str]) -> str:
    return string.Template((MANIFESTS / name).read_text()).substitute(values)


def _recycle_volumes() -> None:
    """Empty and offer again the volumes whose claim was deleted: there is no provisioner that would."""
    for volume in json.loads(kubectl("get", "pv", "-o", "json"))["items"]:
        if volume.get("status", {}).get("phase") != "Released":
            continue
        path = volume["spec"]["hostPath"]["path"]
        script = 'find "$1" -mindepth 1 -delete; chown root:root "$1"; chmod 777 "$1"'
        docker("exec", layout.CONTROL.container, "sh", "-ec", script, "sh", path)
        kubectl("patch", "pv", volume["metadata"]["name"], "--type=merge", "-p", '{"spec":{"claimRef":null}}')


def _nodes() -> dict[str, dict[str, Any]]:
    return {node["metadata"]["name"]: node for node in json.loads(kubectl("get", "nodes", "-o", "json"))["items"]}


def _nodes_ready(since: dt.datetime) -> bool:
    """Whether every node is ready and said so since then: after a restart the old word still stands for a while."""
    found, heard = _nodes(), _heartbeats()
    return all(
        node.name in found and _is_ready(found[node.name]) and heard.get(node.name, since) > since
        for node in layout.NODES
    )


def _heartbeats() -> dict[str, dt.datetime]:
    leases = json.loads(kubectl("-n", "kube-node-lease", "get", "leases", "-o", "json"))["items"]
    return {lease["metadata"]["name"]: dt.datetime.fromisoformat(lease["spec"]["renewTime"]) for lease in leases}


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _gpus_advertised() -> bool:
    found = _nodes()
    return all(_allocatable(found[node.name]) == containers.healthy_gpus(node) for node in layout.NODES if node.gpus)


def _allocatable(node: dict[str, Any]) -> int:
    return int(node["status"].get("allocatable", {}).get("nvidia.com/gpu", 0))


def _probe() -> None:
    kubectl("-n", "kube-system", "delete", "pod", "sandbox-probe", "--ignore-not-found", "--now")
    values = {"SLURM_IMAGE": image("slurm"), "CLUSTER_DOMAIN": layout.CLUSTER_DOMAIN}
    kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", f"--timeout={int(PODS_DEADLINE_S)}s")
    kubectl("create", "-f", "-", stdin=_render("probe.yaml", values))
    hint = "kubectl -n kube-system describe pod sandbox-probe; kubectl -n kube-system logs sandbox-probe"
    wait_until("a pod resolved a name", lambda: _probe_phase() == "Succeeded", PODS_DEADLINE_S, hint)
    kubectl("-n", "kube-system", "delete", "pod", "sandbox-probe", "--now")


def _probe_phase() -> str:
    return kubectl("-n", "kube-system", "get", "pod", "sandbox-probe", "-o", "jsonpath={.status.phase}")
