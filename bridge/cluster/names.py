"""Names of the objects that a SlurmCluster and its workers become. One SlurmCluster in a namespace."""

import hashlib
import re
from typing import Final

from bridge import wellknown
from bridge.errors import InvalidInputError

SLURMCTLD: Final = "slurmctld"
LOGIN: Final = "login"
RESTD: Final = "slurmrestd"
KEYS: Final = "slurm-keys"
CONFIG: Final = "slurm-config"
USERS: Final = "slurm-users"
WORKERS: Final = "slurm-workers"  # the disruption budget

SLURMCTLD_POD: Final = f"{SLURMCTLD}-0"
SLURMCTLD_PORT: Final = 6817
SLURMD_PORT: Final = 6818
RESTD_PORT: Final = 6820

SLURM_KEY: Final = "slurm.key"
JWT_KEY: Final = "jwt_hs256.key"

_LABEL_MAX: Final = 63
_HASH_LENGTH: Final = 10
_PLAIN_NODE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LOOKS_HASHED: Final = re.compile(rf".*-[0-9a-f]{{{_HASH_LENGTH}}}")


def slurmctld_address(namespace: str) -> str:
    """Return the name by which slurmctld is reached from every namespace."""
    return f"{SLURMCTLD}.{namespace}.svc"


def worker(nodeset: str, node: str) -> str:
    """Return a worker's name: of its pod, of its host, and of its node in Slurm. Always the same for a node.

    `<nodeset>-<node>` where that can be read back in one way only; else shortened, with a hash of both names.
    A plain name never looks like a hashed one, so the two kinds do not meet.
    """
    plain = f"{nodeset}-{node}"
    unambiguous = "-" not in nodeset and _PLAIN_NODE.fullmatch(node) and not _LOOKS_HASHED.fullmatch(plain)
    if unambiguous and len(plain) <= _LABEL_MAX:
        return plain
    digest = hashlib.sha256(f"{nodeset}/{node}".encode()).hexdigest()[:_HASH_LENGTH]
    short = re.sub(r"[^a-z0-9]+", "-", f"{nodeset}-{node.partition('.')[0]}".lower())
    return f"{short[: _LABEL_MAX - _HASH_LENGTH - 1].rstrip('-')}-{digest}"


def mirror(job_name: str, job_uid: str) -> str:
    """Return the name of the pod that follows a batch Job's output."""
    return f"{job_name[: _LABEL_MAX - 10].rstrip('-.')}-{hashlib.sha256(job_uid.encode()).hexdigest()[:8]}"


def node_label(node: str) -> str:
    """Return a node's name as a label value; a name that is no label value has no place for workers."""
    if len(node) > _LABEL_MAX:
        raise InvalidInputError(
            f"node {node} has a name of {len(node)} characters; workers are labelled with it, "
            f"so register the node under at most {_LABEL_MAX}"
        )
    return node


def labels(component: str, cluster: str) -> dict[str, str]:
    """Return the labels of every object that belongs to a cluster."""
    return {
        "app.kubernetes.io/name": component,
        "app.kubernetes.io/part-of": "slurm-bridge",
        wellknown.COMPONENT_LABEL: component,
        wellknown.CLUSTER_LABEL: cluster,
    }


def selector(component: str, cluster: str) -> dict[str, str]:
    """Return the labels that select the pods of one component."""
    return {wellknown.COMPONENT_LABEL: component, wellknown.CLUSTER_LABEL: cluster}
