"""slurmctld as last read, kept fresh by one thread so that a hung controller never blocks the cycle.

Adaptive: every `poll_ms` at rest, every `busy_poll_ms` while granted work is on its way, at once after our own
acts (`poke`). A view is only used for a plan when its read began after our last act (`view`).
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from bridge.clock import Clock
from bridge.errors import BridgeError
from bridge.slurm.model import SlurmJob, SlurmNode
from bridge.slurm.port import Slurm

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Reading:
    """One attempt to read. `begun` is monotonic seconds, `read_ms` wall-clock milliseconds."""

    ok: bool
    begun: float
    read_ms: int
    jobs: tuple[SlurmJob, ...] = ()
    nodes: tuple[SlurmNode, ...] = ()
    error: str = ""


class Poller:
    """Reads one slurmctld for ever. Thread safe."""

    def __init__(
        self, slurm: Slurm, clock: Clock, *, poll_ms: int, busy_poll_ms: int, wake: Callable[[], None]
    ) -> None:
        self._slurm = slurm
        self._clock = clock
        self._poll_s = poll_ms / 1000
        self._busy_poll_s = busy_poll_ms / 1000
        self._wake = wake
        self._poke = threading.Event()
        self._stop = threading.Event()
        self._fresh = threading.Condition()
        self._busy = False
        self._last = Reading(ok=False, begun=0.0, read_ms=0, error="not read yet")
        self._thread = threading.Thread(target=self._run, name="slurm-poller", daemon=True)

    def start(self) -> None:
        """Begin reading."""
        self._thread.start()

    def stop(self) -> None:
        """End after the read in progress."""
        self._stop.set()
        self._poke.set()
        self._thread.join(timeout=15)

    def poke(self) -> None:
        """Read again now."""
        self._poke.set()

    def set_busy(self, busy: bool) -> None:
        """Read faster while granted work is on its way."""
        self._busy = busy

    def view(self, not_before: float, wait_s: float) -> Reading:
        """Return the last reading, waiting up to `wait_s` for one that began after `not_before` (monotonic)."""
        deadline = time.monotonic() + wait_s
        with self._fresh:
            while self._last.begun < not_before:
                left = deadline - time.monotonic()
                if left <= 0:
                    last = self._last
                    return Reading(ok=False, begun=last.begun, read_ms=last.read_ms, error="no read since our last act")
                self._fresh.wait(left)
            return self._last

    def read_once(self) -> Reading:
        """Read jobs and nodes; a failure of either makes the whole reading unknown."""
        begun, read_ms = time.monotonic(), self._clock.now_ms()
        try:
            nodes = tuple(self._slurm.nodes())
            jobs = tuple(self._slurm.jobs())
        except BridgeError as error:
            return Reading(ok=False, begun=begun, read_ms=read_ms, error=str(error))
        return Reading(ok=True, begun=begun, read_ms=read_ms, jobs=jobs, nodes=nodes)

    def _run(self) -> None:
        while not self._stop.is_set():
            reading = self.read_once()
            with self._fresh:
                changed = _differs(reading, self._last)
                if reading.ok is not self._last.ok:
                    _LOG.info("slurm.read", ok=reading.ok, error=reading.error)
                self._last = reading
                self._fresh.notify_all()
            if changed:
                self._wake()
            self._poke.wait(self._busy_poll_s if self._busy else self._poll_s)
            self._poke.clear()


def _differs(new: Reading, old: Reading) -> bool:
    return (new.ok, new.jobs, new.nodes) != (old.ok, old.jobs, old.nodes)
