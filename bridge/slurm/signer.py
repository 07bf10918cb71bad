"""sackd, which signs what libslurm sends: under auth/slurm a client holds no key, it asks a socket on its host.

One for each slurm.conf, with a socket of its own; it ends with us, even when we are killed. It runs as we do, so
slurmctld knows us by our own uid (root).
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Final

from bridge.errors import UnknownStateError

SACKD: Final = "/usr/sbin/sackd"
RUN: Final = "/run"  # sackd takes no other place for its socket
START_BOUND_S: Final = 10.0


class Signer:
    """Starts sackd when it is needed, and again when it ended. Thread safe."""

    def __init__(self, conf: Path) -> None:
        self._conf = conf
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    def socket(self) -> Path:
        """Return the socket of a running sackd."""
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="slurm-bridge-", dir=RUN))
            path = self._folder / "sack.socket"
            if self._child is None or self._child.poll() is not None:
                path.unlink(missing_ok=True)
                self._start(path)
            return path

    def close(self) -> None:
        """End sackd."""
        with self._lock:
            if self._child is not None:
                self._child.terminate()
                try:
                    self._child.wait(5)
                except subprocess.TimeoutExpired:
                    self._child.kill()
                    self._child.wait()
                self._child = None
            if self._folder is not None:
                for path in self._folder.iterdir():
                    path.unlink(missing_ok=True)
                self._folder.rmdir()
                self._folder = None

    def _start(self, path: Path) -> None:
        words: IO[bytes]
        with tempfile.TemporaryFile() as words:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", SACKD, "-D", "-f", str(self._conf)],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                env={**environment, "RUNTIME_DIRECTORY": str(path.parent)},
            )
            deadline = time.monotonic() + START_BOUND_S
            while not path.is_socket():
                if self._child.poll() is not None or time.monotonic() > deadline:
                    with contextlib.suppress(ProcessLookupError):
                        self._child.send_signal(signal.SIGKILL)
                    self._child.wait()
                    words.seek(0)
                    told = words.read().decode(errors="replace").strip().splitlines()
                    raise UnknownStateError(f"sackd did not start: {told[-1] if told else 'it said nothing'}")
                time.sleep(0.01)
