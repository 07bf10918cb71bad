"""What the capacity planner sees of nodes and workers, and the acts it may ask for. Frozen values."""

from dataclasses import dataclass
from enum import StrEnum

from bridge.quota.model import FlavorName
from bridge.workloads.model import NodeName

# Reasons that slurmctld writes by itself while a worker comes or goes: nobody's decision, so nobody's to keep.
SLURMCTLD_REASONS = ("Not responding", "Node unexpectedly rebooted")


class PodPhase(StrEnum):
    """Life of a worker pod. TERMINATING: deletion has begun, its containers may still run."""

    PENDING = "pending"
    RUNNING = "running"
    TERMINATING = "terminating"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SlurmView:
    """A worker's node record in slurmctld."""

    name: str
    state: str  # base state: IDLE, ALLOCATED, MIXED, DOWN, UNKNOWN, ...
    flags: frozenset[str] = frozenset()  # DRAIN, COMPLETING, NOT_RESPONDING, ...
    reason: str = ""
    reason_ours: bool = False
    busy: bool = False  # any job allocated or completing
    completing: bool = False
    gpus: int = 0

    @property
    def drained(self) -> bool:
        """No new job starts here."""
        return "DRAIN" in self.flags

    @property
    def drained_by_us(self) -> bool:
        """The drain is ours to lift."""
        return self.drained and self.reason_ours

    @property
    def occupied(self) -> bool:
        """A job is here or still ending; said by any sign of it, so that no single missing one frees the node."""
        return self.busy or self.completing or self.state in ("ALLOCATED", "MIXED") or "COMPLETING" in self.flags

    @property
    def foreign(self) -> bool:
        """Drained or down by an admin or a health check: never ours to change."""
        if self.reason_ours:
            return False
        by_slurmctld = self.reason.startswith(SLURMCTLD_REASONS)
        return self.drained or (self.state == "DOWN" and bool(self.reason) and not by_slurmctld)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker pod. `slurm` is None while slurmctld has no record of it, read positively."""

    pod: str
    uid: str
    phase: PodPhase
    gpus: int
    slurm: SlurmView | None = None
    idle_since_ms: int | None = None  # since when neither Slurm nor a grant has used it
    created_ms: int | None = None
    registered_before: bool = True  # False only on positive evidence that this very pod never registered

    @property
    def live(self) -> bool:
        """It holds its GPUs and is not on its way out."""
        return self.phase in (PodPhase.PENDING, PodPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class NodeSetView:
    """The node set that covers a node."""

    name: str
    min: int = 0
    max: int | None = None
    idle_after_s: int = 300
    startup_grace_s: int = 300  # after this a worker that has not registered is reported
    retry_base_s: int = 10  # first pause after a failed worker; doubles with each further one
    retry_max_s: int = 300
    deleting: bool = False  # its workers are drained, then go; none is made


@dataclass(frozen=True, slots=True)
class NodeView:
    """One Kubernetes GPU node with its worker."""

    name: NodeName
    flavor: FlavorName
    nodeset: NodeSetView | None
    allocatable: int  # GPUs that the kubelet offers now
    ready: bool = True
    cordoned: bool = False  # unschedulable, being deleted or tainted for maintenance; never by our own taint
    cause: str = ""  # why it is cordoned or not ready, e.g. "node cordoned"
    taint_ours: bool = False
    worker: WorkerView | None = None
    slurm_record: SlurmView | None = None  # set only when a record exists though no worker pod does
    pods_granted: int = 0  # devices of granted pods seen bound here; the grants may know more
    unmanaged: int = 0
    capacity: int | None = None  # devices that the plugin lists, healthy or not
    worker_failures: int = 0  # workers that failed here in a row
    last_failure_ms: int | None = None

    @property
    def record(self) -> SlurmView | None:
        """Slurm's record of this node, with or without a worker pod."""
        return self.worker.slurm if self.worker is not None else self.slurm_record

    @property
    def trouble(self) -> str:
        """Why Kubernetes would not start anything here; "" when it would."""
        if not self.ready:
            return self.cause or "node not ready"
        return (self.cause or "node cordoned") if self.cordoned else ""

    @property
    def unusable(self) -> str:
        """Why nobody may be placed here, in the eyes of either system; "" when somebody may."""
        if self.trouble or self.record is None or not self.record.foreign:
            return self.trouble
        return f"drained or down in Slurm: {self.record.reason or 'no reason given'}"


@dataclass(frozen=True, slots=True)
class CreateWorker:
    """Create a worker pod that holds `gpus` devices of `node`."""

    node: NodeName
    nodeset: str
    gpus: int


@dataclass(frozen=True, slots=True)
class DrainWorker:
    """Drain the Slurm node; `reason` starts with the bridge's prefix."""

    node: NodeName
    slurm_node: str
    reason: str


@dataclass(frozen=True, slots=True)
class UndrainWorker:
    """Lift our own drain."""

    node: NodeName
    slurm_node: str


@dataclass(frozen=True, slots=True)
class DeleteWorker:
    """Delete the worker pod with this UID; only planned when no job can be on it."""

    node: NodeName
    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class ForgetNode:
    """Delete the Slurm record of a worker that is gone."""

    node: NodeName
    slurm_node: str


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Keep pods off a node that Slurm's side drained or downed."""

    node: NodeName
    cause: str


@dataclass(frozen=True, slots=True)
class UntaintNode:
    """Take our taint off again."""

    node: NodeName


Action = CreateWorker | DrainWorker | UndrainWorker | DeleteWorker | ForgetNode | TaintNode | UntaintNode


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that only a person can put right; shown as a condition, not acted on."""

    node: NodeName
    text: str
