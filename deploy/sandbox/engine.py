"""Runs docker and kubectl for the sandbox; a failed command says which one and why."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deploy.sandbox import layout

COMMAND_TIMEOUT_S = 120
POLL_S = 0.2


class SandboxError(Exception):
    """The sandbox is not as it should be; the message says what to look at."""


def docker(*arguments: str, stdin: str | None = None) -> str:
    """Run docker and return its output."""
    return _checked(["docker", *arguments], stdin)


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Run kubectl as the sandbox's admin and return its output."""
    return _checked(_kubectl_command(*arguments), stdin)


def kubectl_works(*arguments: str) -> bool:
    """Whether a kubectl command succeeds; for waiting on a condition."""
    done = subprocess.run(_kubectl_command(*arguments), capture_output=True, check=False, timeout=COMMAND_TIMEOUT_S)
    return done.returncode == 0


def _kubectl_command(*arguments: str) -> list[str]:
    return [str(layout.KUBECTL), f"--kubeconfig={layout.KUBECONFIG}", "--request-timeout=20s", *arguments]


def _checked(command: list[str], stdin: str | None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        raise SandboxError(f"`{' '.join(command[:6])} …` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print one progress line for a step, with the time it took."""
    started = time.monotonic()
    yield
    print(f"  {title:<46} {time.monotonic() - started:6.1f} s", flush=True)


def wait_until(what: str, condition: Callable[[], bool], deadline_s: float, hint: str) -> None:
    """Poll until the condition holds; past the deadline say what was waited for and where to look."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise SandboxError(f"waited {deadline_s:.0f} s in vain until {what}; look at: {hint}")
        time.sleep(POLL_S)


def environment_file() -> str:
    """Return the shell lines that point a shell at the sandbox."""
    return (
        f"export KUBECONFIG={layout.KUBECONFIG}\n"
        f"export IMAGE_PREFIX={layout.IMAGE_PREFIX}\n"
        f'export PATH="{layout.BIN_DIR}:{layout.ROOT / ".venv" / "bin"}:$PATH"\n'
    )
