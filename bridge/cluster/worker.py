"""A worker: the slurmd pod that owns all GPUs of its node for its life. Its name is its host's and Slurm's, too."""

import math
from typing import Any, Final

from bridge import wellknown
from bridge.cluster import entry, names, volumes
from bridge.cluster.images import Images
from bridge.crd.flavor import Flavor
from bridge.crd.nodeset import NodeSet
from bridge.crd.slurmcluster import SlurmCluster
from bridge.workloads import quantities

Object = dict[str, Any]

# SETUID, SETGID: the job becomes its user. CHOWN: its files. KILL: its processes, also at the end.
CAPABILITIES: Final = ("SETUID", "SETGID", "CHOWN", "KILL")

# Who moves a worker is the bridge alone: it drains first. So neither a cordon, nor a lost node, nor the taint that
# we set on a drained node ourselves keeps a worker away or takes it down.
_TOLERATED: Final = (
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"key": wellknown.DRAINED_TAINT, "operator": "Exists"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
)


def pod(*, node: str, gpus: int, nodeset: NodeSet, cluster: SlurmCluster, flavor: Flavor, images: Images) -> Object:
    """Render the worker of one node with all its `gpus`."""
    name, resource = names.worker(nodeset.metadata.name, node), flavor.spec.resource
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": nodeset.metadata.namespace,
            "labels": {
                **names.labels("worker", cluster.metadata.name),
                wellknown.NODESET_LABEL: nodeset.metadata.name,
                wellknown.WORKER_NODE_LABEL: names.node_label(node),
            },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "true",
            },
        },
        "spec": {
            "hostname": name,
            "restartPolicy": "Always",
            "priorityClassName": wellknown.WORKER_PRIORITY_CLASS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": nodeset.spec.termination_grace_period_seconds,
            "affinity": _pinned(node),
            "tolerations": [*_TOLERATED, {"key": resource, "operator": "Exists"}],
            "containers": [_container(gpus, nodeset, cluster, flavor, nodeset.spec.image or images.slurm)],
            "volumes": [
                entry.keys_volume(),
                volumes.users_volume(),
                volumes.home_volume(cluster.spec.home),
                volumes.scratch("etc", memory=True),
                volumes.scratch("spool"),
                volumes.scratch("shm", memory=True),
            ],
        },
    }


def cpus(nodeset: NodeSet) -> int:
    """Return the CPUs that Slurm hands out on a worker (N14: rounded up)."""
    if nodeset.spec.cpus is not None:
        return nodeset.spec.cpus
    return max(1, math.ceil(quantities.milli(nodeset.spec.resources.cpu) / 1000))


def memory_mib(nodeset: NodeSet) -> int:
    """Return a worker's RealMemory (N14: rounded down)."""
    return int(quantities.amount(nodeset.spec.resources.memory) // 2**20)


def _pinned(node: str) -> Object:
    """Pin by the node's name, which is exact even where the hostname label is something else."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _container(gpus: int, nodeset: NodeSet, cluster: SlurmCluster, flavor: Flavor, image: str) -> Object:
    wants = nodeset.spec.resources
    return {
        "name": "slurmd",
        "image": image,
        "command": entry.command("worker-run"),
        "env": entry.variables(
            SLURMCTLD_ENDPOINT=entry.slurmctld_endpoint(cluster.metadata.namespace),
            WORKER_CPUS=cpus(nodeset),
            WORKER_MEMORY_MIB=memory_mib(nodeset),
            WORKER_GRES_TYPE=flavor.spec.gres_type,
            WORKER_GPUS=gpus,
            WORKER_FEATURES=f"{flavor.spec.gres_type},{nodeset.metadata.name}"
            if flavor.spec.gres_type != nodeset.metadata.name
            else nodeset.metadata.name,
        ),
        "ports": [{"name": "slurmd", "containerPort": names.SLURMD_PORT}],
        "resources": {
            "requests": {"cpu": wants.cpu, "memory": wants.memory, flavor.spec.resource: str(gpus)},
            "limits": {"memory": wants.memory, flavor.spec.resource: str(gpus)},
        },
        "readinessProbe": {**entry.check("worker-ready"), "periodSeconds": 10, "timeoutSeconds": 10},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
        },
        "volumeMounts": [
            entry.keys_mount(),
            volumes.users_mount(),
            volumes.home_mount(),
            {"name": "etc", "mountPath": "/etc/slurm"},
            {"name": "spool", "mountPath": "/var/spool/slurmd"},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 -- shared memory of jobs, within the pod's limit
        ],
    }


def disruption_budget(cluster: SlurmCluster) -> Object:
    """Render the budget that refuses every eviction of a worker, from before its first job (N16).

    Bare pods have no controller to take a percentage of, so the number stands for "all, whatever their count".
    """
    meta = cluster.metadata
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": names.WORKERS, "namespace": meta.namespace, "labels": names.labels("worker", meta.name)},
        "spec": {"minAvailable": 1_000_000, "selector": {"matchLabels": names.selector("worker", meta.name)}},
    }
