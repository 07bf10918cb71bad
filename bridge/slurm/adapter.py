"""The port over a real slurmctld, through pyslurm in processes of its own (bridge.slurm.session).

One process reads, one writes: a slow read never delays a release. Every call is bounded: libslurm gives up by itself
after MessageTimeout in most cases; where it does not (a stopped slurmctld keeps a connection open), the process is
killed after our bound and the next call starts another. A read that ends so is UnknownStateError; a write is
OutcomeUnknownError, for it may have been carried out.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bridge.errors import OutcomeUnknownError, UnknownStateError
from bridge.slurm import session
from bridge.slurm.model import GraceSignal, JobSpec, SlurmJob, SlurmNode
from bridge.slurm.port import JobRef
from bridge.slurm.signer import Signer

SESSION: Final = ("-m", "bridge.slurm.session")
START_BOUND_S: Final = 20.0
"""A new process imports pyslurm, which reads the configuration, before it answers its first request."""

_LAST_WORDS: Final = 2_000
_MOST_WORDS: Final = 100_000


class PyslurmAdapter:
    """Slurm behind the port. `conf` is a slurm.conf with `slurm.key` beside it. Thread safe."""

    def __init__(self, conf: Path, *, read_bound_s: float = 12.0, write_bound_s: float = 12.0) -> None:
        self._signer = Signer(conf)
        self._reader = _Process(conf, self._signer, read_bound_s)
        self._writer = _Process(conf, self._signer, write_bound_s)

    def close(self) -> None:
        """End all processes."""
        self._reader.close()
        self._writer.close()
        self._signer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ping(self) -> None:
        """Return when slurmctld answers as primary."""
        self._read("ping")

    def jobs(self) -> Sequence[SlurmJob]:
        """Read all job records."""
        found: Sequence[SlurmJob] = self._read("jobs")
        return found

    def nodes(self) -> Sequence[SlurmNode]:
        """Read all node records."""
        found: Sequence[SlurmNode] = self._read("nodes")
        return found

    def submit(self, spec: JobSpec) -> int:
        """Submit held; NOT idempotent."""
        return int(self._write("submit", spec))

    def release(self, job: JobRef, nodes: Sequence[str]) -> None:
        """Pin to these nodes and let it start."""
        self._write("release", job, tuple(nodes))

    def hold(self, job: JobRef) -> None:
        """Hold as root."""
        self._write("hold", job)

    def requeue(self, job: JobRef) -> None:
        """Put a running job back, held."""
        self._write("requeue", job)

    def retry(self, job: JobRef) -> None:
        """Put a failed job back, held."""
        self._write("retry", job)

    def signal(self, job: JobRef, signal: GraceSignal) -> None:
        """Send the signal that a job asked for."""
        self._write("signal", job, signal)

    def cancel(self, job: JobRef) -> None:
        """Cancel."""
        self._write("cancel", job)

    def annotate(self, job: JobRef, text: str) -> None:
        """Write the text for people."""
        self._write("annotate", job, text)

    def drain(self, node: str, reason: str) -> None:
        """Drain with a reason of ours."""
        self._write("drain", node, reason)

    def undrain(self, node: str) -> None:
        """Lift a drain of ours."""
        self._write("undrain", node)

    def forget(self, node: str) -> None:
        """Delete a dynamic node's record."""
        self._write("forget", node)

    def reconfigure(self) -> None:
        """Make slurmctld read its configuration again."""
        self._write("reconfigure")

    def _read(self, verb: str, *arguments: Any) -> Any:
        return self._reader.ask(verb, arguments, UnknownStateError)

    def _write(self, verb: str, *arguments: Any) -> Any:
        return self._writer.ask(verb, arguments, OutcomeUnknownError)


class _Process:
    """One session process, started when it is needed and replaced when it is lost."""

    def __init__(self, conf: Path, signer: Signer, bound_s: float) -> None:
        self._conf = conf
        self._signer = signer
        self._bound_s = bound_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._words = tempfile.TemporaryFile("a+b")  # noqa: SIM115 -- lives as long as this object

    def ask(self, verb: str, arguments: tuple[Any, ...], lost: type[Exception]) -> Any:
        """Send a request and return its value; `lost` is raised when no answer came after it was sent."""
        if not self._lock.acquire(timeout=self._bound_s):
            raise UnknownStateError(f"slurmctld could not be asked: {verb} waited {self._bound_s} s for another call")
        try:
            connection, bound_s = self._connected()
            outcome, value = self._answered(connection, verb, arguments, bound_s, lost)
        finally:
            self._lock.release()
        if outcome == "ok":
            return value
        raise session.FAULTS[outcome](value)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()
            self._words.close()

    def _answered(
        self, connection: Connection, verb: str, arguments: tuple[Any, ...], bound_s: float, lost: type[Exception]
    ) -> tuple[str, Any]:
        try:
            connection.send((verb, arguments))
        except OSError as problem:
            words = self._end()
            raise UnknownStateError(f"slurmctld could not be asked: {words}") from problem
        try:
            if not connection.poll(bound_s):
                self._end()
                raise lost(f"slurmctld did not answer {verb} within {bound_s:g} s")
            answer: tuple[str, Any] = connection.recv()
        except (EOFError, OSError) as problem:
            words = self._end()
            raise lost(f"libslurm ended during {verb}: {words}") from problem
        return answer

    def _connected(self) -> tuple[Connection, float]:
        """Return the connection and how long the next answer may take."""
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._connection is not None:
            self._signer.socket()
            if os.fstat(self._words.fileno()).st_size > _MOST_WORDS:
                self._words.truncate(0)  # libslurm complains once per call while slurmctld is away
            return self._connection, self._bound_s
        if not self._conf.is_file():
            raise UnknownStateError(f"slurmctld could not be asked: there is no {self._conf} yet")
        sack = self._signer.socket()
        ours, theirs = socket.socketpair()
        with theirs:
            self._words.truncate(0)
            self._child = subprocess.Popen(
                [sys.executable, *SESSION, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=subprocess.STDOUT,
                env=_environment(self._conf, sack),
            )
        self._connection = Connection(ours.detach())
        return self._connection, START_BOUND_S + self._bound_s

    def _end(self) -> str:
        """Kill the process; return its last words."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        if self._connection is not None:
            self._connection.close()
        self._child = self._connection = None
        self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, self._words.tell() - _LAST_WORDS))
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _environment(conf: Path, sack: Path) -> dict[str, str]:
    """Return a process environment without anything of Slurm but this configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
    return {**kept, "SLURM_CONF": str(conf), "SLURM_SACK_SOCKET": str(sack), "PYTHONUNBUFFERED": "1"}
