"""What one cycle sees, frozen: both systems, the settings people made, and the ledger. Nothing here reads anything.

`ok` False means unknown: the planner then neither releases nor starts nor removes anything of that system (N1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from bridge.admission.model import History, Policy
from bridge.kube.port import Object
from bridge.ledger.port import CapacityRow, Intent
from bridge.quota.model import TeamName
from bridge.quota.tree import Tree
from bridge.slurm.model import SlurmJob, SlurmNode
from bridge.workloads import pods, slurmjobs
from bridge.workloads.flavors import Flavors
from bridge.workloads.model import Grant, NodeName, WorkloadId
from bridge.workloads.slurmjobs import SlurmTask
from bridge.workloads.tenants import Tenants

UNASSIGNED: Final = TeamName("unassigned")
"""Charged for what runs without a team that the bridge knows."""


@dataclass(frozen=True)
class SlurmView:
    """One slurmctld as last read. `missing_ms`: workloads with a hold whose job a good read did not have, since when.

    `released_ms`: workloads seen pending and not held, since when. `empty_since_ms`: the whole job list is empty
    where it was not before, since when: slurmctld may have lost its state, or may still be reading it.
    """

    cluster: str
    ok: bool
    read_ms: int
    jobs: tuple[SlurmJob, ...] = ()
    nodes: Mapping[str, SlurmNode] = field(default_factory=dict)
    error: str = ""
    missing_ms: Mapping[WorkloadId, int] = field(default_factory=dict)
    released_ms: Mapping[WorkloadId, int] = field(default_factory=dict)

    @cached_property
    def tasks(self) -> Mapping[WorkloadId, SlurmTask]:
        """Every job record's tasks by workload, expanded once for all that plan from this view."""
        return {task.id: task for task in slurmjobs.tasks(self.cluster, self.jobs)}


@dataclass(frozen=True)
class KubeView:
    """Kubernetes as the reflectors hold it. `gone` keeps the last state of pods deleted a short while ago, by UID."""

    ok: bool
    nodes: Mapping[NodeName, Object] = field(default_factory=dict)
    namespaces: Mapping[str, Object] = field(default_factory=dict)
    pods: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    gone: Mapping[str, Object] = field(default_factory=dict)
    worker_namespace: str = ""  # only pods of this namespace are taken for workers
    error: str = ""

    @cached_property
    def pods_by_id(self) -> Mapping[WorkloadId, Object]:
        """Every pod by its workload."""
        return {pods.workload_id(pod): pod for pod in self.pods}


@dataclass(frozen=True, slots=True)
class NodeSetView:
    """A NodeSet as the planner needs it."""

    name: str
    namespace: str
    cluster: str
    flavor: str
    min: int
    max: int | None
    idle_after_s: int
    node_selector: Mapping[str, str]
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """What people configured, parsed. `problems` names every object that was left out and why."""

    tree: Tree
    tenants: Tenants
    flavors: Flavors
    nodesets: tuple[NodeSetView, ...] = ()
    cluster: str = ""  # the SlurmCluster's name; one per bridge for now
    cluster_namespace: str = ""
    problems: tuple[str, ...] = ()
    fallback_team: TeamName = UNASSIGNED
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class Memory:
    """What only the process that watched can know; lost at a restart, which costs time and nothing else."""

    idle_since_ms: Mapping[str, int] = field(default_factory=dict)  # by worker pod
    failures: Mapping[NodeName, tuple[int, int]] = field(default_factory=dict)  # workers failed in a row, last when


@dataclass(frozen=True, slots=True)
class World:
    """Everything that one plan is made from."""

    now_ms: int
    kube: KubeView
    slurm: SlurmView
    settings: Settings
    grants: tuple[Grant, ...]
    intents: Mapping[str, Intent] = field(default_factory=dict)
    rows: Mapping[NodeName, CapacityRow] = field(default_factory=dict)  # the ledger's last word on each node
    memory: Memory = field(default_factory=Memory)
    history: History = field(default_factory=dict)  # decayed use by team and flavor, sampled now and then
