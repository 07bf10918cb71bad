"""Time. Wall-clock milliseconds for what is recorded, so that history survives a restart."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time; tests hand in a FakeClock."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class FakeClock:
    """A clock that moves only when told to."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """Return the current fake time in milliseconds."""
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        """Move forward by `by_ms` milliseconds (>= 0)."""
        if by_ms < 0:
            raise ValueError(f"advance by_ms={by_ms}: time does not run backwards; give a value >= 0")
        self._now_ms += by_ms
