"""kill -9 of the controller at each of its writes, and its next start (N8, J1, rules 3 and 4 of the ledger).

Each write is reached by a step that needs it. The process is killed just before the write is sent, started, killed
just after it was answered, and started: then the step must end as if nothing had been.
"""

import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

import pytest

from bridge.controller.faults import WRITES
from bridge.ledger.journal import FAULT_SITES
from tests.integration import outcome, steps
from tests.integration.bridgebox import BridgeBox
from tests.integration.steps import Conditions, Work
from tests.kubebox import unique

Step = Callable[[BridgeBox, Work], Conditions]
STEP_BOUND_S: Final = 90.0
PAUSE_S: Final = 0.05

BY_STEP: Final[dict[Step, tuple[tuple[str, ...], ...]]] = {
    steps.jobs: (
        ("ledger.batch", "slurm.release"),
        ("slurm.annotate.before",), ("slurm.annotate.after",),
        ("slurm.hold.before",), ("slurm.hold.after",),
    ),
    steps.pod: (
        ("slurm.drain", "kube.delete.pods", "slurm.forget", "kube.create.pods"),
        ("kube.patch.pods/status", "kube.patch.pods"),
        ("kube.create.events",),
    ),
    steps.batch: (
        ("slurm.submit", "kube.patch.jobs/status", "kube.patch.jobs"),
        ("ledger.settle.before-commit",), ("ledger.settle.after-commit",),
    ),
    steps.cancelled: (("slurm.cancel",),),
    steps.retried: (("slurm.retry",),),
    steps.suspended: (("slurm.requeue",),),
    steps.cancel_by_api: (("ledger.intend",),),
    steps.taken_back: (("slurm.signal",),),
    steps.evicted: (("kube.post.eviction",),),
    steps.cordon: (("slurm.undrain",),),
    steps.foreign: (("kube.patch.nodes",),),
    steps.restart: (
        (
            "kube.patch.leases", "ledger.open_epoch", "kube.patch.teams/status", "kube.patch.flavors/status",
            "kube.patch.nodesets/status", "kube.patch.slurmclusters/status",
        ),
    ),
    steps.objects: (
        (
            "kube.create.leases", "kube.patch.configmaps", "kube.patch.services", "kube.patch.poddisruptionbudgets",
            "kube.patch.statefulsets", "kube.patch.deployments",
        ),
    ),
}  # fmt: skip
"""The writes that a step reaches one after the other; each is killed at before it is sent and after its answer.

Where only one of the two is named, the other cannot follow in the same step: once the process was killed before
slurm.hold or slurm.annotate the job may have ended or started when the next one looks, and a submission that was not
settled at once is settled inside a batch.
"""

IN_A_BATCH: Final = "the controller writes it inside a batch, whose own two sites are the transaction's"
NEVER: Final = {
    **{f"ledger.{verb}": IN_A_BATCH for verb in ("reserve", "run", "release", "void", "adopt", "adjust", "capacity")},
    "ledger.note": "the controller writes no notes",
    "kube.create.secrets": "keys are made once, before the first start of slurmctld; here they are the test's",
}
"""Writes that no step reaches, and why not."""


def sites_of(write: str) -> tuple[str, ...]:
    """Return the two sites of a write, or the one that is named."""
    if ".before" in write or ".after" in write:
        return (write,)
    suffix = "-commit" if write.startswith("ledger.") else ""
    return f"{write}.before{suffix}", f"{write}.after{suffix}"


def sites() -> set[str]:
    """Return every site that some step is killed at."""
    return {site for groups in BY_STEP.values() for group in groups for write in group for site in sites_of(write)}


CASES: Final = [
    pytest.param(step, tuple(site for write in group for site in sites_of(write)), id="+".join(group))
    for step, groups in BY_STEP.items()
    for group in groups
]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeBox]:
    """Bring one platform up for all sites."""
    with BridgeBox(tmp_path_factory.mktemp("crash")) as running:
        yield running


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("step", "sites"), CASES)
def test_killed_here_nothing_is_lost_or_doubled(box: BridgeBox, step: Step, sites: tuple[str, ...]) -> None:
    work = Work(unique(step.__name__.replace("_", "-")))
    began = box.last_seq()
    fuse = Fuse(box, sites)
    rest = [("each site is reached", lambda: not fuse.left), ("all is at rest again", box.calm)]
    for what, condition in chain(step(box, work), rest):
        deadline_s = time.monotonic() + STEP_BOUND_S
        while fuse.revive() or not condition():
            assert time.monotonic() < deadline_s, f"after {STEP_BOUND_S} s still not: {what}, {fuse.left}\n{box.told()}"
            time.sleep(PAUSE_S)
    check(box, work, began)


def test_every_write_of_the_controller_is_killed_at_or_accounted_for(box: BridgeBox) -> None:
    never = {site for write in NEVER for site in sites_of(write)}
    known = {*FAULT_SITES, *(site for verb in WRITES for site in sites_of(f"slurm.{verb}"))}
    assert known - sites() <= never
    assert set(box.sites()) <= sites()
    assert not sites() & never


class Fuse:
    """Arms one site after the other; the controller starts again after each, at last with none."""

    def __init__(self, box: BridgeBox, sites: tuple[str, ...]) -> None:
        self._box = box
        self.left = list(sites)
        box.arm(sites[0])

    def revive(self) -> bool:
        """Start the controller if it is dead, with the next site armed; return whether it was."""
        if self._box.running:
            return False
        del self.left[:1]
        self._box.arm(self.left[0] if self.left else "")
        self._box.start()
        return True


def check(box: BridgeBox, work: Work, began: int) -> None:
    """Nothing ran twice or not at all, nothing was charged twice or not at all, and the ledger agrees with Slurm."""
    outcome.check_scripts(box, work)
    outcome.check_intervals(work, box.entries(began))
    outcome.check_slurm(box, work, box.grants())
    with box.ledger() as ledger:
        assert not ledger.verify()
