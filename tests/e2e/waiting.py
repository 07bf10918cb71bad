"""Waits for a condition with a deadline, and watches that one holds."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.25


def until(what: str, probe: Callable[[], T | None], timeout_s: float = 30, *, poll_s: float = POLL_S) -> T:
    """Return the first truthy answer of `probe`; fail with what was awaited and what was seen last."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = probe()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout_s:g} s still not: {what} (last seen: {seen!r})")
        time.sleep(poll_s)


def holds(what: str, probe: Callable[[], object], for_s: float, *, poll_s: float = 1.0) -> None:
    """Fail as soon as `probe` has something to object to; look for `for_s`."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        objection = probe()
        assert not objection, f"{what} did not hold: {objection!r}"
        time.sleep(poll_s)
