"""The exact integral of what ran. Pure.

Each span is clipped to the window and counted once, so adjoining windows add up to the whole: in one step or a
thousand, the sum is the same integer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.ledger.port import Usage
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import System


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs held by a team in the running state, [from_ms, to_ms); None: still running."""

    team: TeamName
    system: System
    flavor: FlavorName
    gpus: int
    from_ms: int
    to_ms: int | None


def usage(held: Iterable[Held], *, from_ms: int, to_ms: int) -> tuple[Usage, ...]:
    """Return GPU-milliseconds within [from_ms, to_ms) per team, system and flavor; what is zero is left out."""
    sums: dict[tuple[TeamName, System, FlavorName], int] = {}
    for span in held:
        end_ms = to_ms if span.to_ms is None else min(span.to_ms, to_ms)
        gpu_ms = span.gpus * (end_ms - max(span.from_ms, from_ms))
        if gpu_ms > 0:
            key = (span.team, span.system, span.flavor)
            sums[key] = sums.get(key, 0) + gpu_ms
    return tuple(Usage(*key, gpu_ms) for key, gpu_ms in sorted(sums.items()))
