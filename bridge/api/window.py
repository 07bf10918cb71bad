"""Points in time as people and machines write them: a date, RFC 3339, an age like "24h", milliseconds. Pure."""

import re
from datetime import UTC, datetime

from bridge.errors import InvalidInputError

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_LAST_MS = 253_402_300_799_999
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": HOUR_MS, "d": DAY_MS}
_AGE = re.compile(r"-?(\d{1,9})([smhd])")
_MILLISECONDS = re.compile(r"\d{1,15}")


def parse(field: str, text: str, *, now_ms: int) -> int:
    """Return the Unix milliseconds of a point in time; see `_read`. Before 1970 or after 9999 there is none."""
    at_ms = _read(field, text, now_ms=now_ms)
    if not 0 <= at_ms <= _LAST_MS:
        raise InvalidInputError(f"{field}={text!r} is before 1970 or after the year 9999: write a nearer time")
    return at_ms


def _read(field: str, text: str, *, now_ms: int) -> int:
    """Return the Unix milliseconds of "now", "today", "month" (its begin), an age ("24h" or "-24h"), a date or time.

    Without a zone a date or time is UTC. A number is milliseconds.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if text == "today":
        return now_ms // DAY_MS * DAY_MS
    if text == "month":
        first = datetime.fromtimestamp(now_ms / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        return int(first.timestamp()) * 1000
    if age := _AGE.fullmatch(text):
        return now_ms - int(age[1]) * _UNIT_MS[age[2]]
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(
            f"{field}={text!r} is no time: write an age (30m, 24h, 7d), a date or RFC 3339 time, today, month or now"
        ) from error
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


def check(from_ms: int, to_ms: int) -> None:
    """Refuse a window that runs backwards."""
    if from_ms >= to_ms:
        raise InvalidInputError(f"from={from_ms} is not before to={to_ms}: give an earlier from or a later to")
