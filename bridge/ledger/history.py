"""The exact integral of what ran. Pure.

Each span is clipped to the window and counted once, so adjoining windows add up to the whole: in one step or a
thousand, the sum is the same integer.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from bridge.errors import InvalidInputError
from bridge.ledger.port import Carried, Held, Usage
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import System

MAX_PARTS: Final = 1_200
"""The most parts that one window is cut into: three years of days, ninety of months."""

_DAY_MS: Final = 86_400_000

_Key = tuple[int, TeamName, System, FlavorName, str]


def usage(
    held: Iterable[Held], *, from_ms: int, to_ms: int, cuts: Sequence[int] = (), carried: Iterable[Carried] = ()
) -> tuple[Usage, ...]:
    """Return GPU-milliseconds within [from_ms, to_ms) per team, system, flavor and user; what is zero is left out.

    `cuts` are moments inside the window: each part between two of them is told apart (`Usage.from_ms`). A window or a
    cut through a carried sum raises InvalidInputError: its exact share on either side is in the archive only.
    """
    begins = _begins(from_ms, to_ms, cuts)
    sums: dict[_Key, int] = {}
    for span in held:
        end_ms = to_ms if span.to_ms is None else min(span.to_ms, to_ms)
        for begin_ms, length_ms in _shares(begins, max(span.from_ms, from_ms), end_ms):
            key = (begin_ms, span.team, span.system, span.flavor, span.user)
            sums[key] = sums.get(key, 0) + span.gpus * length_ms
    for row in carried:
        if row.to_ms <= from_ms or row.from_ms >= to_ms:
            continue
        part = begins[max(0, bisect_right(begins, row.from_ms) - 1)]
        if row.from_ms < from_ms or row.to_ms > min((b for b in (*begins, to_ms) if b > part), default=to_ms):
            day = datetime.fromtimestamp(row.from_ms / 1000, UTC).date()
            raise InvalidInputError(
                f"the usage of {day} is archived as a sum of the whole day: begin and end the window at 00:00 UTC"
            )
        key = (part, row.team, row.system, row.flavor, row.user)
        sums[key] = sums.get(key, 0) + row.gpu_ms
    found = (Usage(key[1], key[2], key[3], gpu_ms, key[4], key[0]) for key, gpu_ms in sorted(sums.items()))
    return tuple(row for row in found if row.gpu_ms)


def days(from_ms: int, to_ms: int) -> list[int]:
    """Return each 00:00 UTC inside a window."""
    _check(from_ms, to_ms, _DAY_MS)
    return list(range((from_ms // _DAY_MS + 1) * _DAY_MS, to_ms, _DAY_MS))


def months(from_ms: int, to_ms: int) -> list[int]:
    """Return each first of a month, 00:00 UTC, inside a window."""
    _check(from_ms, to_ms, 28 * _DAY_MS)
    first = datetime.fromtimestamp(from_ms / 1000, UTC)
    year, month = first.year, first.month
    found: list[int] = []
    while True:
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)  # noqa: PLR2004 - months of a year
        at_ms = int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * 1000
        if at_ms >= to_ms:
            return found
        found.append(at_ms)


def _check(from_ms: int, to_ms: int, part_ms: int) -> None:
    """Refuse to make more parts than anybody reads."""
    if to_ms - from_ms > MAX_PARTS * part_ms:
        parts = (to_ms - from_ms) // part_ms
        raise InvalidInputError(
            f"from={from_ms} to={to_ms} has {parts} parts, at most {MAX_PARTS} are told at once: shorten the window"
        )


def _begins(from_ms: int, to_ms: int, cuts: Sequence[int]) -> list[int]:
    return sorted({from_ms, *(cut for cut in cuts if from_ms < cut < to_ms)})


def _shares(begins: Sequence[int], from_ms: int, to_ms: int) -> Iterator[tuple[int, int]]:
    """Yield (begin of the part, milliseconds of [from_ms, to_ms) within it)."""
    at = max(0, bisect_right(begins, from_ms) - 1)
    while from_ms < to_ms:
        end_ms = min(to_ms, begins[at + 1]) if at + 1 < len(begins) else to_ms
        yield begins[at], end_ms - from_ms
        from_ms, at = end_ms, at + 1
