"""What one admission pass answers. Frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.admission.model import Earmark
from bridge.admission.supply import Placement
from bridge.workloads.model import NodeName, Workload, WorkloadId
from bridge.workloads.reasons import Waiting


@dataclass(frozen=True, slots=True)
class Placed:
    """A workload to grant, and its devices on each node. `drains`: of those, the nodes whose worker must go first."""

    workload: Workload
    placement: Placement
    drains: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True)
class Decisions:
    """The whole answer: what to grant in this order, what to take back for whom, and why everything else waits.

    `waiting` makes its sentences when they are asked for (see bridge.admission.waits). `next_ms`: the earliest time
    at which the same input may be decided differently; None when only a change can do that.
    """

    admitted: tuple[Placed, ...]
    waiting: Mapping[WorkloadId, Waiting]
    preemptions: tuple[Earmark, ...] = ()
    next_ms: int | None = None
