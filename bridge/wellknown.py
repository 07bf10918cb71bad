"""Every name that leaves this program: labels, annotations, taints, reasons, user names."""

from typing import Final

GROUP: Final = "slurmbridge.dev"
VERSION: Final = "v1alpha1"
NAMESPACE: Final = "slurm-bridge"
SERVICE_ACCOUNT: Final = "slurm-bridge"
CONTROLLER_USERNAME: Final = f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"
FIELD_MANAGER: Final = "slurm-bridge"
LEASE_NAME: Final = "slurm-bridge"

# Labels and annotations on objects that people own.
TEAM_LABEL: Final = f"{GROUP}/team"  # on a namespace (set by platform admins), stamped on pods and Jobs
ROUTE_LABEL: Final = f"{GROUP}/route"  # value "kubernetes" keeps a Job out of Slurm
ROUTE_KUBERNETES: Final = "kubernetes"
SUBMITTED_BY: Final = f"{GROUP}/submitted-by"  # annotation, stamped from request.userInfo.username
QUOTA_GATE: Final = f"{GROUP}/quota"  # scheduling gate on GPU pods
JOB_MANAGED_BY: Final = f"{GROUP}/slurm"  # spec.managedBy of a GPU Job
JOB_FINALIZER: Final = f"{GROUP}/slurm-job"
PARTITION_ANNOTATION: Final = f"{GROUP}/partition"
PREEMPTIBLE_ANNOTATION: Final = f"{GROUP}/preemptible"  # on a pod: "false" makes it no victim, and no borrower
TIME_LIMIT_ANNOTATION: Final = f"{GROUP}/time-limit"  # Slurm's spelling, e.g. "1:00:00"

# Labels and annotations on objects that the bridge makes.
COMPONENT_LABEL: Final = f"{GROUP}/component"  # slurmctld | login | restd | worker | mirror
CLUSTER_LABEL: Final = f"{GROUP}/cluster"  # "<name>" of the SlurmCluster in the object's namespace
NODESET_LABEL: Final = f"{GROUP}/nodeset"
WORKER_NODE_LABEL: Final = f"{GROUP}/node"  # Kubernetes node a worker pod is pinned to
MIRROR_OF_LABEL: Final = f"{GROUP}/mirror-of"  # uid of the batch Job whose output a pod follows
MIRROR_ENDED_ANNOTATION: Final = f"{GROUP}/ended"  # the exit code, written on the mirror pod when its job ended
HASH_ANNOTATION: Final = f"{GROUP}/rendered-hash"  # hash of what was applied; equal means no write
CONFIG_ANNOTATION: Final = f"{GROUP}/config-hash"  # touched on slurmctld's pod so that its volume refreshes now

# Two-way drain.
DRAIN_REASON_PREFIX: Final = "bridge: "  # Slurm node reasons that are ours; any other is never changed
DRAINED_TAINT: Final = f"{GROUP}/drained"  # NoSchedule, on a Kubernetes node that Slurm drained

# In Slurm's AdminComment: "sb:<key>" in front (with its --signal, if any), then " | " and the text for people.
KEY_PREFIX: Final = "sb:"
KEY_SIGNAL: Final = " signal="
KEY_SEPARATOR: Final = " | "
JOB_KEY_PREFIX: Final = "job-"  # a key made from a batch Job's UID

GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
WORKER_PRIORITY_CLASS: Final = "slurm-bridge-worker"
