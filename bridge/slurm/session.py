"""A process of its own that speaks to slurmctld through pyslurm: `python -m bridge.slurm.session FD`.

libslurm ends its process when its configuration is bad, may crash, and has calls that cannot be interrupted. None of
that may reach the bridge, so it runs here; bridge.slurm.adapter starts, bounds and replaces this process. Requests come
over the socket FD as (verb, arguments), answers go back as (outcome, value).
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from bridge import wellknown
from bridge.errors import BridgeError, NotFoundError, OutcomeUnknownError, RejectedError, UnknownStateError
from bridge.slurm import comment, failures, parse, states, submission
from bridge.slurm.model import GraceSignal, JobSpec, JobState, Phase, SlurmJob, SlurmNode
from bridge.slurm.port import JobRef

_SIGKILL: Final = 9
_PR_SET_PDEATHSIG: Final = 1  # of linux/prctl.h


class Session:
    """The verbs of the port, each as slurmctld's calls. Not thread safe: one request at a time."""

    def __init__(self) -> None:
        import pyslurm
        import pyslurm.core.job.submission

        self._slurm = pyslurm
        # pyslurm copies every SLURM_* variable of its process into the job it submits, ours for one (J9). It looks
        # them up through this name; libslurm, which needs them, looks at the process.
        pyslurm.core.job.submission.pyenviron = {}

    def ping(self) -> None:
        """Return when slurmctld answers as primary."""
        answer = failures.reading(self._slurm.slurmctld.ping_primary)
        if not answer.is_responding:
            raise UnknownStateError("slurmctld does not answer as primary")

    def jobs(self) -> list[SlurmJob]:
        """Read all jobs."""
        return [parse.job(job.record) for job in failures.reading(self._slurm.Jobs.load).values()]

    def nodes(self) -> list[SlurmNode]:
        """Read all nodes."""
        return [parse.node(node.record) for node in failures.reading(self._slurm.Nodes.load).values()]

    def submit(self, spec: JobSpec) -> int:
        """Submit held, with an environment that is the job's own."""
        description = self._slurm.JobSubmitDescription(**submission.options(spec))
        return int(failures.writing(description.submit))

    def release(self, ref: JobRef, nodes: Sequence[str]) -> None:
        """Pin and release in one call. A job that runs already stays as it is."""
        job = self._mine(ref)
        phase = states.phase(job.state, job.flags)
        if phase is Phase.ENDED:
            raise RejectedError(f"job {job.job_id} has ended and cannot be released")
        if phase is Phase.RUNNING and ref.task is None:
            return
        self._change(ref, priority=parse.INFINITE, nodes=list(nodes), begin_time=int(time.time()))

    def hold(self, ref: JobRef) -> None:
        """Hold as root."""
        job = self._mine(ref)
        if states.phase(job.state, job.flags) is not Phase.ENDED:
            failures.ending(lambda: self._slurm.Job.change(_where(ref), priority=0))

    def requeue(self, ref: JobRef) -> None:
        """Put a running job back, held. What waits already is held; what ended is not brought to life again."""
        job = self._mine(ref)
        phase = states.phase(job.state, job.flags)
        if phase is Phase.ENDED:
            raise RejectedError(f"job {job.job_id} has ended and is not requeued")
        self._change(ref, priority=0, requeue=None if job.requeueable else 1)
        if phase is not Phase.WAITING:
            failures.writing(lambda: self._slurm.Job(ref.job_id).requeue(hold=True))

    def retry(self, ref: JobRef) -> None:
        """Bring a failed job back, held; slurmctld counts it as a restart of the same job."""
        job = self._mine(ref)
        if job.state is JobState.COMPLETED:
            raise RejectedError(f"job {job.job_id} has completed and is not done again")
        if states.phase(job.state, job.flags) is Phase.ENDED:
            failures.writing(lambda: self._slurm.Job(ref.job_id).requeue(hold=True))

    def signal(self, ref: JobRef, signal: GraceSignal) -> None:
        """Signal a running job, as slurmctld itself does when its time is almost up."""
        job = self._mine(ref)
        if states.phase(job.state, job.flags) is Phase.RUNNING:
            failures.ending(lambda: self._slurm.Job.kill(_address(ref), signal.number, batch=signal.batch))

    def cancel(self, ref: JobRef) -> None:
        """Cancel. slurmctld itself sends TERM, waits KillWait and sends KILL; a pending job just ends."""
        job = self._mine(ref)
        if states.phase(job.state, job.flags) is Phase.ENDED and ref.task is None:
            return
        failures.ending(lambda: self._slurm.Job.kill(_address(ref), _SIGKILL))

    def annotate(self, ref: JobRef, text: str) -> None:
        """Write the text behind the key, on the record (of an array: on what is still together)."""
        job = self._mine(ref)
        if job.comment_text != text:
            self._change(JobRef(ref.job_id, ref.key), admin_comment=comment.render(ref.key, text, job.signal))

    def drain(self, node: str, reason: str) -> None:
        """Drain, unless somebody else did."""
        if not reason.startswith(wellknown.DRAIN_REASON_PREFIX):
            raise RejectedError(f"drain reason {reason!r} must start with {wellknown.DRAIN_REASON_PREFIX!r}")
        seen = self._node(node)
        if _foreign(seen):
            return
        if "DRAIN" not in seen.flags or seen.reason != reason:
            self._update_node(node, state="DRAIN", reason=reason)

    def undrain(self, node: str) -> None:
        """Lift a drain of ours."""
        seen = self._node(node)
        if "DRAIN" not in seen.flags:
            return
        if not seen.drained_by_bridge:
            told = f"{seen.reason!r} by {seen.reason_user or 'somebody'}"
            raise RejectedError(f"node {node} was drained with the reason {told}: only they lift it")
        self._update_node(node, state="UNDRAIN")

    def forget(self, node: str) -> None:
        """Delete the record of a dynamic node."""
        failures.writing(self._slurm.Node(node).delete)

    def reconfigure(self) -> None:
        """Make slurmctld read its configuration."""
        failures.writing(self._slurm.slurmctld.reconfigure)

    def _mine(self, ref: JobRef) -> SlurmJob:
        """Return the record, right before a write: the JobId may be a stranger's by now (J12)."""
        job = parse.job(failures.reading(lambda: self._slurm.Job.load(ref.job_id)).record)
        if job.key != ref.key:
            raise NotFoundError(f"job {ref.job_id} is another job now: its key is {job.key!r}, not {ref.key!r}")
        if states.phase(job.state, job.flags) is Phase.UNKNOWN:
            raise UnknownStateError(f"job {ref.job_id} is in a state that is not known: {job.state_reason}")
        return job

    def _change(self, ref: JobRef, **changes: Any) -> None:
        failures.writing(lambda: self._slurm.Job.change(_where(ref), **changes))

    def _node(self, name: str) -> SlurmNode:
        """Return one of all: asked for one alone, pyslurm tells "there is none" from "no answer" in words only."""
        for node in self.nodes():
            if node.name == name:
                return node
        raise NotFoundError(f"slurmctld knows no node {name}")

    def _update_node(self, name: str, **changes: str) -> None:
        failures.writing(lambda: self._slurm.Node(name).modify(self._slurm.Node(**changes)))


