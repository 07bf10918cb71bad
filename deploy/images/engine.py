"""Runs commands for the image build: output into a log file, its tail shown when a command fails."""

import fcntl
import os
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.images import catalog

TAIL_LINES = 25
STILL_S = 60
# The container tools of a plain Debian have no buildx, and the classic builder needs none.
ENVIRONMENT = {**os.environ, "DOCKER_BUILDKIT": "0"}


class StepError(Exception):
    """A build step failed; the message is what a person needs to see."""


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print one progress line for a step, with the time it took; and one a minute while it takes long."""
    started = time.monotonic()
    ended = threading.Event()

    def still() -> None:
        while not ended.wait(STILL_S):
            print(f"  {title:<46} {time.monotonic() - started:6.0f} s so far", flush=True)

    ticker = threading.Thread(target=still, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        ended.set()
        ticker.join()
    print(f"  {title:<46} {time.monotonic() - started:6.1f} s", flush=True)


@contextmanager
def exclusively(name: str) -> Iterator[None]:
    """Let one process (and one thread) at a time make this thing; the others wait and then find it made."""
    with lock_file(name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def lock_file(name: str) -> Path:
    """Return the file whose lock stands for a thing that one at a time may make or use."""
    lock = catalog.BUILD_DIR / "locks" / name
    lock.parent.mkdir(parents=True, exist_ok=True)
    return lock


def run(command: list[str], log_name: str, stdin: Path | None = None) -> None:
    """Run a command with its output appended to .build/logs/LOG_NAME.log."""
    log = catalog.BUILD_DIR / "logs" / f"{log_name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output, (stdin or Path(os.devnull)).open("rb") as source:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        done = subprocess.run(
            command, stdin=source, stdout=output, stderr=subprocess.STDOUT, check=False, env=ENVIRONMENT
        )
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
        raise StepError(f"{tail}\n{log_name}: `{command[0]} {command[1]}` failed ({done.returncode}); full log: {log}")


def image_exists(name: str) -> bool:
    """Whether the local daemon has the image."""
    return _silent(["docker", "image", "inspect", name])


def _silent(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, env=ENVIRONMENT).returncode == 0


def write_context(target: Path, entries: Iterable[tuple[Path, str]]) -> None:
    """Write a build context of exactly these files, so that no undeclared file can slip into an image."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w") as archive:
        for source, name in entries:
            archive.add(source, arcname=name, recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # Owner and time of the checkout would defeat the layer cache and say who built it.
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    return member
