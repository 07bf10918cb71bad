"""Runs commands on the sandbox the way a person does; every call is bounded in time."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass


class PlatformMissingError(Exception):
    """There is no sandbox to talk to."""


class CommandError(Exception):
    """A command that had to work did not; its own words are kept."""


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command said and how it ended."""

    command: str
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Everything it printed."""
        return f"{self.out}\n{self.err}".strip()


def attempt(command: Sequence[str], *, text: str = "", timeout_s: float = 60) -> Completed:
    """Run a command whose failure is an answer too."""
    require()
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"`{' '.join(command)}` gave no answer within {timeout_s:g} s") from error
    return Completed(" ".join(command), done.returncode, done.stdout, done.stderr)


def run(command: Sequence[str], *, text: str = "", timeout_s: float = 60) -> str:
    """Run a command that has to work and return what it prints."""
    done = attempt(command, text=text, timeout_s=timeout_s)
    if done.code != 0:
        raise CommandError(f"`{done.command}` ended with {done.code}: {done.said}")
    return done.out


def require() -> None:
    """Raise with the way out when no sandbox is named."""
    if missing():
        raise PlatformMissingError(missing())


def missing() -> str:
    """Say how to name a sandbox; "" when one is named."""
    if os.environ.get("KUBECONFIG"):
        return ""
    return "KUBECONFIG is not set: run `make test-e2e`, or `. .build/sandbox/env` first (`make sandbox` makes it)"
