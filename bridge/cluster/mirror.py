"""The mirror pod of a batch Job that runs in Slurm: no GPU, follows the job's output, ends with its exit code.

`kubectl logs job/NAME -f` finds it by the labels that the Job's selector asks for. Its death never touches the
Slurm job: the bridge makes another one, which prints from the start.
"""

from pathlib import Path
from typing import Any, Final

from bridge import wellknown
from bridge.cluster import names
from bridge.cluster.volumes import home_mount, home_volume
from bridge.crd.slurmcluster import SlurmCluster

Object = dict[str, Any]

_FOLLOWER: Final = (Path(__file__).parent / "follower.py").read_text()
_ENDED_DIRECTORY: Final = "/run/slurm-bridge"
_ENDED_FILE: Final = "ended"


def pod(*, job: Object, cluster: SlurmCluster, image: str, uid: int, gid: int, path: str, team: str) -> Object:
    """Render the pod that prints `path` as the user the Slurm job runs as, in the Job's namespace."""
    meta = job["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.mirror(meta["name"], meta["uid"]),
            "namespace": meta["namespace"],
            "labels": _labels(job, cluster.metadata.name, team),
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,  # so that `kubectl drain` may move it like any pod of a Job
                }
            ],
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsUser": uid,
                "runAsGroup": gid,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(image, path)],
            "volumes": [home_volume(cluster.spec.home), _ended_volume()],
        },
    }


def _labels(job: Object, cluster: str, team: str) -> dict[str, str]:
    meta = job["metadata"]
    short_name = meta["name"][:63].rstrip("-.")
    return {
        **names.selector("mirror", cluster),
        wellknown.MIRROR_OF_LABEL: meta["uid"],
        wellknown.TEAM_LABEL: team,
        "batch.kubernetes.io/job-name": short_name,
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "job-name": short_name,
        "controller-uid": meta["uid"],
    }


def _container(image: str, path: str) -> Object:
    return {
        "name": "output",
        "image": image,
        "command": ["/usr/bin/tini", "--", "python3", "-c", _FOLLOWER, path, f"{_ENDED_DIRECTORY}/{_ENDED_FILE}"],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {**home_mount(), "readOnly": True},
            {"name": "ended", "mountPath": _ENDED_DIRECTORY, "readOnly": True},
        ],
    }


def _ended_volume() -> Object:
    """Show the exit code as a file: an annotation that the bridge writes when the job has ended."""
    field = {"fieldPath": f"metadata.annotations['{wellknown.MIRROR_ENDED_ANNOTATION}']"}
    return {"name": "ended", "downwardAPI": {"items": [{"path": _ENDED_FILE, "fieldRef": field}]}}
