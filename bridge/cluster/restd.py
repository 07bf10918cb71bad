"""slurmrestd, where a SlurmCluster asks for it: as nobody, speaking to slurmctld with its callers' own tokens."""

from typing import Any, Final

from bridge.cluster import entry, names, volumes
from bridge.cluster.images import Images
from bridge.crd.slurmcluster import SlurmCluster

Object = dict[str, Any]

_NOBODY: Final = 65534


def objects(cluster: SlurmCluster, images: Images) -> list[Object]:
    """Render Deployment and Service, or nothing."""
    if not cluster.spec.rest_api:
        return []
    meta = cluster.metadata
    labels = names.labels("restd", meta.name)
    frame = {"name": names.RESTD, "namespace": meta.namespace, "labels": labels}
    selector = names.selector("restd", meta.name)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": frame,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": _pod(images.slurm)},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": frame,
        "spec": {
            "selector": selector,
            "ports": [{"name": "http", "port": names.RESTD_PORT, "targetPort": names.RESTD_PORT, "protocol": "TCP"}],
        },
    }
    return [deployment, service]


def _pod(image: str) -> Object:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsUser": _NOBODY, "runAsGroup": _NOBODY, "runAsNonRoot": True},
        "containers": [
            {
                "name": "slurmrestd",
                "image": image,
                "command": entry.command("restd-run"),
                "ports": [{"name": "http", "containerPort": names.RESTD_PORT}],
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
                "readinessProbe": {"tcpSocket": {"port": names.RESTD_PORT}, "periodSeconds": 5},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [
                    entry.config_mount(),
                    volumes.users_mount(),
                    {"name": "etc", "mountPath": "/etc/slurm"},
                ],
            }
        ],
        "volumes": [entry.config_volume(), volumes.users_volume(), volumes.scratch("etc", memory=True)],
    }
