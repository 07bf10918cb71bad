"""`python -m bridge.controller`: the controller as its container runs it."""

import logging
import os
import signal
import sys
from pathlib import Path

import structlog

from bridge.controller import config, faults
from bridge.controller.faults import Fault
from bridge.controller.process import Outside, Process
from bridge.errors import BridgeError
from bridge.kube import transport
from bridge.kube.gateway import KubeGateway
from bridge.slurm.adapter import PyslurmAdapter
from bridge.slurm.port import Slurm

LEASE_READ_S = 3.0
"""A fifth of the lease's duration: several tries fit into one term."""


def connect_slurm(conf_dir: Path) -> Slurm:
    """Connect to the cluster whose slurm.conf and slurm.key lie in this folder."""
    return PyslurmAdapter(conf_dir / "slurm.conf")


def crash_at(site_and_count: str) -> Fault:
    """Return a hook that kills this process (as SIGKILL does) the n-th time that `site:n` is reached."""
    site, _, number = site_and_count.partition(":")
    left = [int(number or "1")]

    def hook(reached: str) -> None:
        if reached == site:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def log_sites(site: str) -> None:
    """Name every site that is reached: how the crash test learns them."""
    sys.stderr.write(f"fault-site {site}\n")
    sys.stderr.flush()


def armed_by(file: Path) -> Fault:
    """Return a hook that names every site, and kills this process at the one that the file says (as `crash_at`).

    So a crash test arms a site in a process that runs already, and one start serves one crash.
    """
    text, crash = "", crash_at("")

    def hook(reached: str) -> None:
        nonlocal text, crash
        log_sites(reached)
        armed = file.read_text().strip()
        if armed != text:
            text, crash = armed, crash_at(armed)
        crash(reached)

    return hook


def chosen_fault(word: str) -> Fault:
    """Return the hook that SBRIDGE_FAULT asks for: "log", "SITE:N", or "file:PATH" with SITE:N in that file."""
    if word == "log":
        return log_sites
    if word.startswith("file:"):
        return armed_by(Path(word.removeprefix("file:")))
    return crash_at(word) if word else faults.none


def main() -> int:
    """Read the settings, run, and return the exit code."""
    try:
        chosen = config.load()
    except BridgeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    level = logging.getLevelNamesMapping()[chosen.log_level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    fault = chosen_fault(chosen.fault)
    gateway = KubeGateway(transport.found(), fault=fault)
    lease_gateway = KubeGateway(transport.found(connections=2), read_s=LEASE_READ_S, fault=fault)
    return Process(chosen, Outside(gateway, lease_gateway, connect_slurm, fault)).run()


if __name__ == "__main__":
    sys.exit(main())
