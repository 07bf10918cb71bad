"""A hook around every write to Slurm, as the ledger and the gateway have their own: crash tests kill there."""

from collections.abc import Callable, Sequence
from typing import Final

from bridge.slurm.model import GraceSignal, JobSpec, SlurmJob, SlurmNode
from bridge.slurm.port import JobRef, Slurm

Fault = Callable[[str], None]

WRITES: Final = (
    "submit", "release", "hold", "requeue", "retry", "signal", "cancel", "annotate", "drain", "undrain", "forget",
)  # fmt: skip


def none(_site: str) -> None:
    """Do nothing: the hook of a production process."""


class WatchedSlurm:
    """A Slurm port that names each write to a hook before it is sent and after it was answered."""

    def __init__(self, inner: Slurm, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def ping(self) -> None:
        """Pass on."""
        self._inner.ping()

    def jobs(self) -> Sequence[SlurmJob]:
        """Pass on."""
        return self._inner.jobs()

    def nodes(self) -> Sequence[SlurmNode]:
        """Pass on."""
        return self._inner.nodes()

    def reconfigure(self) -> None:
        """Pass on."""
        self._inner.reconfigure()

    def submit(self, spec: JobSpec) -> int:
        """Name, pass on, name."""
        self._fault("slurm.submit.before")
        job_id = self._inner.submit(spec)
        self._fault("slurm.submit.after")
        return job_id

    def release(self, job: JobRef, nodes: Sequence[str]) -> None:
        """Name, pass on, name."""
        self._named("release", lambda: self._inner.release(job, nodes))

    def hold(self, job: JobRef) -> None:
        """Name, pass on, name."""
        self._named("hold", lambda: self._inner.hold(job))

    def requeue(self, job: JobRef) -> None:
        """Name, pass on, name."""
        self._named("requeue", lambda: self._inner.requeue(job))

    def retry(self, job: JobRef) -> None:
        """Name, pass on, name."""
        self._named("retry", lambda: self._inner.retry(job))

    def signal(self, job: JobRef, signal: GraceSignal) -> None:
        """Name, pass on, name."""
        self._named("signal", lambda: self._inner.signal(job, signal))

    def cancel(self, job: JobRef) -> None:
        """Name, pass on, name."""
        self._named("cancel", lambda: self._inner.cancel(job))

    def annotate(self, job: JobRef, text: str) -> None:
        """Name, pass on, name."""
        self._named("annotate", lambda: self._inner.annotate(job, text))

    def drain(self, node: str, reason: str) -> None:
        """Name, pass on, name."""
        self._named("drain", lambda: self._inner.drain(node, reason))

    def undrain(self, node: str) -> None:
        """Name, pass on, name."""
        self._named("undrain", lambda: self._inner.undrain(node))

    def forget(self, node: str) -> None:
        """Name, pass on, name."""
        self._named("forget", lambda: self._inner.forget(node))

    def _named(self, verb: str, call: Callable[[], None]) -> None:
        self._fault(f"slurm.{verb}.before")
        call()
        self._fault(f"slurm.{verb}.after")
