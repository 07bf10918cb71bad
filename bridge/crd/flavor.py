"""Flavor: a kind of GPU that quota is counted in."""

from typing import Annotated

from pydantic import Field

from bridge.crd.model import Amount, Column, Conditions, Definition, Labels, Metadata, Model, Rule, rules

# The admission policies gate pods that ask for these resources; a flavor of another resource would be quota
# that pods walk around, so it is refused here. Keep in step with deploy/policies.
RESOURCE_RULE = "self == 'nvidia.com/gpu' || self.startsWith('nvidia.com/mig-') || self == 'amd.com/gpu'"


class Spec(Model):
    """Which devices the flavor means, in Kubernetes' and in Slurm's words."""

    resource: Annotated[
        str,
        Field(
            min_length=3,
            max_length=128,
            json_schema_extra=rules(
                Rule(
                    RESOURCE_RULE,
                    "resource must be nvidia.com/gpu, nvidia.com/mig-* or amd.com/gpu: "
                    "the admission policies gate these only",
                ),
                Rule("self == oldSelf", "resource cannot change, the ledger counts in it; make a new Flavor"),
            ),
        ),
    ]
    """Extended resource that pods ask for, e.g. nvidia.com/gpu. Counted in whole devices."""
    node_selector: Annotated[Labels, Field(min_length=1)]
    """Labels of the nodes that carry this kind; e.g. nvidia.com/gpu.product: H100."""
    gres: Annotated[
        str,
        Field(
            pattern=r"^gpu:[A-Za-z0-9][A-Za-z0-9_.-]*$",
            max_length=64,
            json_schema_extra=rules(
                Rule("self == oldSelf", "gres cannot change, running jobs hold it; make a new Flavor")
            ),
        ),
    ]
    """Slurm's name for the same devices: gpu:TYPE, as in `sbatch --gres=gpu:TYPE:4`."""
    default: bool = False
    """Whether a request that names no kind means this one. At most one flavor of a resource."""

    @property
    def gres_type(self) -> str:
        """TYPE of `gpu:TYPE`."""
        return self.gres.partition(":")[2]


class Status(Model):
    """What the bridge sees of the flavor."""

    nodes: Amount = 0
    """Nodes that carry it."""
    gpus: Amount = 0
    """Devices on them, ready or not."""
    conditions: Conditions = ()
    """Accepted: whether the flavor is in use, and why not."""


class Flavor(Model):
    """A flavor as read from the API server."""

    metadata: Metadata
    spec: Spec


DEFINITION = Definition(
    kind="Flavor",
    plural="flavors",
    short="flv",
    namespaced=False,
    spec=Spec,
    status=Status,
    columns=(
        Column("Resource", "string", ".spec.resource"),
        Column("Gres", "string", ".spec.gres"),
        Column("Default", "boolean", ".spec.default"),
        Column("Nodes", "integer", ".status.nodes"),
        Column("GPUs", "integer", ".status.gpus"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    rules=(Rule("size(self.metadata.name) <= 63", "the name goes into labels: at most 63 characters"),),
)
