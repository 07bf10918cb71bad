"""The closed list of what a plan may ask for. Ledger writes come first; acts are dumb and idempotent."""

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.kube.port import Object
from bridge.ledger.port import CapacityRow, Intent
from bridge.slurm.model import GraceSignal, JobSpec
from bridge.slurm.port import JobRef
from bridge.workloads.model import NodeName, Workload, WorkloadId
from bridge.workloads.tenants import Member


# --- ledger writes -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Reserve:
    """Grant the next attempt."""

    workload: Workload
    placement: Mapping[NodeName, int]


@dataclass(frozen=True, slots=True)
class Run:
    """The grant's workload was seen running with these devices since `at_ms`."""

    workload: WorkloadId
    attempt: int
    gpus: int
    placement: Mapping[NodeName, int]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Adjust:
    """A running workload holds another number of devices from `at_ms` on."""

    workload: WorkloadId
    attempt: int
    gpus: int
    placement: Mapping[NodeName, int]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Release:
    """The grant's workload ended at `at_ms` and its devices are free."""

    workload: WorkloadId
    attempt: int
    at_ms: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Void:
    """The grant's workload never ran."""

    workload: WorkloadId
    attempt: int
    note: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Something runs without a grant: charge it."""

    workload: Workload
    placement: Mapping[NodeName, int]
    at_ms: int
    note: str


@dataclass(frozen=True, slots=True)
class Intend:
    """Record an intent before its act."""

    intent: Intent


@dataclass(frozen=True, slots=True)
class Settle:
    """Close an intent with what was seen."""

    intent_id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class RecordCapacity:
    """Who holds each node's devices."""

    rows: tuple[CapacityRow, ...]


LedgerWrite = Reserve | Run | Adjust | Release | Void | Adopt | Intend | Settle | RecordCapacity


# --- Slurm -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Submit a batch Job's Slurm job; `intent_id` was recorded before."""

    spec: JobSpec
    intent_id: str
    job: Object


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """Let a granted job start on exactly these Slurm nodes."""

    workload: WorkloadId
    ref: JobRef
    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Hold as root."""

    ref: JobRef
    why: str


@dataclass(frozen=True, slots=True)
class RequeueJob:
    """Put a job back, held."""

    ref: JobRef
    why: str


@dataclass(frozen=True, slots=True)
class RetryJob:
    """Bring a job that failed back into the queue, held, as its next attempt."""

    ref: JobRef
    why: str


@dataclass(frozen=True, slots=True)
class SignalJob:
    """Send the signal that a job asked for; `intent_id` was recorded before, and is settled when it was sent."""

    ref: JobRef
    signal: GraceSignal
    intent_id: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Cancel; repeated each cycle until the end is seen."""

    ref: JobRef
    why: str


@dataclass(frozen=True, slots=True)
class AnnotateJob:
    """Tell the user through AdminComment."""

    ref: JobRef
    text: str


# --- Kubernetes --------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class UngatePod:
    """Pin a granted pod to its node and remove the quota gate."""

    pod: Object
    node: NodeName


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Carry out a cancel of a pod."""

    pod: Object
    why: str


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Ask a pod to make way; repeated each cycle until it is being deleted."""

    pod: Object
    why: str


@dataclass(frozen=True, slots=True)
class TellPod:
    """Write the Admitted condition (and an Event) of a pod."""

    pod: Object
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TellJob:
    """Write a batch Job's status."""

    job: Object
    status: Object


@dataclass(frozen=True, slots=True)
class Announce:
    """Write an Event on an object."""

    object: Object
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class CreateMirror:
    """Make the pod that follows a batch Job's output file, as the member the job runs as."""

    job: Object
    member: Member
    path: str


@dataclass(frozen=True, slots=True)
class EndMirror:
    """Tell the mirror that its job ended with this exit code."""

    pod: Object
    exit_code: int


@dataclass(frozen=True, slots=True)
class DropFinalizer:
    """Let a deleted batch Job go: its Slurm job has ended."""

    job: Object


KubeAct = UngatePod | DeletePod | EvictPod | TellPod | TellJob | Announce | CreateMirror | EndMirror | DropFinalizer
SlurmAct = SubmitJob | ReleaseJob | HoldJob | RequeueJob | RetryJob | SignalJob | CancelJob | AnnotateJob
