"""The documents that the API hands out: frozen, versioned by the path, unknown fields ignored on reading.

Amounts are whole GPUs, times Unix milliseconds (`*_ms`), spans say their unit. A document only gains fields.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from bridge.ledger import port
from bridge.workloads.model import System
from bridge.workloads.reasons import Reason


class View(BaseModel):
    """A frozen document."""

    model_config = ConfigDict(frozen=True, extra="ignore")


ItemT = TypeVar("ItemT")


class Items(View, Generic[ItemT]):
    """A list as a document, so that it can gain fields."""

    items: tuple[ItemT, ...]


class State(StrEnum):
    """Where a workload stands."""

    WAITING = "waiting"  # not admitted; `reason` says why
    REFUSED = "refused"  # can never be admitted as it stands
    GRANTED = "granted"  # the ledger holds GPUs for it; its system has not started it yet
    RUNNING = "running"
    ENDING = "ending"  # over for its owner, still charged: processes or containers are stopping
    ENDED = "ended"


ACTIVE: tuple[State, ...] = (State.WAITING, State.REFUSED, State.GRANTED, State.RUNNING, State.ENDING)


class SystemHealth(View):
    """One system that the bridge reads. `age_s` is None when it was never reached."""

    name: str
    ok: bool
    age_s: float | None = None
    version: str = ""
    text: str = ""  # one sentence when not ok


class Problem(View):
    """Something that a person should look at."""

    about: str  # what it concerns, e.g. "node g1" or "team vision"
    text: str
    since_ms: int | None = None


class StatusView(View):
    """Health of the bridge and of what it reads, as of the last cycle."""

    version: str
    leader: str  # who holds the lease; "" when nobody is known to
    leading: bool  # True when the answering process is the leader
    epoch: int
    cycles: int
    last_cycle_ms: int  # how long the last cycle took
    last_cycle_age_s: float | None  # None before the first one
    kubernetes: SystemHealth
    slurm: tuple[SystemHealth, ...] = ()
    ledger_seq: int = 0  # number of the newest journal entry
    problems: tuple[Problem, ...] = ()


class Holder(View):
    """What a team holds, as a sum: no names of people or workloads, so everybody may see it."""

    team: str
    system: System
    flavor: str = ""
    gpus: int
    workloads: int = 1


class NodeRow(View):
    """One node. Each GPU is in exactly one of the five columns that sum to `total`."""

    node: str
    flavor: str
    total: int
    worker: int
    pods: int
    unmanaged: int
    idle: int
    unavailable: int
    cause: str = ""  # why GPUs are unavailable
    ready: bool = True
    holders: tuple[Holder, ...] = ()
    slurm_node: str = ""
    slurm_state: str = ""
    slurm_reason: str = ""


class QuotaRow(View):
    """One team and flavor. `used_total` counts the whole subtree, the other two the team itself."""

    team: str
    parent: str | None = None
    flavor: str
    guarantee: int
    limit: int | None = None
    used_slurm: int
    used_kubernetes: int
    used_total: int
    borrowed: int
    available: int  # may be negative after a quota was lowered
    pending: int  # GPUs that waiting workloads ask for


class QueueRow(View):
    """One workload. `hidden`: of a team that the caller is not a member of; names are empty there."""

    id: str
    name: str
    user: str
    team: str
    system: System
    flavor: str
    gpus: int
    nodes: int = 1
    state: State
    reason: Reason | None = None
    text: str = ""
    submitted_ms: int
    waited_s: float
    started_ms: int | None = None
    ended_ms: int | None = None
    priority: int = 0
    position: int | None = None  # place in its team's own queue for the flavor, while it waits
    where: str = ""  # where its owner finds it: "123_4", "pod/ns/name", "job/ns/name"
    refs: tuple[str, ...] = ()  # everything it may be looked up by, `where` included
    hidden: bool = False


class Moment(View):
    """One line of a workload's history."""

    at_ms: int
    what: str
    text: str = ""


class Place(View):
    """The place in the team's own queue for the flavor: 1 is next. Another team's work may still come in between."""

    position: int
    of: int


