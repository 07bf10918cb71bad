"""Decayed use, for fair share: what a team held counts less the longer ago it was. Pure.

A team that holds n devices during [a, b) has, at a moment t >= b, a decayed average of

    n * (2^-((t-b)/h) - 2^-((t-a)/h))    devices,    h = the half-life,

the integral of n over its past, each moment weighed by ln2/h * 2^-(age/h) (the weights of all the past sum to 1, so
whoever held n devices for ever has an average of n). Being an integral, it is the same in one step or in a thousand,
and a span that was learnt of late, after an outage of the bridge, counts as if it had been seen when it ran.
"""

import math
import re
from collections.abc import Iterable
from typing import Final

from bridge.admission.model import History
from bridge.errors import InvalidInputError
from bridge.ledger.port import Carried, Held
from bridge.quota.model import FlavorName, TeamName

DEFAULT_HALF_LIFE: Final = "7d"
SHORTEST_MS: Final = 60_000
LONGEST_MS: Final = 365 * 86_400_000

_UNITS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LN2: Final = math.log(2.0)


def half_life(text: str) -> int:
    """Read "7d", "36h" or "90m" as milliseconds; raises InvalidInputError outside one minute .. 365 days."""
    read = re.fullmatch(r"\s*([0-9]{1,9})\s*([mhd])\s*", text)
    ms = int(read[1]) * _UNITS[read[2]] if read else 0
    if not SHORTEST_MS <= ms <= LONGEST_MS:
        raise InvalidInputError(
            f"the half-life of the fair share is {text!r}: give a whole number of days, hours or minutes from 1m to "
            f"365d, for example {DEFAULT_HALF_LIFE!r}"
        )
    return ms


def decayed(spans: Iterable[Held], now_ms: int, half_life_ms: int) -> History:
    """Return the decayed average devices at `now_ms` of each team and flavor; what lies after `now_ms` is left out."""
    sums: dict[tuple[TeamName, FlavorName], list[float]] = {}
    for span in spans:
        share = weight(span.from_ms, span.to_ms, now_ms=now_ms, half_life_ms=half_life_ms)
        if share > 0.0:
            sums.setdefault((span.team, span.flavor), []).append(span.gpus * share)
    return {key: math.fsum(shares) for key, shares in sorted(sums.items())}


def weight(from_ms: int, to_ms: int | None, *, now_ms: int, half_life_ms: int) -> float:
    """Return how much one device during [from_ms, to_ms) counts at `now_ms`, 0..1; None: it is held still.

    Written with expm1, so that the shortest span counts what it is and is not lost in the difference of two numbers.
    """
    end_ms = now_ms if to_ms is None else min(to_ms, now_ms)
    length_ms = end_ms - from_ms
    if length_ms <= 0:
        return 0.0
    return math.exp(-_LN2 * (now_ms - end_ms) / half_life_ms) * -math.expm1(-_LN2 * length_ms / half_life_ms)


class Keeper:
    """Decayed use kept as spans end: an ended span is folded into one number per team and flavor, and forgotten.

    Invariant: `history(t, still)` equals `decayed(every span folded so far and still, t)` up to rounding (below 1e-9
    of the value), for every t not before the latest end that was folded. A span may be folded long after it ended.
    """

    def __init__(self, half_life_ms: int) -> None:
        self._half_life_ms = half_life_ms
        self._sums: dict[tuple[TeamName, FlavorName], tuple[float, int]] = {}  # a value, and when it was that

    def fold(self, ended: Iterable[Held]) -> None:
        """Take spans that have ended, each once; one that still runs raises ValueError."""
        for span in ended:
            if span.to_ms is None:
                raise ValueError(f"a span of {span.team} since {span.from_ms} has not ended: it cannot be folded")
            self._add(span.team, span.flavor, span.gpus, span.from_ms, span.to_ms)

    def carry(self, archived: Iterable[Carried]) -> None:
        """Take sums of archived spans, each once: as if each were held evenly over its stretch of a day."""
        for row in archived:
            self._add(row.team, row.flavor, row.gpu_ms / (row.to_ms - row.from_ms), row.from_ms, row.to_ms)

    def history(self, now_ms: int, still: Iterable[Held] = ()) -> History:
        """Return the decayed average devices at `now_ms`, with the spans that have not ended (or were not folded)."""
        sums = dict(decayed(still, now_ms, self._half_life_ms))
        for key, (value, at_ms) in self._sums.items():
            sums[key] = sums.get(key, 0.0) + value * self._fade(now_ms - at_ms)
        return {key: value for key, value in sorted(sums.items()) if value > 0.0}

    def _add(self, team: TeamName, flavor: FlavorName, gpus: float, from_ms: int, to_ms: int) -> None:
        """Bring the sum to the later of the two ends, never back, so that no factor is above 1."""
        value, at_ms = self._sums.get((team, flavor), (0.0, to_ms))
        now_ms = max(at_ms, to_ms)
        share = weight(from_ms, to_ms, now_ms=now_ms, half_life_ms=self._half_life_ms)
        self._sums[team, flavor] = (value * self._fade(now_ms - at_ms) + gpus * share, now_ms)

    def _fade(self, passed_ms: int) -> float:
        return math.exp(-_LN2 * passed_ms / self._half_life_ms)
