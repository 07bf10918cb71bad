"""The scheduler and the kubelets of a test cluster: binds pods, starts and stops them. A worker pod is a real slurmd.

It keeps the count of devices as kube-scheduler does: a pod is bound only where its GPUs are free. What has no slurmd
(tenants' pods, mirrors) has only a status.
"""

import threading
import time
from datetime import UTC, datetime
from typing import Final

from bridge import wellknown
from bridge.errors import BridgeError, ConflictError, NotFoundError
from bridge.kube import port
from bridge.kube.gateway import KubeGateway
from bridge.kube.port import Object
from tests.slurmbox import SlurmBox

RESOURCE: Final = "nvidia.com/gpu"
PAUSE_S: Final = 0.1


class Kubelet:
    """One thread for all nodes. `trouble` is what went wrong in it; a test that meets some fails."""

    def __init__(self, gateway: KubeGateway, slurm: SlurmBox, gpus: dict[str, int]) -> None:
        self._gateway = gateway
        self._slurm = slurm
        self._gpus = gpus  # node -> devices
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self.trouble = ""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pods = self._gateway.list(port.PODS).items
                for pod in pods:
                    self._step(pod, pods)
            except BridgeError as error:  # the API server is away in some tests; the next round looks again
                self.trouble = str(error)
            except Exception as error:
                self.trouble = repr(error)
                raise
            else:
                self.trouble = ""
            time.sleep(PAUSE_S)

    def _step(self, pod: Object, pods: tuple[Object, ...]) -> None:
        """Bring one pod one step on."""
        phase = pod["status"].get("phase")
        try:
            if pod["metadata"].get("deletionTimestamp"):
                self._remove(pod)
            elif not pod["spec"].get("nodeName"):
                self._bind(pod, pods)
            elif phase == "Pending":
                self._begin(pod)
            elif phase == "Running":
                self._end_mirror(pod)
        except (NotFoundError, ConflictError):
            return  # changed since it was listed

    def _bind(self, pod: Object, pods: tuple[Object, ...]) -> None:
        if pod["spec"].get("schedulingGates"):
            return
        node = chosen_node(pod)
        if node is None or self._free(node, pods) < gpus_of(pod):
            return
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._gateway.post(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding", binding)
        pod["spec"]["nodeName"] = node  # so that the rest of this round counts it

    def _free(self, node: str, pods: tuple[Object, ...]) -> int:
        on_it = [p for p in pods if p["spec"].get("nodeName") == node]
        return self._gpus[node] - sum(gpus_of(p) for p in on_it if p["status"].get("phase") in ("Pending", "Running"))

    def _begin(self, pod: Object) -> None:
        if is_worker(pod) and pod["metadata"]["name"] not in self._slurm.containers:
            self._slurm.start_worker(pod["metadata"]["name"], "h100", gpus_of(pod))
        self._tell(pod, "Running", {"running": {"startedAt": now()}})

    def _end_mirror(self, pod: Object) -> None:
        """End a mirror pod as its program does: when it is told the exit code."""
        code = (pod["metadata"].get("annotations") or {}).get(wellknown.MIRROR_ENDED_ANNOTATION)
        if code is not None:
            self._tell(pod, "Succeeded" if code == "0" else "Failed", _terminated(pod, int(code)))

    def _remove(self, pod: Object) -> None:
        """Stop the containers, tell so, and only then let the object go."""
        meta = pod["metadata"]
        if is_worker(pod) and meta["name"] in self._slurm.containers:
            self._slurm.stop(meta["name"])
        if pod["status"].get("phase") == "Running":
            self._tell(pod, "Succeeded", _terminated(pod, 0))
        self._gateway.delete(port.PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace_s=0)

    def _tell(self, pod: Object, phase: str, state: Object) -> None:
        meta, running = pod["metadata"], "running" in state
        statuses = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": running,
                "started": running,
                "restartCount": 0,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ]
        status = {"phase": phase, "containerStatuses": statuses}
        self._gateway.patch(
            port.PODS, meta["name"], {"status": status}, namespace=meta["namespace"], subresource="status"
        )


def chosen_node(pod: Object) -> str | None:
    """Return the node that a pod is pinned to; a pod without GPUs may go anywhere."""
    spec = pod["spec"]
    selected = (spec.get("nodeSelector") or {}).get(wellknown.HOSTNAME_LABEL)
    if selected:
        return str(selected)
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity:
        return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
    return None if gpus_of(pod) else "g1"


def gpus_of(pod: Object) -> int:
    """Return the devices that a pod asks for."""
    containers = pod["spec"]["containers"]
    return sum(int((c.get("resources") or {}).get("limits", {}).get(RESOURCE, 0)) for c in containers)


def is_worker(pod: Object) -> bool:
    """Return whether a pod is a slurmd of ours."""
    return (pod["metadata"].get("labels") or {}).get(wellknown.COMPONENT_LABEL) == "worker"


def now() -> str:
    """Return the time as the kubelet writes it: whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _terminated(pod: Object, code: int) -> Object:
    statuses = pod["status"].get("containerStatuses") or [{}]
    started = ((statuses[0].get("state") or {}).get("running") or {}).get("startedAt") or now()
    return {"terminated": {"exitCode": code, "startedAt": started, "finishedAt": now()}}
