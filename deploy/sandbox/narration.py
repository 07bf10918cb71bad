"""How the tour speaks: headings, commands as a person types them with what they print, waits, and checked claims."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

POLL_S = 0.3
LOGIN = ("kubectl", "-n", "slurm", "exec", "deploy/login", "--")


class TourError(Exception):
    """Something is not as the tour tells; the message is for the person who reads it."""


def heading(text: str) -> None:
    """Begin a chapter."""
    print(f"\n{_styled(f'── {text} ' + '─' * max(4, 96 - len(text)), '1')}\n", flush=True)


def say(text: str) -> None:
    """Tell what comes or what was seen."""
    print(_styled(text, "36"), flush=True)


def typed(command: str, *, fails: bool = False) -> str:
    """Show a command of the admin's terminal, run it, show and return what it prints."""
    return _shown("$", command, shlex.split(command), fails=fails)


def typed_by(user: str, command: str, *, fails: bool = False) -> str:
    """Likewise in the login pod, as one of its users."""
    return _shown(f"{user}@login$", command, as_user(user, command), fails=fails)


def as_user(user: str, command: str) -> list[str]:
    """Return how a command is run in the login pod."""
    return [*LOGIN, "su", user, "-c", f"cd && {command}"]


def quiet(command: Sequence[str], *, text: str = "") -> str:
    """Run a command that the tour itself needs; it has to work."""
    done = _run(command, text)
    if done.returncode != 0:
        raise TourError(f"`{shlex.join(command)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def document(command: str) -> Any:
    """Return the JSON that a command prints."""
    return json.loads(quiet(shlex.split(command)))


def wait(what: str, state: Callable[[], T], timeout_s: float) -> T:
    """Poll until `state` is truthy; show the time that passes, and fail with one sentence."""
    started = time.monotonic()
    while True:
        found = state()
        passed_s = time.monotonic() - started
        if found:
            _progress(f"  … {what}: {passed_s:.1f} s", final=True)
            return found
        if passed_s > timeout_s:
            _progress(f"  … {what}", final=True)
            raise TourError(f"after {timeout_s:g} s still not so: {what}")
        _progress(f"  … {what}: {passed_s:.0f} s", final=False)
        time.sleep(POLL_S)


def check(claim: str, true: object, otherwise: str = "") -> None:
    """Print a claim that was found true; a false one ends the tour."""
    if not true:
        raise TourError(f"not so: {claim}" + (f" ({otherwise})" if otherwise else ""))
    print(_styled(f"  ✓ {claim}", "32"), flush=True)


def _shown(prompt: str, command: str, argv: Sequence[str], *, fails: bool) -> str:
    print(_styled(f"{prompt} {command}", "1"), flush=True)
    done = _run(argv)
    printed = (done.stdout + done.stderr).rstrip()
    if printed:
        print(printed, flush=True)
    print(flush=True)
    if (done.returncode != 0) is not fails:
        raise TourError(f"`{command}` ended with exit code {done.returncode}")
    return done.stdout + done.stderr


def _run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=text, text=True, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TourError(f"`{shlex.join(command)}` did not work: {error}") from error


def _progress(text: str, *, final: bool) -> None:
    """Draw over the same line in a terminal; elsewhere print the outcome only."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="\n" if final else "", flush=True)
    elif final:
        print(text, flush=True)


def _styled(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if sys.stdout.isatty() else text
