"""slurmctld: one replica with its state on a volume. A changed configuration never changes the pod template."""

from typing import Any

from bridge.cluster import entry, names, volumes
from bridge.cluster.images import Images
from bridge.crd.slurmcluster import Resources, SlurmCluster

Object = dict[str, Any]


def stateful_set(cluster: SlurmCluster, images: Images) -> Object:
    """Render the StatefulSet. Its volume claim outlives it."""
    spec, meta = cluster.spec.slurmctld, cluster.metadata
    claim: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": spec.storage.size}},
    }
    if spec.storage.storage_class_name is not None:
        claim["storageClassName"] = spec.storage.storage_class_name
    labels = names.labels("slurmctld", meta.name)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": names.SLURMCTLD, "namespace": meta.namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            # With the default, a pod that is not ready is never replaced, not even by the revision that mends it.
            "podManagementPolicy": "Parallel",
            "serviceName": names.SLURMCTLD,
            "selector": {"matchLabels": names.selector("slurmctld", meta.name)},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "template": {"metadata": {"labels": labels}, "spec": _pod(cluster, spec.image or images.slurm)},
            "volumeClaimTemplates": [{"metadata": {"name": "state", "labels": labels}, "spec": claim}],
        },
    }


def service(cluster: SlurmCluster) -> Object:
    """Render the Service, with an address of its own.

    slurmd and libslurm resolve a name once: a headless one would leave them with the address of a pod that is gone.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.SLURMCTLD,
            "namespace": cluster.metadata.namespace,
            "labels": names.labels("slurmctld", cluster.metadata.name),
        },
        "spec": {
            "selector": names.selector("slurmctld", cluster.metadata.name),
            "publishNotReadyAddresses": True,  # workers register while slurmctld still reads its state
            "ports": [
                {
                    "name": "slurmctld",
                    "port": names.SLURMCTLD_PORT,
                    "targetPort": names.SLURMCTLD_PORT,
                    "protocol": "TCP",
                }
            ],
        },
    }


def resources(given: Resources) -> Object:
    """Render requests; memory is the limit too, CPU is not limited."""
    return {"requests": {"cpu": given.cpu, "memory": given.memory}, "limits": {"memory": given.memory}}


def _pod(cluster: SlurmCluster, image: str) -> Object:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 60,  # the state is written on TERM
        "containers": [
            {
                "name": "slurmctld",
                "image": image,
                "command": entry.command("slurmctld-run"),
                "ports": [{"name": "slurmctld", "containerPort": names.SLURMCTLD_PORT}],
                "resources": resources(cluster.spec.slurmctld.resources),
                "readinessProbe": {**entry.check("slurmctld-ready"), "periodSeconds": 5, "timeoutSeconds": 10},
                "livenessProbe": {
                    "tcpSocket": {"port": names.SLURMCTLD_PORT},
                    "initialDelaySeconds": 60,
                    "periodSeconds": 20,
                    "failureThreshold": 6,
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "SETUID", "SETGID"]},
                },
                "volumeMounts": [
                    entry.config_mount(),
                    entry.keys_mount(),
                    volumes.users_mount(),
                    {"name": "state", "mountPath": entry.STATE_DIRECTORY},
                    {"name": "etc", "mountPath": "/etc/slurm"},
                    {"name": "run", "mountPath": "/run/slurm"},
                ],
            }
        ],
        "volumes": [
            entry.config_volume(),
            entry.keys_volume(),
            volumes.users_volume(),
            volumes.scratch("etc", memory=True),
            volumes.scratch("run", memory=True),
        ],
    }
