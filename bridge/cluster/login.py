"""Login nodes: Slurm's clients (through sackd) and sbridge, for the people of the teams."""

from typing import Any

from bridge.cluster import entry, names, slurmctld, volumes
from bridge.cluster.images import Images
from bridge.crd.slurmcluster import SlurmCluster

Object = dict[str, Any]


def deployment(cluster: SlurmCluster, images: Images, bridge_url: str) -> Object:
    """Render the login Deployment."""
    spec, meta = cluster.spec.login, cluster.metadata
    labels = names.labels("login", meta.name)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": names.LOGIN, "namespace": meta.namespace, "labels": labels},
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": names.selector("login", meta.name)},
            "template": {"metadata": {"labels": labels}, "spec": _pod(cluster, spec.image or images.login, bridge_url)},
        },
    }


def _pod(cluster: SlurmCluster, image: str, bridge_url: str) -> Object:
    endpoint = entry.slurmctld_endpoint(cluster.metadata.namespace)
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": "login",
                "image": image,
                "command": entry.command("login-run"),
                "env": entry.variables(SBRIDGE_URL=bridge_url, SLURMCTLD_ENDPOINT=endpoint),
                "resources": slurmctld.resources(cluster.spec.login.resources),
                # `su alice` and a shell of hers; nothing that reaches out of the container.
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], "add": ["SETUID", "SETGID", "CHOWN", "KILL"]},
                },
                "volumeMounts": [
                    entry.keys_mount(),
                    volumes.users_mount(),
                    volumes.home_mount(),
                    {"name": "etc", "mountPath": "/etc/slurm"},
                    {"name": "run", "mountPath": "/run/slurm"},
                ],
            }
        ],
        "volumes": [
            entry.keys_volume(),
            volumes.users_volume(),
            volumes.home_volume(cluster.spec.home),
            volumes.scratch("etc", memory=True),
            volumes.scratch("run", memory=True),
        ],
    }
