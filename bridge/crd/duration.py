"""Durations as people type them in custom resources: whole hours, minutes and seconds, e.g. 90s, 5m, 1h30m. Pure."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

PATTERN: Final = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"
MAX_HOURS: Final = 24

_SHAPE: Final = re.compile(PATTERN)
_SECONDS: Final = (3_600, 60, 1)


def milliseconds(text: str) -> int:
    """Return a duration in milliseconds; ValueError with one sentence for what is none, or longer than a day."""
    found = _SHAPE.fullmatch(text)
    if found is None or not text:
        raise ValueError(f"{text!r} is no duration; write hours, minutes and seconds, e.g. 30s, 5m or 1h30m")
    seconds = sum(int(part[:-1]) * unit for part, unit in zip(found.groups(), _SECONDS, strict=True) if part)
    if seconds > MAX_HOURS * _SECONDS[0]:
        raise ValueError(f"{text} is longer than a day; give at most {MAX_HOURS}h")
    return seconds * 1_000


def _checked(text: str) -> str:
    milliseconds(text)
    return text


Duration = Annotated[
    str,
    # For the API server's schema only: here the sentence of `milliseconds` is the better one.
    Field(json_schema_extra={"pattern": PATTERN, "minLength": 2, "maxLength": 21}),
    AfterValidator(_checked),
]
"""At most 24h; 0s is none."""
