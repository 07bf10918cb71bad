"""Kubernetes as a person uses it: kubectl, as the platform's admin or as a team's member."""

import json
from collections.abc import Sequence
from typing import Any

from tests.e2e import shell

Object = dict[str, Any]

GPU = "nvidia.com/gpu"
TEAM_LABEL = "slurmbridge.dev/team"
WORKERS = "slurmbridge.dev/component=worker"


def kubectl(*arguments: str, user: str = "", text: str = "", timeout_s: float = 60) -> str:
    """Return what kubectl prints; as `user` when one is named."""
    return shell.run(_command(arguments, user), text=text, timeout_s=timeout_s)


def attempt(*arguments: str, user: str = "", text: str = "", timeout_s: float = 60) -> shell.Completed:
    """Run kubectl where a refusal is an answer too."""
    return shell.attempt(_command(arguments, user), text=text, timeout_s=timeout_s)


def _command(arguments: Sequence[str], user: str) -> list[str]:
    person = [f"--as={user}", "--as-group=system:authenticated"] if user else []
    return ["kubectl", *person, *arguments]


def get(*arguments: str) -> Any:
    """Return kubectl's JSON answer."""
    return json.loads(kubectl("get", *arguments, "-o", "json"))


def items(*arguments: str) -> list[Object]:
    """Return the items of a list."""
    found: list[Object] = get(*arguments)["items"]
    return found


def maybe(*arguments: str) -> Object | None:
    """Return one object, or None when the API server says that there is none."""
    done = attempt("get", *arguments, "-o", "json")
    if done.code == 0:
        found: Object = json.loads(done.out)
        return found
    if "NotFound" in done.err:
        return None
    raise shell.CommandError(f"`{done.command}` ended with {done.code}: {done.said}")


def apply(*objects: Object, user: str = "") -> str:
    """Apply objects."""
    bundle = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return kubectl("apply", "-f", "-", user=user, text=json.dumps(bundle))


def condition(obj: Object, kind: str) -> Object:
    """Return a condition of an object, {} when it has none of that type."""
    for each in obj.get("status", {}).get("conditions") or []:
        if each["type"] == kind:
            found: Object = each
            return found
    return {}


def gpus(pod: Object) -> int:
    """Count the devices that a pod asks for."""
    return sum(
        int((container.get("resources", {}).get("limits") or {}).get(GPU, 0)) for container in pod["spec"]["containers"]
    )


def workers() -> dict[str, Object]:
    """Return the live worker pods by name."""
    found = items("pods", "-n", "slurm", "-l", WORKERS)
    return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def slurm_image() -> str:
    """Return the image that the workers run: nodes have it already."""
    found = get("deployment", "slurm-bridge", "-n", "slurm-bridge")
    for variable in found["spec"]["template"]["spec"]["containers"][0]["env"]:
        if variable["name"] == "SBRIDGE_SLURM_IMAGE":
            return str(variable["value"])
    raise shell.CommandError("Deployment slurm-bridge has no SBRIDGE_SLURM_IMAGE; deploy it with `make sandbox`")


def pod(
    name: str, *, gpus: int, command: Sequence[str], namespace: str = "vision", product: str = "", image: str = ""
) -> Object:
    """Render a pod that runs one command once; with no GPUs it is nobody's business."""
    limits = {GPU: str(gpus)} if gpus else {}
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {"name": "main", "image": image or slurm_image(), "command": list(command), "resources": {"limits": limits}}
        ],
    }
    if product:
        spec["nodeSelector"] = {"nvidia.com/gpu.product": product}
    meta = {"name": name, "namespace": namespace, "labels": {"slurmbridge.dev/test": "e2e"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
