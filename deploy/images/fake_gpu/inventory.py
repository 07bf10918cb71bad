"""Which fake GPUs a node has, and which are healthy: a file on the node says so, and may be changed at any time.

    {"count": 8, "unhealthy": [2]}

The file is the node's hardware: writing it is pulling a card or breaking one. No file means no GPUs. A file that cannot
be understood changes nothing: what was known before it stays.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

ID_PREFIX = "gpu-"
COUNT_MAX = 64


class StateError(ValueError):
    """The state file does not say what is installed."""


@dataclass(frozen=True)
class State:
    """What is installed, and which of it is broken."""

    count: int = 0
    unhealthy: frozenset[int] = frozenset()

    def devices(self) -> list[tuple[str, bool]]:
        """Return (device id, healthy) of every installed device, in order."""
        return [(f"{ID_PREFIX}{index}", index not in self.unhealthy) for index in range(self.count)]


def parse(text: str) -> State:
    """Read the state file's text, refusing what it cannot mean."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise StateError(f'the state file is not JSON ({error}): write {{"count": 8, "unhealthy": []}}') from error
    if not isinstance(raw, dict) or not raw.keys() <= {"count", "unhealthy"}:
        raise StateError(f"the state file holds {text.strip()!r}: write an object with `count` and `unhealthy` only")
    count, unhealthy = raw.get("count", 0), raw.get("unhealthy", [])
    if not _is_index(count) or count > COUNT_MAX:
        raise StateError(f"count: {count!r} is not a number of devices from 0 to {COUNT_MAX}")
    if not isinstance(unhealthy, list) or not all(_is_index(index) for index in unhealthy):
        raise StateError(f"unhealthy: {unhealthy!r} is not a list of device numbers, as [2, 5]")
    return State(count, frozenset(unhealthy))


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def indexes(device_ids: Iterable[str]) -> list[int]:
    """Return the device numbers of these ids, in order."""
    return sorted(int(device_id.removeprefix(ID_PREFIX)) for device_id in device_ids)


def prefer(available: Iterable[str], must_include: Iterable[str], size: int) -> list[str]:
    """Choose a container's devices: those it must have, then the lowest numbers, so that runs can be repeated."""
    chosen = list(must_include)
    rest = [f"{ID_PREFIX}{index}" for index in indexes(set(available) - set(chosen))]
    return [*chosen, *rest][:size]
