"""What a simulation is given: demand, nodes, teams, settings. Frozen values; times in milliseconds."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bridge.admission.model import Preemption
from bridge.quota.model import FlavorName, TeamName, TeamSpec
from bridge.workloads.model import NodeName, System, WorkloadId

FLAVOR: Final = FlavorName("gpu")
"""All GPUs of a fleet are one flavor: traces rarely say which kind they asked for (see Job.models)."""

FLEET: Final = TeamName("fleet")
"""Root of the teams that are made from demand: only teams with a common root lend to each other."""

DAY_MS: Final = 86_400_000


class PolicyName(StrEnum):
    """Ways to share the fleet that can be compared."""

    SHARED = "shared"  # the bridge: one pool, guarantees, borrowing, reclaim
    STATIC = "static"  # each team its own nodes: guarantee = limit, no lending
    SPLIT = "split"  # Slurm and Kubernetes each own fixed nodes; within each, as shared
    FIFO = "fifo"  # one pool, one queue, no teams


@dataclass(frozen=True, slots=True)
class Job:
    """One row of a trace: what asked for GPUs, when, and how long it ran once it had them."""

    id: WorkloadId
    team: TeamName
    system: System
    gpus: int
    submitted_ms: int
    duration_ms: int
    nodes: int | None = None  # as asked for; None: on as few nodes as hold it in equal parts
    time_limit_s: int | None = None
    priority: int = 0
    models: frozenset[str] = frozenset()  # kinds of nodes it may run on; empty: any

    @property
    def endless(self) -> bool:
        """True for a pod: nothing may be planned on its end, though the trace knows it."""
        return self.system is System.KUBERNETES

    @property
    def gpu_ms(self) -> int:
        """GPU-milliseconds of its work."""
        return self.gpus * self.duration_ms


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the fleet."""

    name: NodeName
    gpus: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class TeamTerms:
    """A team's place in the quota tree, and its terms of preemption when it has its own."""

    spec: TeamSpec
    preemption: Preemption | None = None


@dataclass(slots=True)
class Reading:
    """What was read from one file: rows that are used, rows that are left out and why, and rows that are broken."""

    source: str
    rows: int = 0
    jobs: list[Job] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)  # one sentence each, with file:line and field
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the person who runs it chose, beside the files."""

    checkpoint_ms: int = 0  # a preempted job resumes from its last multiple of this; 0: from its start
    grace_ms: int = 30_000
    min_runtime_ms: int = 0
    half_life_ms: int = 7 * DAY_MS  # of the decayed use that fair share counts
    history_step_ms: int = 3_600_000  # how often fair share looks at it
    limit_factor: float = 0.0  # a job without a time limit gets this many times its run time; 0: none
    cycle_ms: int = 1_000  # decisions are made on multiples of this, as a controller's cycle makes them
    seed: int = 0  # shuffles nothing but jobs of the same millisecond


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that every policy is run on."""

    jobs: tuple[Job, ...]  # by submission
    nodes: tuple[Node, ...]
    teams: tuple[TeamTerms, ...]
    settings: Settings = Settings()
    teams_given: bool = False  # False: made from mean demand

    @property
    def gpus(self) -> int:
        """All devices of the fleet."""
        return sum(node.gpus for node in self.nodes)