def _address(ref: JobRef) -> str:
    return str(ref.job_id) if ref.task is None else f"{ref.job_id}_{ref.task}"


def _where(ref: JobRef) -> int | str:
    """Return what a change is addressed to: the record, or one task of it."""
    return ref.job_id if ref.task is None else _address(ref)


def _foreign(node: SlurmNode) -> bool:
    return "DRAIN" in node.flags and not node.drained_by_bridge


def serve(connection: Connection, session: Session) -> None:
    """Answer requests until the other end is gone."""
    while True:
        try:
            verb, arguments = connection.recv()
        except EOFError:
            return
        connection.send(answer(getattr(session, verb), arguments))


def answer(call: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """Return ("ok", value) or (name of the fault, its sentence)."""
    try:
        return "ok", call(*arguments)
    except BridgeError as fault:
        return type(fault).__name__, str(fault)


FAULTS: Final = {
    fault.__name__: fault for fault in (NotFoundError, RejectedError, UnknownStateError, OutcomeUnknownError)
}


def end_with_parent() -> None:
    """Let the kernel kill this process when the bridge is killed: a dead leader must not go on writing.

    (The kernel means the thread that started us. Where only that one ended, the adapter starts another process.)
    """
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_PDEATHSIG) failed")


if __name__ == "__main__":
    end_with_parent()
    # Slurm shortens long task lists unless told otherwise.
    os.environ["SLURM_BITSTR_LEN"] = "0"
    serve(Connection(int(sys.argv[1])), Session())
