"""The port to one Slurm cluster: what the bridge asks of slurmctld, in its own verbs.

Every verb raises UnknownStateError when slurmctld could not be asked, OutcomeUnknownError when a write was
sent and its answer lost, RejectedError with slurmctld's own sentence when it refused, NotFoundError when the
job or node positively does not exist. Writes are idempotent unless said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge.slurm.model import GraceSignal, JobSpec, SlurmJob, SlurmNode


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job to act on. `task` addresses one task of an unsplit array (acting on it splits it off).

    `key` is checked against the record's AdminComment right before a write: a JobId may have been given to a
    stranger's job after a crash of slurmctld; a mismatch raises NotFoundError and nothing is sent.
    """

    job_id: int
    key: str
    task: int | None = None


class Slurm(Protocol):
    """Verbs towards one slurmctld. Thread safe; each call is bounded in time."""

    def ping(self) -> None:
        """Return when slurmctld answers as primary."""
        ...

    def jobs(self) -> Sequence[SlurmJob]:
        """All job records that slurmctld still keeps (ended ones too, for MinJobAge)."""
        ...

    def nodes(self) -> Sequence[SlurmNode]:
        """All node records."""
        ...

    def submit(self, spec: JobSpec) -> int:
        """Submit held, return the JobId. NOT idempotent: look for the key first and after a lost answer."""
        ...

    def release(self, job: JobRef, nodes: Sequence[str]) -> None:
        """Pin a held job to exactly these Slurm nodes and let it start (BeginTime now)."""
        ...

    def hold(self, job: JobRef) -> None:
        """Hold as root (JobHeldAdmin); on a running job it takes effect at its requeue."""
        ...

    def requeue(self, job: JobRef) -> None:
        """Requeue a running job; it lands held."""
        ...

    def retry(self, job: JobRef) -> None:
        """Put a job that ended badly back into the queue, held, as its next attempt; one that waits or runs stays.

        RejectedError for one that completed: finished work is not done again.
        """
        ...

    def signal(self, job: JobRef, signal: GraceSignal) -> None:
        """Tell a running job's steps, or its batch shell, to save its work. One that does not run: nothing to tell.

        NOT idempotent: a job that is told twice gets the signal twice.
        """
        ...

    def cancel(self, job: JobRef) -> None:
        """Cancel: pending without a signal, running with TERM then KILL. Already ended is fine."""
        ...

    def annotate(self, job: JobRef, text: str) -> None:
        """Write `sb:<key> | <text>` to AdminComment. Same text: no RPC."""
        ...

    def drain(self, node: str, reason: str) -> None:
        """Drain with a reason that starts with the bridge's prefix. A foreign reason is never overwritten."""
        ...

    def undrain(self, node: str) -> None:
        """Lift a drain whose reason is ours; a foreign one is left (RejectedError). DOWN does not become IDLE."""
        ...

    def forget(self, node: str) -> None:
        """Delete a dynamic node's record (its worker is gone). Refused by slurmctld while jobs refer to it."""
        ...

    def reconfigure(self) -> None:
        """Make slurmctld read its configuration again."""
        ...
