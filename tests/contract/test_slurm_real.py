"""The port's suite over pyslurm and a real slurmctld: run inside the bridge's image, where libslurm is."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.slurmbox import ROOT, SlurmBox, image

SUITE = "tests/contract/test_slurm_port.py"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBox]:
    """Start a real cluster."""
    workers = {"w1": ("h100", 8), "w2": ("h100", 4), "w3": ("a100", 4)}
    with SlurmBox(tmp_path_factory.mktemp("slurm"), workers) as running:
        yield running


@pytest.mark.timeout(600)
def test_the_suite_passes_over_a_real_slurmctld(box: SlurmBox) -> None:
    # No conftest: those of other suites need what is not in the image.
    done = in_bridge_image(box, "python", "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", SUITE)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{box.logs()}"


FROZEN = """
import time
from pathlib import Path
from bridge.errors import OutcomeUnknownError, UnknownStateError
from bridge.slurm.adapter import PyslurmAdapter
from bridge.slurm.port import JobRef

def outcome(call):
    begun = time.monotonic()
    try:
        call()
        told = "answered"
    except (OutcomeUnknownError, UnknownStateError) as fault:
        told = type(fault).__name__
    return told, time.monotonic() - begun

with PyslurmAdapter(Path("/conf/slurm.conf")) as slurm:
    for call in (slurm.jobs, slurm.nodes, slurm.ping, lambda: slurm.hold(JobRef(1, "job-nobody"))):
        told, took_s = outcome(call)
        print(told, round(took_s, 1))
        assert told != "answered" and took_s < 35, (told, took_s)
"""


@pytest.mark.timeout(300)
def test_a_frozen_slurmctld_is_unknown_within_bounds(box: SlurmBox) -> None:
    """N1: it holds its connections open and never answers."""
    box.ctl("sh", "-c", "kill -STOP $(pidof slurmctld)")
    try:
        done = in_bridge_image(box, "python", "-c", FROZEN)
    finally:
        box.ctl("sh", "-c", "kill -CONT $(pidof slurmctld)")
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["UnknownStateError"] * 3


KILLED = """
import os, signal, subprocess, sys, time
code = '''
import sys, time
from pathlib import Path
from bridge.slurm.adapter import PyslurmAdapter
slurm = PyslurmAdapter(Path("/conf/slurm.conf"))
slurm.jobs()
slurm.reconfigure()
print("ready", flush=True)
time.sleep(60)
'''
def others():
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    ours = [line for line in listed.splitlines() if " -c " not in line]
    return [line for line in ours if line.startswith("/usr/sbin/sackd") or "-m bridge.slurm.session" in line]

bridge = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
assert bridge.stdout.readline() == "ready\\n"
assert len(others()) == 3, others()
bridge.kill()
bridge.wait()
deadline = time.monotonic() + 10
while others():
    assert time.monotonic() < deadline, others()
    time.sleep(0.05)
"""


def test_nothing_of_a_killed_bridge_goes_on_speaking_to_slurmctld(box: SlurmBox) -> None:
    """A leader that is dead must not finish its writes beside the next one."""
    done = in_bridge_image(box, "python", "-c", KILLED)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def in_bridge_image(box: SlurmBox, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside slurmctld, with the checkout and the cluster's configuration mounted."""
    conf = box.client_conf()
    mounts = [f"{ROOT}:/src:ro", f"{conf}:/conf:ro", f"{box.folder / 'users'}:/var/lib/extrausers:ro"]
    environment = ["PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=/src", "SLURM_CONTRACT_CONF=/conf/slurm.conf"]
    line = ["docker", "run", "--rm", "--network", box.network, "--workdir", "/src"]
    for mount in mounts:
        line += ["--volume", mount]
    for variable in environment:
        line += ["--env", variable]
    return subprocess.run(
        [*line, image("bridge-test"), *command], capture_output=True, text=True, check=False, timeout=500
    )
