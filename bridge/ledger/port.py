"""The ledger as the controller sees it. One implementation: bridge.ledger.journal over SQLAlchemy Core.

Every write names its transfer: (workload, attempt, step). The same transfer again changes nothing and returns
the first result. Every write carries the leader's epoch; an older one raises StaleLeaderError.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import Grant, NodeName, System, Workload, WorkloadId


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the append-only journal."""

    seq: int
    at_ms: int
    epoch: int
    step: str  # epoch | reserve | run | adjust | release | void | adopt | capacity | intent | settle | note
    workload: WorkloadId | None
    attempt: int | None
    team: TeamName | None
    flavor: FlavorName | None
    system: System | None
    gpus: int  # signed change of what the team holds
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """GPUs of one node in exactly one column each: the five sum to `total`."""

    node: NodeName
    flavor: FlavorName
    total: int
    worker: int
    pods: int
    unmanaged: int
    idle: int
    unavailable: int
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Intent:
    """An act that was recorded before it was sent (submit, cancel) and is settled by looking."""

    id: str  # e.g. "submit/job-<uid>/1", "cancel/<workload>"
    kind: str
    workload: WorkloadId
    at_ms: int
    detail: Mapping[str, object]
    settled_ms: int | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Exact integral of what was held, in GPU-milliseconds, over the grants' RUNNING time.

    `from_ms`: the begin of the part of the window that it is of.
    """

    team: TeamName
    system: System
    flavor: FlavorName
    gpu_ms: int
    user: str = ""
    from_ms: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs held by a team in the running state, [from_ms, to_ms); None: still running."""

    team: TeamName
    system: System
    flavor: FlavorName
    gpus: int
    from_ms: int
    to_ms: int | None
    user: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """A sum of archived spans, all of it within [from_ms, to_ms) of one UTC day. It cannot be cut."""

    team: TeamName
    system: System
    flavor: FlavorName
    gpu_ms: int
    from_ms: int
    to_ms: int
    user: str = ""


@dataclass(frozen=True, slots=True)
class Past:
    """All that was held up to entry `seq`: what ended, sums of what is archived, and what holds (reserved or running).

    `since_ms`: when the present amount of each running attempt began to be held.
    """

    seq: int
    ended: Sequence[Held]
    carried: Sequence[Carried]
    grants: Sequence[Grant]
    since_ms: Mapping[tuple[WorkloadId, int], int]


@dataclass(frozen=True, slots=True)
class Problem:
    """A discrepancy that verify found."""

    text: str


class Ledger(Protocol):
    """Quota holds, capacity, intents and their history. Durable when a call returns."""

    def open_epoch(self, epoch: int, holder: str) -> None:
        """Take over as leader. An epoch not above the recorded one raises StaleLeaderError.

        The recorded epoch again by the same holder is fine.
        """
        ...

    def batch(self) -> AbstractContextManager[None]:
        """Commit every write of this thread inside the block together, or none; reads inside see what was before."""
        ...

    def reserve(self, workload: Workload, placement: Mapping[NodeName, int], *, at_ms: int) -> Grant:
        """Grant the next attempt of `workload` as reserved; an attempt that holds already is returned unchanged."""
        ...

    def run(
        self, workload: WorkloadId, attempt: int, *, gpus: int, placement: Mapping[NodeName, int], at_ms: int
    ) -> Grant:
        """Reserved -> running with what was really allocated (may differ from the request); `at_ms` = real start."""
        ...

    def adjust(
        self, workload: WorkloadId, attempt: int, *, gpus: int, placement: Mapping[NodeName, int], at_ms: int
    ) -> Grant:
        """Charge a running grant another amount from `at_ms` on. The same adjustment again changes nothing."""
        ...

    def release(self, workload: WorkloadId, attempt: int, *, at_ms: int, note: str = "") -> Grant:
        """End a grant that runs (or is reserved): its whole charge is given back; `at_ms` = real end.

        Releasing twice changes nothing; what was voided or never granted has no charge to give back and is refused.
        """
        ...

    def void(self, workload: WorkloadId, attempt: int, *, at_ms: int, note: str) -> Grant:
        """Reserved -> voided: it never ran."""
        ...

    def adopt(self, workload: Workload, placement: Mapping[NodeName, int], *, at_ms: int, note: str) -> Grant:
        """Charge something found running without a grant (e.g. after a lost ledger); may exceed quota."""
        ...

    def intend(self, intent: Intent) -> Intent:
        """Record an intent; the same id again returns the first one."""
        ...

    def settle(self, intent_id: str, *, outcome: str, at_ms: int) -> Intent:
        """Close an intent; settling twice keeps the first outcome."""
        ...

    def capacity(self, rows: Sequence[CapacityRow], *, at_ms: int) -> int:
        """Record the nodes whose row changed (columns must sum to total); return how many entries were written."""
        ...

    def note(self, workload: WorkloadId, text: str, *, at_ms: int) -> None:
        """Append a line to a workload's history; the same text as its last note writes nothing."""
        ...

    def grants(self, *, holding: bool = True) -> Sequence[Grant]:
        """Grants that hold now (or, holding=False, all of them)."""
        ...

    def ended(self, *, limit: int) -> Sequence[Grant]:
        """At most `limit` grants that ended last, newest first."""
        ...

    def intents(self, *, open_only: bool = True) -> Sequence[Intent]:
        """Intents not yet settled (or all)."""
        ...

    def capacity_rows(self) -> Sequence[CapacityRow]:
        """Latest capacity row of every node."""
        ...

    def history(self, workload: WorkloadId) -> Sequence[Entry]:
        """Every entry of one workload, oldest first."""
        ...

    def log(self, *, after_seq: int = 0, limit: int = 100) -> Sequence[Entry]:
        """Entries in order."""
        ...

    def newest_epoch(self) -> int:
        """Highest epoch on record; 0 when nobody ever led. A new term must be above it."""
        ...

    def last_seq(self) -> int:
        """Return the number of the newest entry; 0 when there is none."""
        ...

    def usage(self, *, from_ms: int, to_ms: int, cuts: Sequence[int] = ()) -> Sequence[Usage]:
        """GPU-ms that were held in the running state within the window, exact to the millisecond.

        One row per team, system, flavor, user and part; `cuts` are moments inside the window where parts begin.
        """
        ...

    def past(self, *, from_ms: int) -> Past:
        """Return what was held from a moment on, as of one entry; whoever follows begins with it."""
        ...

    def verify(self) -> Sequence[Problem]:
        """Recompute every balance and grant from entry 1; an empty result is the proof."""
        ...

    def close(self) -> None:
        """Close the database; no call may follow."""
        ...
