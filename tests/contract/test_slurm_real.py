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
    done = in_bridge_image(box, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", SUITE)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{box.logs()}"


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
