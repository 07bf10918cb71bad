"""Waiting on a condition with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait(what: str, condition: Callable[[], T], bound_s: float = 10, told: Callable[[], str] = str) -> T:
    """Return the first true value of `condition`; fail at the bound, with what is told."""
    deadline_s = time.monotonic() + bound_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"after {bound_s} s still not: {what}\n{told()}"
        time.sleep(0.01)
    return found
