"""From what a person types to one workload. Pure.

Accepted, the first that matches anything wins: the workload's id; one of its refs (a JobId "123" or "123_4",
"pod/ns/name", "job/ns/name"); "ns/name"; a bare name. Work that is not over comes before work that is:
JobIds and names are used again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.api.views import QueueRow, State

MAX_CANDIDATES = 20


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several workloads match; each candidate can be typed back."""

    candidates: tuple[str, ...]
    total: int


def find(ref: str, rows: Sequence[QueueRow]) -> QueueRow | Ambiguous | None:
    """Return the workload that `ref` means, the candidates when they are several, None when there is none."""
    for matches in _TIERS:
        found = [row for row in rows if matches(row, ref)]
        if found:
            return _one_of(found)
    return None


def _one_of(found: list[QueueRow]) -> QueueRow | Ambiguous:
    alive = [row for row in found if row.state is not State.ENDED]
    chosen = alive or found
    if len(chosen) == 1:
        return chosen[0]
    return Ambiguous(tuple(_candidate(row) for row in chosen[:MAX_CANDIDATES]), len(chosen))


def _candidate(row: QueueRow) -> str:
    return f"{row.id} ({row.where or row.name}, {row.state})"


def _by_id(row: QueueRow, ref: str) -> bool:
    return row.id == ref


def _by_ref(row: QueueRow, ref: str) -> bool:
    return ref in row.refs or row.where == ref


def _by_namespaced_name(row: QueueRow, ref: str) -> bool:
    """Match "ns/name" against "pod/ns/name" and "job/ns/name"."""
    return "/" in ref and any(known.partition("/")[2] == ref for known in row.refs)


def _by_name(row: QueueRow, ref: str) -> bool:
    return row.name == ref


_TIERS: tuple[Callable[[QueueRow, str], bool], ...] = (_by_id, _by_ref, _by_namespaced_name, _by_name)
