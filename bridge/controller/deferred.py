"""A Slurm port that connects when its cluster's files exist, and again when they changed. Until then: unknown."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from bridge.errors import UnknownStateError
from bridge.slurm.model import GraceSignal, JobSpec, SlurmJob, SlurmNode
from bridge.slurm.port import JobRef, Slurm

Connect = Callable[[Path], Slurm]


class DeferredSlurm:
    """Passes every verb on to the connected adapter; raises UnknownStateError before there is one."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._inner: Slurm | None = None
        self._conf_dir: Path | None = None

    def use(self, conf_dir: Path) -> None:
        """Connect with the slurm.conf of this folder; the same folder again does nothing."""
        with self._lock:
            if self._conf_dir != conf_dir:
                self._inner = self._connect(conf_dir)
                self._conf_dir = conf_dir

    def _slurm(self) -> Slurm:
        if self._inner is None:
            raise UnknownStateError("no SlurmCluster exists yet; create one, or wait until its objects are applied")
        return self._inner

    def ping(self) -> None:
        """Pass on."""
        self._slurm().ping()

    def jobs(self) -> Sequence[SlurmJob]:
        """Pass on."""
        return self._slurm().jobs()

    def nodes(self) -> Sequence[SlurmNode]:
        """Pass on."""
        return self._slurm().nodes()

    def submit(self, spec: JobSpec) -> int:
        """Pass on."""
        return self._slurm().submit(spec)

    def release(self, job: JobRef, nodes: Sequence[str]) -> None:
        """Pass on."""
        self._slurm().release(job, nodes)

    def hold(self, job: JobRef) -> None:
        """Pass on."""
        self._slurm().hold(job)

    def requeue(self, job: JobRef) -> None:
        """Pass on."""
        self._slurm().requeue(job)

    def retry(self, job: JobRef) -> None:
        """Pass on."""
        self._slurm().retry(job)

    def signal(self, job: JobRef, signal: GraceSignal) -> None:
        """Pass on."""
        self._slurm().signal(job, signal)

    def cancel(self, job: JobRef) -> None:
        """Pass on."""
        self._slurm().cancel(job)

    def annotate(self, job: JobRef, text: str) -> None:
        """Pass on."""
        self._slurm().annotate(job, text)

    def drain(self, node: str, reason: str) -> None:
        """Pass on."""
        self._slurm().drain(node, reason)

    def undrain(self, node: str) -> None:
        """Pass on."""
        self._slurm().undrain(node)

    def forget(self, node: str) -> None:
        """Pass on."""
        self._slurm().forget(node)

    def reconfigure(self) -> None:
        """Pass on."""
        self._slurm().reconfigure()
