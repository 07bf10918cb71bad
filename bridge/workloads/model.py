"""The unit of admission, whatever system it runs in. Frozen values; the only vocabulary the planner knows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from bridge.quota.model import FlavorName, TeamName

WorkloadId = NewType("WorkloadId", str)
"""`slurm/<cluster>/<key>[_<task>]` or `pod/<uid>`. Never made from a JobId: those are reused."""

NodeName = NewType("NodeName", str)
"""A Kubernetes node's name. A worker's Slurm node name is mapped to it before the planner sees it."""


class System(StrEnum):
    """The system that runs a workload."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"


class GrantState(StrEnum):
    """reserved -> running -> released, or reserved -> voided. Only the first two hold quota."""

    RESERVED = "reserved"
    RUNNING = "running"
    RELEASED = "released"
    VOIDED = "voided"


@dataclass(frozen=True, slots=True)
class Workload:
    """A request that is admitted whole or not at all.

    `gpus` = nodes x gpus_per_node. `within_nodes`, when given, are the only nodes it may land on.
    """

    id: WorkloadId
    system: System
    team: TeamName
    flavor: FlavorName
    nodes: int
    gpus_per_node: int
    submitted_ms: int
    priority: int = 0
    user: str = ""
    name: str = ""
    time_limit_s: int | None = None
    within_nodes: frozenset[NodeName] | None = None
    preemptible: bool = True  # False: it can be no victim, so it is admitted within the guarantee only
    endless: bool = False  # serves until somebody stops it: no backfill may count on its end

    @property
    def gpus(self) -> int:
        """Total devices over all nodes."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Grant:
    """The ledger's hold for one attempt of a workload. `placement` maps nodes to devices on each."""

    workload: WorkloadId
    attempt: int
    team: TeamName
    flavor: FlavorName
    system: System
    gpus: int
    state: GrantState
    placement: Mapping[NodeName, int] = field(default_factory=dict)
    user: str = ""
    name: str = ""
    submitted_ms: int = 0
    reserved_ms: int = 0
    running_ms: int | None = None
    ended_ms: int | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        """True while the grant counts against quota and capacity."""
        return self.state in (GrantState.RESERVED, GrantState.RUNNING)
