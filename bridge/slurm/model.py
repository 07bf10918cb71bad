"""What the bridge knows of Slurm's jobs and nodes, in the words of Slurm's own API. Frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class JobState(StrEnum):
    """Slurm's base job states (slurm.h, enum job_states). UNKNOWN: a value this table does not have."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    UNKNOWN = "UNKNOWN"


class Phase(StrEnum):
    """What a (state, flags) pair means to the bridge; one row per pair in bridge.slurm.states."""

    WAITING = "waiting"  # holds nothing on any node
    RUNNING = "running"  # holds its allocation (SUSPENDED too)
    ENDING = "ending"  # COMPLETING: processes or epilog may still hold devices; the charge stays
    ENDED = "ended"  # terminal and off its nodes
    UNKNOWN = "unknown"  # nothing may be concluded


@dataclass(frozen=True, slots=True)
class GraceSignal:
    """What a job asked for with `--signal`: told before its end. `batch` (B:): its batch shell only, else its steps."""

    number: int
    batch: bool = False


@dataclass(frozen=True, slots=True)
class Tres:
    """Trackable resources. `gpus` maps the gres type ("" when untyped) to whole devices."""

    gpus: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0
    cpus: int = 0
    mem_mib: int = 0

    @property
    def gpu_total(self) -> int:
        """Devices of all types. Slurm lists `gres/gpu` and `gres/gpu:type` for the same devices: counted once."""
        return sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job record of slurmctld: a job, an array task, or the unsplit rest of an array."""

    job_id: int
    key: str  # from AdminComment; "" when the job has none
    comment_text: str  # the text for people behind the key in AdminComment
    state: JobState
    flags: frozenset[str]  # e.g. COMPLETING, CONFIGURING, REQUEUED
    user: str
    uid: int
    account: str
    partition: str
    name: str
    held: bool  # priority 0
    admin_held: bool
    priority: int
    requested: Tres
    allocated: Tres
    nodes: tuple[str, ...]  # allocated (also last allocated, once ended)
    submit_ms: int
    start_ms: int | None
    end_ms: int | None
    time_limit_s: int | None  # None: unlimited
    exit_code: int | None
    exit_signal: int | None
    restart_count: int
    state_reason: str
    requeueable: bool
    array_job_id: int | None = None
    array_task_id: int | None = None  # a split-off task
    array_tasks: tuple[int, ...] = ()  # tasks still in the unsplit record (pending only)
    array_throttle: int | None = None
    het_job_id: int | None = None
    het_offset: int | None = None
    work_dir: str = ""
    std_out: str = ""
    features: str = ""
    requested_nodes: tuple[str, ...] = ()
    exclusive: bool = False
    comment: str = ""  # the user's own Comment field
    dependency: str = ""  # what is left of --dependency; slurmctld removes what is satisfied
    eligible_ms: int | None = None  # --begin, when it lies in the future of the submission
    batch: bool = True  # False: srun or salloc, which slurmctld cannot requeue
    nice: int = 0  # of --nice; higher is less urgent
    signal: GraceSignal | None = None  # of --signal


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node record of slurmctld."""

    name: str
    state: str  # base state: IDLE, ALLOCATED, MIXED, DOWN, UNKNOWN, FUTURE, ERROR
    flags: frozenset[str]  # DRAIN, COMPLETING, NOT_RESPONDING, INVALID_REG, ... each once
    gpus: Mapping[str, int]  # configured, by type
    gpus_allocated: Mapping[str, int]
    cpus: int
    mem_mib: int
    reason: str  # without the "[user@time]" that scontrol prints
    reason_user: str
    reason_ms: int | None
    address: str
    started_ms: int | None  # slurmd start time
    features: tuple[str, ...] = ()

    @property
    def drained_by_bridge(self) -> bool:
        """True when the drain is ours to lift."""
        from bridge import wellknown

        return "DRAIN" in self.flags and self.reason.startswith(wellknown.DRAIN_REASON_PREFIX)

    @property
    def busy(self) -> bool:
        """True while any job is allocated here or completing (epilog included)."""
        return self.state in ("ALLOCATED", "MIXED") or "COMPLETING" in self.flags


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A batch job to submit on behalf of a user. Submitted held (priority 0) with its key in AdminComment."""

    key: str
    name: str
    user: str
    uid: int
    gid: int
    account: str
    script: str  # text with a shebang
    gpus_per_node: int
    gpu_type: str
    nodes: int = 1
    tasks: int = 1
    cpus_per_task: int = 1
    mem_mib: int | None = None
    time_limit_s: int | None = None
    partition: str | None = None
    work_dir: str = "/"
    std_out: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # the whole of it; nothing leaks in
    comment: str = ""
