"""What came of one policy's run. Frozen values, by which every figure is made."""

from dataclasses import dataclass
from typing import NamedTuple

from bridge.quota.model import TeamName
from bridge.simulate.cases import Case
from bridge.workloads.model import WorkloadId


class Stretch(NamedTuple):
    """One attempt of a job, [from_ms, to_ms). `kept_ms`: what of its run time lasts."""

    job: int  # its place in Case.work
    from_ms: int
    to_ms: int
    kept_ms: int
    preempted: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """One victim of one preemption. `lost_gpu_ms` is what it had to do again."""

    at_ms: int
    for_team: TeamName
    from_team: TeamName
    gpus: int
    lost_gpu_ms: int


@dataclass(frozen=True, slots=True)
class Stranded:
    """A job that was still waiting when nothing could happen any more, and the planner's reason."""

    workload: WorkloadId
    why: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that happened."""

    case: Case
    stretches: tuple[Stretch, ...]
    taken: tuple[Taken, ...]
    stranded: tuple[Stranded, ...]
    decisions: int  # admissions that the planner made
    passes: int  # times that it was asked
    preemptions: int  # workloads that capacity was taken back for
    lapsed: int  # of those, earmarks that lapsed without a start
    ledger_entries: int
    first_ms: int  # first submission
    last_ms: int  # last end
    arrivals_end_ms: int  # last submission
