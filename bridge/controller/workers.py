"""Worker pods in the world: which Kubernetes node a Slurm node is on, and the other way round. Pure."""

from collections.abc import Iterator

from bridge import wellknown
from bridge.controller.world import KubeView
from bridge.kube.port import Object
from bridge.workloads.model import NodeName


def labels(pod: Object) -> dict[str, str]:
    """Return an object's labels."""
    found: dict[str, str] = pod["metadata"].get("labels") or {}
    return found


def every(kube: KubeView) -> Iterator[Object]:
    """Yield the worker pods."""
    return (pod for pod in kube.pods if is_worker(pod, kube.worker_namespace))


def is_worker(pod: Object, namespace: str) -> bool:
    """Return whether this is a worker of ours: anybody may write labels, but not in the cluster's namespace."""
    marks = labels(pod)
    ours = marks.get(wellknown.COMPONENT_LABEL) == "worker" and wellknown.WORKER_NODE_LABEL in marks
    return ours and pod["metadata"]["namespace"] == namespace


def on_node(kube: KubeView, node: NodeName) -> list[Object]:
    """Return the worker pods pinned to a node."""
    return [pod for pod in every(kube) if labels(pod).get(wellknown.WORKER_NODE_LABEL) == node]


def kube_node(kube: KubeView, slurm_node: str) -> NodeName | None:
    """Return the Kubernetes node that a Slurm node's worker pod is pinned to; None when no such pod exists."""
    for pod in every(kube):
        if pod["metadata"]["name"] == slurm_node:
            return NodeName(labels(pod)[wellknown.WORKER_NODE_LABEL])
    return None


def mirrors(kube: KubeView) -> dict[str, Object]:
    """Return mirror pods by the UID of the batch Job they follow."""
    return {
        labels(pod)[wellknown.MIRROR_OF_LABEL]: pod
        for pod in kube.pods
        if labels(pod).get(wellknown.COMPONENT_LABEL) == "mirror" and _owned(pod)
    }


def _owned(pod: Object) -> bool:
    """Return whether the Job that a mirror says it follows owns it."""
    wanted = labels(pod).get(wellknown.MIRROR_OF_LABEL)
    return any(owner.get("uid") == wanted for owner in pod["metadata"].get("ownerReferences") or [])
