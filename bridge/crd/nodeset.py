"""NodeSet: workers of one flavor for one SlurmCluster. A worker owns all GPUs of its node."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from bridge.crd.model import (
    Amount,
    Column,
    Conditions,
    Definition,
    Labels,
    Metadata,
    Model,
    Name,
    Quantity,
    Rule,
    rules,
)
from bridge.crd.slurmcluster import Image


class Resources(Model):
    """What one worker pod requests of its node besides the GPUs; memory is its limit too."""

    cpu: Quantity
    """CPU request, e.g. "16" or "500m"."""
    memory: Quantity
    """Memory request and limit. Slurm's RealMemory is this, rounded down to MiB."""


class Spec(Model):
    """Which nodes may carry workers, how many, and their shape."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.min <= self.max",
                "min is above max; lower min or raise max",
                "min",
            )
        )
    )

    cluster: Annotated[
        Name, Field(json_schema_extra=rules(Rule("self == oldSelf", "cluster is fixed; make a new NodeSet")))
    ]
    """Name of the SlurmCluster in the same namespace that the workers join."""
    flavor: Annotated[
        Name, Field(json_schema_extra=rules(Rule("self == oldSelf", "flavor is fixed; make a new NodeSet")))
    ]
    """Name of the Flavor: it chooses the nodes and the GPU resource."""
    node_selector: Labels = Field(default_factory=dict)
    """Further labels that a node must carry, besides the flavor's own."""
    min: Amount = 0
    """Workers kept even when idle. Pods that were granted a node's GPUs take it nevertheless."""
    max: Amount
    """Most workers at a time. `kubectl scale nodeset NAME --replicas N` sets it."""
    idle_after_seconds: Annotated[int, Field(ge=0, le=31_536_000)] = 300
    """Seconds that a worker above `min` may be idle before it is drained and removed."""
    resources: Resources
    """Requests of one worker."""
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """CPUs that Slurm hands out on a worker. Absent: resources.cpu, rounded up."""
    image: Image | None = None
    """Image with slurmd; jobs run in it. Absent: the one that the bridge was deployed with."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=86_400)] = 30
    """Seconds between TERM and KILL of a worker pod. The bridge deletes only drained workers."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}; lower min or raise max")
        return self


class Status(Model):
    """What the bridge sees of the set."""

    observed_generation: int = 0
    """Generation of the spec that the status is about."""
    desired: Amount = 0
    """Workers wanted now."""
    ready: Amount = 0
    """Workers that are registered in Slurm and usable."""
    busy: Amount = 0
    """Workers with a job on them, completing ones included."""
    draining: Amount = 0
    """Workers that are drained or on their way."""
    conditions: Conditions = ()
    """Accepted: cluster and flavor exist. GpusAgree: Kubernetes and Slurm count the same GPUs."""


class NodeSet(Model):
    """A node set as read from the API server."""

    metadata: Metadata
    spec: Spec


DEFINITION = Definition(
    kind="NodeSet",
    plural="nodesets",
    short="nds",
    namespaced=True,
    spec=Spec,
    status=Status,
    columns=(
        Column("Cluster", "string", ".spec.cluster"),
        Column("Flavor", "string", ".spec.flavor"),
        Column("Max", "integer", ".spec.max"),
        Column("Desired", "integer", ".status.desired"),
        Column("Ready", "integer", ".status.ready"),
        Column("Busy", "integer", ".status.busy"),
        Column("Draining", "integer", ".status.draining"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    rules=(Rule("size(self.metadata.name) <= 40", "the name begins worker names: at most 40 characters"),),
    scale=(".spec.max", ".status.ready"),
)
