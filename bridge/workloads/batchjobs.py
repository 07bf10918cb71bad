"""A kubectl GPU Job to one Slurm batch job: what maps, what is refused (with field and way out), the script.

Every field of the Job's pod template is either used here or named in a refusal; nothing is dropped silently.
The container's image is not run (Slurm runs the command natively in the worker's image): `image_note` says so.
"""

import math
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from bridge import wellknown
from bridge.slurm.model import JobSpec
from bridge.workloads import quantities
from bridge.workloads.flavors import Flavors, FlavorSpec
from bridge.workloads.reasons import Reason, Waiting
from bridge.workloads.tenants import Member, Tenant

Object = dict[str, Any]

WORKER_IMAGE: Final = f"{wellknown.GROUP}/worker"
"""An image name that says: I know that this runs in the worker's own image."""

_WAY_OUT: Final = f"remove it, or label the Job {wellknown.ROUTE_LABEL}={wellknown.ROUTE_KUBERNETES} to run it as a pod"
_POD_FIELDS: Final = frozenset(
    {"containers", "restartPolicy", "nodeSelector", "terminationGracePeriodSeconds", "dnsPolicy", "schedulerName",
     "securityContext", "serviceAccountName", "serviceAccount", "activeDeadlineSeconds", "priorityClassName",
     "enableServiceLinks", "automountServiceAccountToken"}
)  # fmt: skip
_CONTAINER_FIELDS: Final = frozenset(
    {"name", "image", "imagePullPolicy", "command", "args", "env", "workingDir", "resources",
     "terminationMessagePath", "terminationMessagePolicy"}
)  # fmt: skip
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def key(job: Object) -> str:
    """Return the key that the Slurm job carries: made from the Job's UID, so that a retry finds it again."""
    return f"{wellknown.JOB_KEY_PREFIX}{job['metadata']['uid']}"


def output_path(job: Object, member: Member) -> str:
    """Return the file that the job's output goes to, in the user's shared home."""
    meta = job["metadata"]
    return f"/home/{member.slurm_user}/k8s-{meta['namespace']}-{meta['name']}-{meta['uid'][:8]}.log"


def image_note(job: Object) -> str | None:
    """Return the sentence that tells the user which image is not run, None when there is nothing to tell."""
    image = _container(job).get("image", "")
    if image == WORKER_IMAGE:
        return None
    return f"image {image} is not pulled: the command runs natively in the Slurm worker's image"


def spec(job: Object, tenant: Tenant, member: Member, flavors: Flavors) -> JobSpec | Waiting:
    """Translate a Job, or say which field cannot run in Slurm and the way out."""
    refused = _refusal(job)
    if refused is not None:
        return Waiting(Reason.UNSUPPORTED, refused, final=True)
    container = _container(job)
    found = _flavor(job, flavors)
    if isinstance(found, Waiting):
        return found
    flavor, gpus = found
    meta, resources = job["metadata"], container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    environment = _environment(container, member)
    annotations = meta.get("annotations") or {}
    limit = annotations.get(wellknown.TIME_LIMIT_ANNOTATION)
    time_limit_s = quantities.slurm_time_s(limit) if limit else None
    return JobSpec(
        key=key(job),
        name=meta["name"],
        user=member.slurm_user,
        uid=member.uid,
        gid=member.gid,
        account=tenant.account,
        script=_script(container, environment),
        gpus_per_node=gpus,
        gpu_type=flavor.gres_type,
        cpus_per_task=math.ceil(quantities.milli(requests.get("cpu", "1")) / 1000),
        mem_mib=_memory(requests),
        time_limit_s=time_limit_s,
        partition=annotations.get(wellknown.PARTITION_ANNOTATION),
        work_dir=container.get("workingDir") or f"/home/{member.slurm_user}",
        std_out=output_path(job, member),
        environment=environment,
        comment=f"kubernetes job {meta['namespace']}/{meta['name']}",
    )


def _memory(requests: Mapping[str, str]) -> int | None:
    if "memory" not in requests:
        return None
    return math.ceil(quantities.amount(requests["memory"]) / 2**20)


def _flavor(job: Object, flavors: Flavors) -> tuple[FlavorSpec, int] | Waiting:
    from bridge.workloads import pods

    return pods.flavor_of({"spec": job["spec"]["template"]["spec"]}, flavors)


def _refusal(job: Object) -> str | None:
    body, pod = job["spec"], job["spec"]["template"]["spec"]
    for field in ("completions", "parallelism"):
        if body.get(field) not in (None, 1):
            return f"spec.{field}={body[field]}: a Job in Slurm has one completion for now; set it to 1 or {_WAY_OUT}"
    for field in ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex"):
        if body.get(field) is not None:
            return f"spec.{field} has no meaning in Slurm; {_WAY_OUT}"
    for field in sorted(set(pod) - _POD_FIELDS):
        if pod[field]:
            return f"spec.template.spec.{field} cannot run in Slurm; {_WAY_OUT}"
    if any(pod.get("securityContext") or {}):
        return f"spec.template.spec.securityContext cannot run in Slurm, where the job runs as its user; {_WAY_OUT}"
    if len(pod["containers"]) != 1:
        count = len(pod["containers"])
        return f"spec.template.spec.containers has {count} entries; Slurm runs one command: keep one, or {_WAY_OUT}"
    return _container_refusal(pod["containers"][0])


def _container_refusal(container: Object) -> str | None:
    where = "spec.template.spec.containers[0]"
    for field in sorted(set(container) - _CONTAINER_FIELDS):
        if container[field]:
            return f"{where}.{field} cannot run in Slurm; {_WAY_OUT}"
    if not container.get("command"):
        return f"{where}.command is empty: the image's own entry point is not run; name the command"
    for entry in container.get("env") or []:
        if entry.get("valueFrom"):
            name = entry["name"]
            return f"{where}.env[{name}].valueFrom cannot be resolved in Slurm; give a plain value, or {_WAY_OUT}"
    directory = container.get("workingDir")
    if directory is not None and not directory.startswith("/"):
        return f"{where}.workingDir={directory!r} is not absolute; start it with /"
    return None


def _container(job: Object) -> Object:
    first: Object = job["spec"]["template"]["spec"]["containers"][0]
    return first


def _environment(container: Object, member: Member) -> dict[str, str]:
    """Build the job's whole environment; `$(NAME)` refers to entries above, as in a pod."""
    home = f"/home/{member.slurm_user}"
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "USER": member.slurm_user,
        "LOGNAME": member.slurm_user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
    }
    for entry in container.get("env") or []:
        environment[entry["name"]] = expand(str(entry.get("value") or ""), environment)
    return environment


def _script(container: Object, environment: Mapping[str, str]) -> str:
    words = [*container["command"], *(container.get("args") or [])]
    return "#!/bin/bash\nexec " + shlex.join(expand(word, environment) for word in words) + "\n"


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Expand `$(NAME)` as Kubernetes does: unknown names stay as written, `$$` is a literal `$`."""

    def value(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return environment.get(match.group(1), match.group(0))

    return _REFERENCE.sub(value, text)
