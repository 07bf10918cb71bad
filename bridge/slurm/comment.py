"""AdminComment: the job's key in front ("sb:<key>"), the signal it asked for, " | " and the text for people. Pure."""

import re
from typing import Final

from bridge import wellknown
from bridge.slurm import gracesignal
from bridge.slurm.model import GraceSignal

_KEY: Final = re.compile(r"[a-z0-9][a-z0-9-]{7,63}")


def parse(comment: str | None) -> tuple[str, str]:
    """Return (key, text); without a key of ours the whole comment is text."""
    whole = comment or ""
    head, _, text = whole.partition(wellknown.KEY_SEPARATOR)
    key = head.removeprefix(wellknown.KEY_PREFIX).partition(wellknown.KEY_SIGNAL)[0]
    if head.startswith(wellknown.KEY_PREFIX) and _KEY.fullmatch(key):
        return key, text
    return "", whole


def signal(comment: str | None) -> GraceSignal | None:
    """Return the signal that the submission policy left behind the key."""
    if not parse(comment)[0]:
        return None
    head = (comment or "").partition(wellknown.KEY_SEPARATOR)[0]
    return gracesignal.parse(head.partition(wellknown.KEY_SIGNAL)[2])


def render(key: str, text: str, asked: GraceSignal | None = None) -> str:
    """Return the AdminComment of a job of ours."""
    head = f"{wellknown.KEY_PREFIX}{key}"
    if asked is not None:
        head += f"{wellknown.KEY_SIGNAL}{gracesignal.render(asked)}"
    return f"{head}{wellknown.KEY_SEPARATOR}{text}" if text else head
