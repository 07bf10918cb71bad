"""AdminComment: the job's key in front ("sb:<key>"), then " | " and the text for people. Pure."""

import re
from typing import Final

from bridge import wellknown

_KEY: Final = re.compile(r"[a-z0-9][a-z0-9-]{7,63}")


def parse(comment: str | None) -> tuple[str, str]:
    """Return (key, text); without a key of ours the whole comment is text."""
    whole = comment or ""
    head, _, text = whole.partition(wellknown.KEY_SEPARATOR)
    key = head.removeprefix(wellknown.KEY_PREFIX)
    if head.startswith(wellknown.KEY_PREFIX) and _KEY.fullmatch(key):
        return key, text
    return "", whole


def render(key: str, text: str) -> str:
    """Return the AdminComment of a job of ours."""
    return f"{wellknown.KEY_PREFIX}{key}{wellknown.KEY_SEPARATOR}{text}" if text else f"{wellknown.KEY_PREFIX}{key}"
