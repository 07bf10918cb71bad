"""What one admission pass is told beside workloads, nodes and the quota tree. Frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import Grant, NodeName, WorkloadId


class WithinTeam(StrEnum):
    """Whether work of a team may preempt other work of the same team."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


@dataclass(frozen=True, slots=True)
class Preemption:
    """A team's terms as a victim, and inside itself as a preemptor."""

    min_runtime_ms: int = 0  # its work is no victim before it ran this long
    grace_ms: int = 30_000  # between the first signal and the end of a victim
    within_team: WithinTeam = WithinTeam.NEVER
    kill: bool = False  # jobs that cannot be requeued may be cancelled as victims


@dataclass(frozen=True, slots=True)
class Policy:
    """The platform's rules beside the quota tree. A team without an entry has the defaults."""

    preemption: Mapping[TeamName, Preemption] = field(default_factory=dict)
    preempts: bool = True  # False: guarantees are waited for, never reclaimed
    earmark_margin_ms: int = 120_000  # an earmark lapses this long after the longest grace of its victims

    def of(self, team: TeamName) -> Preemption:
        """Return the terms of a team."""
        return self.preemption.get(team, Preemption())


@dataclass(frozen=True, slots=True)
class Holding:
    """A grant that holds, with what its system tells about it: what backfill and the choice of victims go by."""

    grant: Grant
    priority: int = 0
    ends_ms: int | None = None  # latest end: start plus time limit; None: unknown
    endless: bool = False  # serves until somebody stops it (a pod without a deadline): its end is not waited for
    shield: str = ""  # why it can be no victim ("not requeueable", "annotated as not preemptible"); "": it can
    leaving: bool = False  # it is a victim already, or is being cancelled: chosen by nobody again


@dataclass(frozen=True, slots=True)
class Victim:
    """One attempt that must make way. `lost_gpu_ms`: devices x milliseconds since it started, the work given up."""

    workload: WorkloadId
    attempt: int
    team: TeamName
    gpus: int
    grace_ms: int
    lost_gpu_ms: int


@dataclass(frozen=True, slots=True)
class Earmark:
    """Capacity that victims free for one waiting workload; nobody else may take it until it starts or this lapses.

    In the ledger it is an open intent of kind `preempt`. It counts as held by the workload: its quota, and its
    devices on these nodes, from the moment it is recorded.
    """

    workload: WorkloadId
    team: TeamName
    flavor: FlavorName
    placement: Mapping[NodeName, int]
    victims: tuple[Victim, ...]
    since_ms: int
    lapses_ms: int

    @property
    def gpus(self) -> int:
        """Devices kept in all."""
        return sum(self.placement.values())


History = Mapping[tuple[TeamName, FlavorName], float]
"""Decayed average of the devices a team held itself (its children's apart), from bridge.ledger.history; in GPUs."""