class Victim(View):
    """What is being taken back from one team, as a sum."""

    team: str
    gpus: int
    workloads: int = 1


class Reclaim(View):
    """An open preemption: for the workload itself (`team` is its own), or for another team that takes it from this one.

    `until_ms`: what frees is kept for the taker until then at the latest.
    """

    team: str  # who takes back
    gpus: int
    since_ms: int
    until_ms: int
    victims: tuple[Victim, ...] = ()


class Explain(View):
    """All that is known about one workload: one query explains a wait, and agrees with the decision.

    What the pass that decided found: nothing here is reckoned a second time, so that it cannot say something else.
    """

    workload: QueueRow
    attempt: int = 0  # 0 before its first grant
    numbers: Mapping[str, int | str] = Field(default_factory=dict)  # the facts behind `workload.text`
    binding: str = ""  # the team of the quota tree, or the flavor, that binds
    place: Place | None = None
    earliest_ms: int | None = None  # no earlier start is possible, where that can be known; past: an end is overdue
    earliest_unknown: str = ""  # why that cannot be known
    would_start: str = ""  # what would make it start
    could_fit: int | None = None  # of a refusal: the most GPUs that could ever be granted
    holders: tuple[Holder, ...] = ()  # who holds what it waits for
    held_by: tuple[QueueRow, ...] = ()  # the workloads that do, largest first; only those that the asker may see
    reclaim: Reclaim | None = None  # GPUs are being taken back for it
    preempted: Reclaim | None = None  # it makes way: its GPUs are being taken back
    placement: Mapping[str, int] = Field(default_factory=dict)  # node -> GPUs
    timeline: tuple[Moment, ...] = ()


class EntryView(View):
    """One line of the journal. A hidden one is another team's: its workload and detail are empty."""

    seq: int
    at_ms: int
    epoch: int
    step: str
    workload: str | None = None
    attempt: int | None = None
    team: str | None = None
    flavor: str | None = None
    system: System | None = None
    gpus: int = 0
    detail: Mapping[str, object] = Field(default_factory=dict)
    hidden: bool = False

    @classmethod
    def of(cls, entry: port.Entry) -> "EntryView":
        """Show a ledger entry."""
        return cls(
            seq=entry.seq,
            at_ms=entry.at_ms,
            epoch=entry.epoch,
            step=entry.step,
            workload=entry.workload,
            attempt=entry.attempt,
            team=entry.team,
            flavor=entry.flavor,
            system=entry.system,
            gpus=entry.gpus,
            detail=dict(entry.detail),
        )


class EntryPage(View):
    """A page of the journal; ask again with `after` = `next_after` for what follows."""

    items: tuple[EntryView, ...]
    next_after: int


class VerifyView(View):
    """Outcome of recomputing the ledger from entry 1. The texts are for admins, the count for everybody."""

    clean: bool
    count: int
    problems: tuple[str, ...] = ()


class UsageRow(View):
    """Exact integral of what was held while running. A field that the sum is not told apart by is "" (or None)."""

    team: str = ""
    user: str = ""
    system: System | None = None
    flavor: str = ""
    from_ms: int | None = None  # begin and end of the day or month, within the window
    to_ms: int | None = None
    gpu_ms: int


class UsageView(View):
    """Usage within [from_ms, to_ms), of the teams that the caller may see."""

    from_ms: int
    to_ms: int
    by: tuple[str, ...] = ()
    items: tuple[UsageRow, ...]


class CancelRequest(BaseModel):
    """What POST /v1/cancel takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str = Field(min_length=1, max_length=400, description="workload id, JobId, pod/ns/name, job/ns/name or name")


class CancelState(StrEnum):
    """How far a cancel has come: it is on record and repeated until its system confirms the end, or that was seen."""

    RECORDED = "recorded"
    CONFIRMED = "confirmed"


class CancelView(View):
    """The intent to cancel, as recorded."""

    workload: str
    intent: str
    state: CancelState
    text: str = ""
