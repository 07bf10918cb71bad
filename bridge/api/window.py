"""Points in time as people and machines write them: milliseconds, RFC 3339, or an age like "24h". Pure."""

import re
from datetime import UTC, datetime

from bridge.errors import InvalidInputError

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": HOUR_MS, "d": DAY_MS}
_AGE = re.compile(r"(\d{1,9})([smhd])")
_MILLISECONDS = re.compile(r"\d{1,15}")


def parse(field: str, text: str, *, now_ms: int) -> int:
    """Return the Unix milliseconds of "now", an age ("24h"), milliseconds, or a date (UTC without a zone)."""
    text = text.strip()
    if text == "now":
        return now_ms
    if age := _AGE.fullmatch(text):
        return now_ms - int(age[1]) * _UNIT_MS[age[2]]
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(
            f"{field}={text!r} is no time: write an age (30m, 24h, 7d), an RFC 3339 time, milliseconds or now"
        ) from error
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


def check(from_ms: int, to_ms: int) -> None:
    """Refuse a window that runs backwards."""
    if from_ms >= to_ms:
        raise InvalidInputError(f"from={from_ms} is not before to={to_ms}: give an earlier from or a later to")
