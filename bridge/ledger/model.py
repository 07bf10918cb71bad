"""What the journal keeps besides the port's values: steps, and the rows of its own projections."""

from dataclasses import dataclass
from enum import StrEnum

from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import System, WorkloadId


class Step(StrEnum):
    """What an entry records."""

    EPOCH = "epoch"
    RESERVE = "reserve"
    RUN = "run"
    ADJUST = "adjust"
    RELEASE = "release"
    VOID = "void"
    ADOPT = "adopt"
    CAPACITY = "capacity"
    INTENT = "intent"
    SETTLE = "settle"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry's number, and its digest, which the next entry is chained to."""

    seq: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of running time at one charge, [from_ms, to_ms). Named by the entry that began it."""

    seq: int
    workload: WorkloadId
    attempt: int
    from_ms: int
    to_ms: int | None
    gpus: int


@dataclass(frozen=True, slots=True)
class Balance:
    """What a team holds of a flavor in one system, reserved and running together."""

    team: TeamName
    flavor: FlavorName
    system: System
    gpus: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """A term of leadership."""

    epoch: int
    holder: str
    at_ms: int
