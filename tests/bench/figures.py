"""What the planner bench measures with: a stopwatch per cycle, quantiles, this process's peak memory, the disk.

Beside the time that passed, which is what the aims are about, each figure has the processor time of this process:
where other work shares the machine, only the latter can be compared.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

KIB_PER_MB = 1_000_000 / 1024


@dataclass(slots=True)
class Cycles:
    """The time of every cycle, in milliseconds, and what of it the processor worked for this process."""

    taken_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time one cycle."""
        begun, cpu = time.perf_counter(), time.process_time()
        yield
        self.taken_ms.append((time.perf_counter() - begun) * 1000)
        self.cpu_ms.append((time.process_time() - cpu) * 1000)

    @property
    def total_s(self) -> float:
        """Seconds of all cycles together."""
        return sum(self.taken_ms) / 1000

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all cycles together."""
        return sum(self.cpu_ms) / 1000

    def summary(self) -> dict[str, float]:
        """Return how many, p50, p99 and the longest."""
        return {
            "cycles": len(self.taken_ms),
            "p50_ms": round(quantile(self.taken_ms, 0.5), 3),
            "p99_ms": round(quantile(self.taken_ms, 0.99), 3),
            "max_ms": round(max(self.taken_ms), 3),
            "cpu_p50_ms": round(quantile(self.cpu_ms, 0.5), 3),
            "cpu_p99_ms": round(quantile(self.cpu_ms, 0.99), 3),
        }


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 1).__int__() - 1)]


def peak_mb() -> float:
    """Return the most memory that this process has held since it began, in 10^6 bytes (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / KIB_PER_MB, 1)
    raise OSError("/proc/self/status has no VmHWM; the bench needs Linux")


def sync_ms(folder: Path, times: int = 50) -> float:
    """Return the median time in which the disk of a folder takes 4 KiB for good."""
    taken = Cycles()
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(times):
            file.write(b"\0" * 4096)
            file.flush()
            with taken.timed():
                os.fdatasync(file.fileno())
    return round(quantile(taken.taken_ms, 0.5), 3)
