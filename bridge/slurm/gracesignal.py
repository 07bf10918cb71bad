"""`--signal=[{R|B}:]SIGNAL[@TIME]` of sbatch: which signal a job wants before its end. Pure.

slurmctld keeps it to itself: it is in no record, and job_submit.lua is not told. So the option is read where the user
wrote it: on the command line (the record's submit line), else as the submission policy found it in SBATCH_SIGNAL or the
script, and left in AdminComment. What cannot be read is no signal: the job is requeued without one.
"""

import re
import shlex
import signal
from typing import Final

from bridge.slurm.model import GraceSignal

OPTION: Final = "--signal"
_SPEC: Final = re.compile(r"(?:(?P<flags>[RB]{1,2}):)?(?P<signal>[A-Za-z0-9+-]{1,16})(?:@[0-9]{1,5})?")
_HIGHEST: Final = 64


def parse(spec: str) -> GraceSignal | None:
    """Read the option's value, e.g. "B:USR1@120", "10" or "SIGTERM@60"."""
    found = _SPEC.fullmatch(spec.strip())
    number = _number(found["signal"]) if found else None
    if found is None or number is None:
        return None
    return GraceSignal(number, batch="B" in (found["flags"] or ""))


def render(asked: GraceSignal | None) -> str:
    """Return the value that `parse` reads as the same."""
    if asked is None:
        return ""
    return f"B:{asked.number}" if asked.batch else str(asked.number)


def of_command(line: str) -> GraceSignal | None:
    """Read it from the command that submitted the job; the last one counts, as for sbatch."""
    try:
        words = shlex.split(line)
    except ValueError:  # quotes that the shell had taken off already
        words = line.split()
    asked = None
    for index, word in enumerate(words):
        option, _, value = word.partition("=")
        if option == OPTION:
            asked = parse(value or "".join(words[index + 1 : index + 2])) or asked
    return asked


def _number(told: str) -> int | None:
    if told.isdecimal():
        return int(told) if 1 <= int(told) <= _HIGHEST else None
    name = told.upper().removeprefix("SIG")
    found = getattr(signal.Signals, f"SIG{name}", None)
    return int(found) if found is not None else None
