"""Waits for what was applied to work, and says once in a while what it waits for."""

import time
from collections.abc import Callable

from deploy.kubectl import DeployError, Kubectl

POLL_S = 1.0
TELL_EVERY_S = 10.0


def rollout(kubectl: Kubectl, namespace: str, deployment: str, timeout_s: int) -> None:
    """Wait until every replica of the current generation is ready."""
    until(lambda: rollout_state(kubectl, namespace, deployment), timeout_s)


def cluster(kubectl: Kubectl, namespace: str, name: str, timeout_s: int) -> None:
    """Wait until slurmctld answers and the login nodes run."""
    until(lambda: cluster_state(kubectl, namespace, name), timeout_s)
    if kubectl.items("deployments", "-n", namespace, "--field-selector=metadata.name=login"):
        rollout(kubectl, namespace, "login", timeout_s)


def until(state: Callable[[], str], timeout_s: int) -> None:
    """Poll until `state` has nothing more to say; tell what it says when it changes, and from time to time."""
    deadline = time.monotonic() + timeout_s
    told, told_at = "", 0.0
    while left := state():
        now = time.monotonic()
        if now > deadline:
            raise DeployError(f"after {timeout_s} s still {left}")
        if left != told or now - told_at > TELL_EVERY_S:
            print(f"  {left}", flush=True)
            told, told_at = left, now
        time.sleep(POLL_S)


def rollout_state(kubectl: Kubectl, namespace: str, deployment: str) -> str:
    """Say what a rollout waits for; "" when it is done."""
    found = kubectl.json("get", "deployment", deployment, "-n", namespace)
    status, wanted = found.get("status", {}), found["spec"].get("replicas", 1)
    current = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
    ready = status.get("readyReplicas", 0) if current else 0
    updated = status.get("updatedReplicas", 0) if current else 0
    if min(ready, updated) >= wanted and status.get("replicas", 0) == wanted:
        return ""
    return f"waiting for {deployment}: {min(ready, updated)} of {wanted} ready{_why(kubectl, namespace, found)}"


def cluster_state(kubectl: Kubectl, namespace: str, name: str) -> str:
    """Say what a SlurmCluster waits for; "" when its condition Ready is true for the current generation."""
    found = kubectl.json("get", "slurmclusters.slurmbridge.dev", name, "-n", namespace)
    status = found.get("status", {})
    current = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
    for condition in status.get("conditions") or []:
        if condition["type"] == "Ready":
            if condition["status"] == "True" and current:
                return ""
            return f"waiting for Slurm cluster {name}: {condition.get('message') or condition['reason']}"
    return f"waiting for Slurm cluster {name}: the bridge has not looked at it yet"


def _why(kubectl: Kubectl, namespace: str, deployment: dict[str, object]) -> str:
    """Give the first reason that a pod of the deployment names for not running."""
    spec = deployment["spec"]
    assert isinstance(spec, dict)  # noqa: S101 -- the API server's schema
    selector = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
    for pod in kubectl.items("pods", "-n", namespace, "-l", selector):
        status = pod.get("status", {})
        for container in status.get("containerStatuses") or []:
            waits = (container.get("state") or {}).get("waiting")
            if waits and waits.get("reason") not in ("ContainerCreating", "PodInitializing"):
                return f" ({waits['reason']}: {waits.get('message', '')[:160]})"
        for condition in status.get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f" (not scheduled: {condition.get('message', '')[:160]})"
    return ""
