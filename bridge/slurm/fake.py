"""Slurm in memory behind the port, with what the bridge relies on: keys, holds, pins, phases, reasons, faults.

What people, jobs and time do to the cluster is bridge.slurm.fake_cluster, which this adds the port's verbs to.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from bridge import wellknown
from bridge.clock import Clock
from bridge.errors import BridgeError, NotFoundError, RejectedError, UnknownStateError
from bridge.slurm import states
from bridge.slurm.fake_cluster import RELEASED, ROOT, FakeCluster
from bridge.slurm.model import GraceSignal, JobSpec, JobState, Phase, SlurmJob, SlurmNode, Tres
from bridge.slurm.port import JobRef

_HELD_BY_ROOT: Final = {"held": True, "admin_held": True, "priority": 0, "state_reason": "JobHeldAdmin"}

_Result = TypeVar("_Result")


class FakeSlurm(FakeCluster):
    """One slurmctld that may be away, or fail on demand."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._away: BridgeError | None = None
        self._faults: list[tuple[str, bool, BridgeError]] = []
        self.reconfigured = 0
        self.signals: list[tuple[int, GraceSignal]] = []

    # --- the port ----------------------------------------------------------------------------------------------
    def ping(self) -> None:
        """Answer, unless away."""
        self._asked("ping")

    def jobs(self) -> Sequence[SlurmJob]:
        """All records."""
        with self._lock:
            self._asked("jobs")
            return list(self._jobs.values())

    def nodes(self) -> Sequence[SlurmNode]:
        """All records, with what jobs hold."""
        with self._lock:
            self._asked("nodes")
            return [self._with_load(node) for node in self._nodes.values()]

    def submit(self, spec: JobSpec) -> int:
        """Submit held."""
        gpus = {spec.gpu_type: spec.gpus_per_node * spec.nodes} if spec.gpus_per_node else {}
        return self._write("submit", lambda: self._new_job(spec, gpus).job_id)

    def release(self, job: JobRef, nodes: Sequence[str]) -> None:
        """Pin and release; one task of an unsplit array is split off by it."""

        def act() -> None:
            record = self._mine(job)
            phase = states.phase(record.state, record.flags)
            if phase is Phase.ENDED:
                raise RejectedError(f"job {record.job_id} has ended and cannot be released")
            if phase is Phase.RUNNING:
                return
            unknown = [name for name in nodes if name not in self._nodes]
            if unknown:
                raise RejectedError("Requested node configuration is not available")
            self._put(
                self._addressed(job),
                held=False,
                admin_held=False,
                priority=RELEASED,
                requested_nodes=tuple(nodes),
                eligible_ms=None,
                state_reason="None",
            )

        self._write("release", act)

    def hold(self, job: JobRef) -> None:
        """Hold as root; a running job runs on."""

        def act() -> None:
            if states.phase(self._mine(job).state, self._mine(job).flags) is not Phase.ENDED:
                self._put(self._addressed(job), **_HELD_BY_ROOT)

        self._write("hold", act)

    def requeue(self, job: JobRef) -> None:
        """Put back, held; while its processes end it is COMPLETING (until `free`)."""

        def act() -> None:
            record = self._mine(job)
            phase = states.phase(record.state, record.flags)
            if phase is Phase.ENDED:
                raise RejectedError(f"job {record.job_id} has ended and is not requeued")
            if phase is Phase.WAITING:
                self._put(self._addressed(job), **_HELD_BY_ROOT)
            else:
                self._requeue(record)

        self._write("requeue", act)

    def retry(self, job: JobRef) -> None:
        """Put a failed job back, held."""

        def act() -> None:
            record = self._mine(job)
            if record.state is JobState.COMPLETED:
                raise RejectedError(f"job {record.job_id} has completed and is not done again")
            if states.phase(record.state, record.flags) is Phase.ENDED:
                self._requeue(record)
                self._put(record.job_id, flags=frozenset(), nodes=(), allocated=Tres())

        self._write("retry", act)

    def signal(self, job: JobRef, signal: GraceSignal) -> None:
        """Remember what a running job was told."""

        def act() -> None:
            record = self._mine(job)
            if states.phase(record.state, record.flags) is Phase.RUNNING:
                self.signals.append((record.job_id, signal))

        self._write("signal", act)

    def cancel(self, job: JobRef) -> None:
        """End: a pending job at once, a running one after COMPLETING (until `free`)."""

        def act() -> None:
            if states.phase(self._mine(job).state, self._mine(job).flags) is not Phase.ENDED:
                self._end(self._addressed(job), JobState.CANCELLED, exit_signal=15)

        self._write("cancel", act)

    def annotate(self, job: JobRef, text: str) -> None:
        """Write the text for people."""
        self._write("annotate", lambda: self._put(self._mine(job).job_id, comment_text=text))

    def drain(self, node: str, reason: str) -> None:
        """Drain, unless somebody else did."""
        if not reason.startswith(wellknown.DRAIN_REASON_PREFIX):
            raise RejectedError(f"drain reason {reason!r} must start with {wellknown.DRAIN_REASON_PREFIX!r}")

        def act() -> None:
            seen = self._node(node)
            if "DRAIN" not in seen.flags or seen.drained_by_bridge:
                self.drain_as(node, reason, ROOT)

        self._write("drain", act)

    def undrain(self, node: str) -> None:
        """Lift a drain of ours."""

        def act() -> None:
            seen = self._node(node)
            if "DRAIN" not in seen.flags:
                return
            if not seen.drained_by_bridge:
                told = f"{seen.reason!r} by {seen.reason_user or 'somebody'}"
                raise RejectedError(f"node {node} was drained with the reason {told}: only they lift it")
            self.resume_as_admin(node)

        self._write("undrain", act)

    def forget(self, node: str) -> None:
        """Delete a record that no job refers to."""

        def act() -> None:
            if self._with_load(self._node(node)).busy:
                raise RejectedError(f"node {node} is in use")
            del self._nodes[node]

        self._write("forget", act)

    def reconfigure(self) -> None:
        """Count."""

        def act() -> None:
            self.reconfigured += 1

        self._write("reconfigure", act)

    # --- outages ---------------------------------------------------------------------------------------------
    def go_away(self, fault: BridgeError | None = None) -> None:
        """Let every call fail until `come_back`."""
        self._away = fault or UnknownStateError("slurmctld could not be asked: it is away")

    def come_back(self) -> None:
        """Answer again."""
        self._away = None

    def fail_next(self, verb: str, fault: BridgeError, *, after: bool = False) -> None:
        """Let the next call of a verb fail, before it does anything or after it did all."""
        self._faults.append((verb, after, fault))

    # --- inside ----------------------------------------------------------------------------------------------
    def _asked(self, verb: str) -> None:
        if self._away is not None:
            raise self._away
        self._fail(verb, after=False)

    def _fail(self, verb: str, *, after: bool) -> None:
        for index, (wanted, when, fault) in enumerate(self._faults):
            if (wanted, when) == (verb, after):
                del self._faults[index]
                raise fault

    def _write(self, verb: str, act: Callable[[], _Result]) -> _Result:
        with self._lock:
            self._asked(verb)
            result = act()
            self._fail(verb, after=True)
            return result

    def _mine(self, ref: JobRef) -> SlurmJob:
        record = self._jobs.get(ref.job_id)
        if record is None:
            raise NotFoundError(f"job {ref.job_id}: Invalid job id specified")
        if record.key != ref.key:
            raise NotFoundError(f"job {ref.job_id} is another job now: its key is {record.key!r}, not {ref.key!r}")
        return record

    def _addressed(self, ref: JobRef) -> int:
        """Return the record that a reference acts on; one task of an unsplit array gets a record of its own."""
        record = self._jobs[ref.job_id]
        if ref.task is None:
            return record.job_id
        for job in self._jobs.values():
            if job.array_job_id == record.array_job_id and job.array_task_id == ref.task:
                return job.job_id
        if ref.task not in record.array_tasks:
            raise NotFoundError(f"job {ref.job_id}_{ref.task}: Invalid job id specified")
        rest = tuple(task for task in record.array_tasks if task != ref.task)
        if not rest:  # the last one keeps the array's own record
            self._put(record.job_id, array_tasks=(), array_task_id=ref.task)
            return record.job_id
        split = replace(record, job_id=self._next_id, array_tasks=(), array_task_id=ref.task)
        self._jobs[split.job_id] = split
        self._next_id += 1
        self._put(record.job_id, array_tasks=rest)
        return split.job_id
