"""Use over time: the exact mean of what was held in each of equal bins. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bridge.simulate.model import Job
from bridge.simulate.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Bins:
    """`count` equal bins of [from_ms, to_ms)."""

    from_ms: int
    to_ms: int
    count: int

    @property
    def width_ms(self) -> float:
        """Length of a bin."""
        return max(1, self.to_ms - self.from_ms) / self.count

    def starts_ms(self) -> list[float]:
        """Return where each bin begins."""
        return [self.from_ms + index * self.width_ms for index in range(self.count)]

    def add(self, sums: list[float], gpus: int, from_ms: float, to_ms: float) -> None:
        """Add what is held in [from_ms, to_ms) to the bins that it touches, as means."""
        width = self.width_ms
        first = max(0, int((from_ms - self.from_ms) // width))
        last = min(self.count - 1, int((to_ms - self.from_ms) // width))
        for index in range(first, last + 1):
            begin = self.from_ms + index * width
            overlap = min(to_ms, begin + width) - max(from_ms, begin)
            if overlap > 0:
                sums[index] += gpus * overlap / width


def held(outcome: Outcome, bins: Bins, key: Callable[[Job], str]) -> dict[str, list[float]]:
    """Return the devices held in each bin, by a property of the job."""
    sums: dict[str, list[float]] = {}
    for each in outcome.stretches:
        job, workload = outcome.case.work[each.job]
        series = sums.setdefault(key(job), [0.0] * bins.count)
        bins.add(series, workload.gpus, each.from_ms, each.to_ms)
    return sums


def lost(outcome: Outcome, bins: Bins) -> list[float]:
    """Return the devices in each bin that did what had to be done again."""
    sums = [0.0] * bins.count
    for each in outcome.stretches:
        if each.preempted:
            bins.add(sums, outcome.case.work[each.job][1].gpus, each.from_ms + each.kept_ms, each.to_ms)
    return sums


def waiting(outcome: Outcome, bins: Bins) -> list[float]:
    """Return the devices asked for by waiting jobs in each bin: from submission, or from a requeue, to the start."""
    sums = [0.0] * bins.count
    since: dict[int, int] = {}
    for each in sorted(outcome.stretches, key=lambda stretch: (stretch.from_ms, stretch.job)):
        job, workload = outcome.case.work[each.job]
        bins.add(sums, workload.gpus, since.get(each.job, job.submitted_ms), each.from_ms)
        since[each.job] = each.to_ms
    return sums


def largest(sums: dict[str, list[float]], most: int, rest: str) -> dict[str, list[float]]:
    """Return the `most` largest series, largest first, and the sum of the others under the name `rest`."""
    order = sorted(sums, key=lambda name: (-sum(sums[name]), name))
    found = {name: sums[name] for name in order[:most]}
    others: Iterable[list[float]] = [sums[name] for name in order[most:]]
    if order[most:]:
        found[rest] = [sum(values) for values in zip(*others, strict=True)]
    return found
