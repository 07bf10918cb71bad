"""kill -9 of the controller at each of its writes, and its next start (issue's done-means; N8, J1, rules 3 and 4).

Each site is reached by a step that needs it; the process that is killed there is started again and the step ends as
if nothing had been. A site is killed at its first occurrence in the step.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import pytest

from bridge import wellknown
from bridge.controller.faults import WRITES
from bridge.ledger.journal import FAULT_SITES
from bridge.ledger.port import Entry
from bridge.workloads import slurmjobs
from bridge.workloads.model import Grant, WorkloadId
from tests.integration import steps
from tests.integration.bridgebox import CLUSTER, BridgeBox
from tests.integration.steps import Conditions, Work
from tests.kubebox import unique

Step = Callable[[BridgeBox, Work], Conditions]
STEP_BOUND_S: Final = 90.0

BY_STEP: Final[dict[Step, tuple[str, ...]]] = {
    steps.jobs: ("ledger.batch", "slurm.annotate", "slurm.release", "slurm.hold"),
    steps.pod: (
        "kube.patch.pods/status", "kube.create.events", "slurm.drain", "kube.delete.pods", "slurm.forget",
        "kube.patch.pods", "kube.create.pods",
    ),
    steps.batch: ("slurm.submit", "ledger.settle", "kube.patch.jobs/status", "kube.patch.jobs"),
    steps.cancelled: ("slurm.cancel",),
    steps.suspended: ("slurm.requeue",),
    steps.cancel_by_api: ("ledger.intend",),
    steps.cordon: ("slurm.undrain",),
    steps.foreign: ("kube.patch.nodes",),
    steps.restart: (
        "ledger.open_epoch", "kube.patch.leases", "kube.patch.teams/status", "kube.patch.flavors/status",
        "kube.patch.nodesets/status", "kube.patch.slurmclusters/status",
    ),
    steps.objects: (
        "kube.create.leases", "kube.patch.configmaps", "kube.patch.services", "kube.patch.statefulsets",
        "kube.patch.deployments", "kube.patch.poddisruptionbudgets",
    ),
}  # fmt: skip
"""Which step reaches a write; each write has a site before and one after it."""

IN_A_BATCH: Final = "the controller writes it inside a batch, whose own two sites are the transaction's"
NEVER: Final = {
    **{f"ledger.{verb}": IN_A_BATCH for verb in ("reserve", "run", "release", "void", "adopt", "adjust", "capacity")},
    "ledger.note": "the controller writes no notes",
    "kube.create.secrets": "keys are made once, before the first start of slurmctld; here they are the test's",
}
"""Writes that no step reaches, and why not."""


def before_and_after(write: str) -> tuple[str, str]:
    """Return the two sites of a write."""
    suffix = "-commit" if write.startswith("ledger.") else ""
    return f"{write}.before{suffix}", f"{write}.after{suffix}"


CASES: Final = [
    pytest.param(step, site, id=site)
    for step, writes in BY_STEP.items()
    for write in writes
    for site in before_and_after(write)
]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeBox]:
    """Bring one platform up for all sites."""
    with BridgeBox(tmp_path_factory.mktemp("crash")) as running:
        yield running


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("step", "site"), CASES)
def test_killed_here_nothing_is_lost_or_doubled(box: BridgeBox, step: Step, site: str) -> None:
    work = Work(unique(step.__name__.replace("_", "-")))
    with box.ledger() as ledger:
        began = ledger.last_seq()
    box.arm(site)
    kills = carried_out(box, step, work)
    assert kills == 1, f"{site} was not reached by {step.__name__}"
    box.wait_calm()
    check(box, work, began)


def test_every_write_of_the_controller_is_killed_at_or_accounted_for(box: BridgeBox) -> None:
    tried = {write for writes in BY_STEP.values() for write in writes}
    known = {site.rsplit(".", 1)[0] for site in FAULT_SITES} | {f"slurm.{verb}" for verb in WRITES}
    reached = {site.rsplit(".", 1)[0] for site in box.sites()}
    assert (known | reached) - tried == set(NEVER)
    assert not reached & set(NEVER)


def carried_out(box: BridgeBox, step: Step, work: Work) -> int:
    """Go through a step, starting the controller again whenever it is found dead; return how often it was."""
    kills = 0
    for what, condition in step(box, work):
        deadline_s = time.monotonic() + STEP_BOUND_S
        while True:
            kills += revived(box)
            if condition():
                break
            assert time.monotonic() < deadline_s, f"after {STEP_BOUND_S} s still not: {what}\n{box.told()}"
    return kills


def revived(box: BridgeBox) -> bool:
    """Start the controller again if it is dead, with nothing armed any more."""
    if box.running:
        return False
    box.arm("")
    box.start()
    return True


# --- what must hold afterwards ---------------------------------------------------------------------------------
def check(box: BridgeBox, work: Work, began: int) -> None:
    """Each script ran as often as it had to, each workload was charged exactly then, and nothing of ours is left."""
    assert {name: len(box.runs(name)) for name in work.scripts} == work.scripts
    with box.ledger() as ledger:
        assert not ledger.verify()
        entries = ledger.log(after_seq=began, limit=10_000)
        grants = ledger.grants(holding=False)
    check_intervals(work, entries)
    check_slurm(box, work, grants)


def check_intervals(work: Work, entries: Sequence[Entry]) -> None:
    """No workload was found running without its grant, and each has as many whole intervals as it had runs."""
    count = {step: Counter(e.workload for e in entries if e.step == step) for step in ("run", "release", "adopt")}
    assert sorted(count["run"].values()) == work.intervals
    assert count["run"] == count["release"]
    assert not count["adopt"]


def check_slurm(box: BridgeBox, work: Work, grants: Sequence[Grant]) -> None:
    """One Slurm job for each key, and the ledger's last interval of each is Slurm's own."""
    records = steps.of_work(box, work)
    ids_of_key: dict[str, set[str]] = {}
    last = {grant.workload: grant for grant in sorted(grants, key=lambda g: g.attempt)}
    for record in records:
        key = record["AdminComment"].split(" | ")[0].removeprefix(wellknown.KEY_PREFIX)
        ids_of_key.setdefault(key, set()).add(record.get("ArrayJobId", record["JobId"]))
        grant = last[workload_of(key, record)]
        assert (grant.running_ms, grant.ended_ms) == (ms(record["StartTime"]), ms(record["EndTime"]))
    assert [len(ids) for ids in ids_of_key.values()] == [1] * (len(work.job_ids) + len(work.job_uids))


def workload_of(key: str, record: dict[str, str]) -> WorkloadId:
    """Return the workload that a record is."""
    task = record.get("ArrayTaskId")
    return slurmjobs.workload_id(CLUSTER, key, None if task is None else int(task))


def ms(stamp: str) -> int:
    """Return scontrol's time (the containers' clock is UTC) in milliseconds."""
    return int(datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() * 1000)
