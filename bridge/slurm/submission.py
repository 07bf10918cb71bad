"""A job to submit, in the options of pyslurm. Pure."""

import math
from typing import Any

from bridge.slurm import comment
from bridge.slurm.model import JobSpec


def options(spec: JobSpec) -> dict[str, Any]:
    """Return the keyword arguments of JobSubmitDescription."""
    gres = f"gpu:{spec.gpu_type}" if spec.gpu_type else "gpu"
    return {
        "name": spec.name,
        "account": spec.account,
        "user_id": spec.uid,
        "group_id": spec.gid,
        "script": spec.script,
        "priority": 0,
        "admin_comment": comment.render(spec.key, ""),
        "comment": spec.comment or None,
        "nodes": spec.nodes,
        "ntasks": spec.tasks,
        "cpus_per_task": spec.cpus_per_task,
        "gres_per_node": {gres: spec.gpus_per_node} if spec.gpus_per_node else None,
        "memory_per_node": f"{spec.mem_mib}M" if spec.mem_mib else None,
        "time_limit": time_limit(spec.time_limit_s),
        "partitions": [spec.partition] if spec.partition else None,
        "working_directory": spec.work_dir,
        "standard_output": spec.std_out,
        "environment": dict(spec.environment),
        "is_requeueable": True,
    }


def time_limit(seconds: int | None) -> str | None:
    """Return whole minutes in Slurm's notation, rounded up; None is no limit (J8)."""
    if seconds is None:
        return None
    return f"{max(1, math.ceil(seconds / 60))}:00"
