"""SlurmCluster: one slurmctld with its login nodes. Workers are NodeSets of the same namespace."""

import re
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from bridge.crd.model import (
    Column,
    Conditions,
    Definition,
    Metadata,
    Model,
    Name,
    Quantity,
    Rule,
    rules,
)

# Parameters that the bridge's own working depends on: overriding one would open a way past the ledger, cut
# the daemons off from each other, or lose jobs.
OWNED_PARAMETERS = (
    "AccountingStorageTRES", "AuthAltParameters", "AuthAltTypes", "AuthInfo", "AuthType", "ClusterName",
    "CredType", "GresTypes", "Include", "JobSubmitPlugins", "MinJobAge", "NodeName", "PartitionName",
    "PreemptMode", "PreemptType", "SelectType", "SlurmUser", "SlurmctldHost", "SlurmctldParameters",
    "SlurmctldPort", "SlurmdUser", "StateSaveLocation",
)  # fmt: skip
_OWNED_LOWER = frozenset(name.lower() for name in OWNED_PARAMETERS)

AbsolutePath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]*$", max_length=255)]
Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")]


class Storage(Model):
    """Volume that slurmctld keeps its state on."""

    size: Quantity = "2Gi"
    """Capacity asked for."""
    storage_class_name: Name | None = None
    """StorageClass. Absent: the cluster's default one."""


class Resources(Model):
    """What a container requests; memory is its limit too."""

    cpu: Quantity = "100m"
    """CPU request."""
    memory: Quantity = "512Mi"
    """Memory request and limit."""


class Slurmctld(Model):
    """The controller daemon."""

    image: Image | None = None
    """Image with slurmctld. Absent: the one that the bridge was deployed with."""
    storage: Storage = Storage()
    """State volume. Made once, never deleted by the bridge."""
    resources: Resources = Resources()
    """Requests of the container."""


class Login(Model):
    """Login nodes: pods where people run sbatch, squeue and sbridge."""

    replicas: Annotated[int, Field(ge=0, le=50)] = 1
    """How many login pods."""
    image: Image | None = None
    """Image with the Slurm clients and sbridge. Absent: the one that the bridge was deployed with."""
    resources: Resources = Resources()
    """Requests of the container."""


class HostPath(Model):
    """A directory that every node has mounted (a parallel file system, NFS through fstab)."""

    path: AbsolutePath
    """Directory on the node."""


class Nfs(Model):
    """An NFS export that kubelet mounts."""

    server: Annotated[str, Field(min_length=1, max_length=253)]
    """Host name or address."""
    path: AbsolutePath
    """Exported directory."""


class Home(Model):
    """Where /home of workers, login and mirror pods comes from; mirror pods live in the teams' namespaces."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule("has(self.hostPath) != has(self.nfs)", "home needs exactly one of hostPath and nfs"),
        )
    )

    host_path: HostPath | None = None
    """A directory of the node."""
    nfs: Nfs | None = None
    """An NFS export."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.host_path is None) == (self.nfs is None):
            raise ValueError("needs exactly one of hostPath and nfs; keep one")
        return self


_owned_list = ", ".join(f"'{name.lower()}'" for name in OWNED_PARAMETERS)


class Spec(Model):
    """One Slurm cluster. Only one in a namespace: its Service is called slurmctld."""

    slurmctld: Slurmctld = Slurmctld()
    """The controller daemon."""
    login: Login = Login()
    """Login nodes."""
    rest_api: bool = False
    """Whether slurmrestd runs, as Service slurmrestd on port 6820."""
    home: Home
    """Shared home directories."""
    slurm_conf: Annotated[
        dict[
            str,
            Annotated[str, Field(pattern=r"^[^\n\r#]+$", max_length=2048)],
        ],
        Field(
            max_length=64,
            json_schema_extra=rules(
                Rule(
                    f"self.all(k, k.matches('^[A-Za-z][A-Za-z0-9]{{0,63}}$') && !(k.lowerAscii() in [{_owned_list}]))",
                    "slurmConf may not set what the bridge works by (docs/reference/resources.md)",
                )
            ),
        ),
    ] = Field(default_factory=dict)
    """Further parameters of slurm.conf, or other values for those in slurm-conf/. A change is applied
    by `scontrol reconfigure`; what slurmctld refuses is not applied: its log and /run/slurm/config-refused say why."""

    @model_validator(mode="after")
    def _not_owned(self) -> Self:
        odd = sorted(name for name in self.slurm_conf if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,63}", name))
        if odd:
            raise ValueError(f"slurmConf.{odd[0]} is no parameter's name; use letters and digits")
        owned = sorted(name for name in self.slurm_conf if name.lower() in _OWNED_LOWER)
        if owned:
            raise ValueError(f"slurmConf.{owned[0]} is set by the bridge; remove it")
        return self


class Versions(Model):
    """What runs."""

    image: str = ""
    """Image of slurmctld."""


class Status(Model):
    """What the bridge sees of the cluster."""

    observed_generation: int = 0
    """Generation of the spec that the status is about."""
    versions: Versions = Versions()
    """What runs."""
    conditions: Conditions = ()
    """Ready: slurmctld answers."""


class SlurmCluster(Model):
    """A cluster as read from the API server."""

    metadata: Metadata
    spec: Spec


DEFINITION = Definition(
    kind="SlurmCluster",
    plural="slurmclusters",
    short="slc",
    namespaced=True,
    spec=Spec,
    status=Status,
    columns=(
        Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", "string", ".status.conditions[?(@.type=='Ready')].message", wide=True),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    rules=(
        Rule(
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$')",
            "the name is Slurm's ClusterName too: lower case letters, digits and dashes, at most 40",
        ),
    ),
)
