"""What ran while no bridge did is charged for exactly as long as it ran, by Slurm's and the pods' own times."""

from collections.abc import Iterator

import pytest

from bridge.kube import port
from bridge.ledger import decay
from bridge.ledger.decay import decayed
from bridge.ledger.fairshare import FairShare
from bridge.ledger.port import Held
from bridge.quota.model import TeamName
from bridge.workloads import pods
from bridge.workloads.model import GrantState, System
from tests.unit import worlds
from tests.unit.platform_of_three import Three

MINUTE = 60_000


@pytest.fixture
def platform() -> Iterator[Three]:
    made = Three()
    yield made
    assert not made.ledger.verify()
    made.ledger.close()


def ran(platform: Three, job_id: int) -> tuple[int, int]:
    """Return when a job began and ended, as slurmctld has it."""
    job = platform.slurm.job(job_id)
    assert job.start_ms is not None
    assert job.end_ms is not None
    return job.start_ms, job.end_ms


def test_a_job_that_ends_and_one_that_starts_during_an_outage_are_charged_for_what_ran(platform: Three) -> None:
    """The bridge is away for an hour; nothing of it is lost, and nothing is charged twice."""
    begun_ms = platform.clock.now_ms()
    first = platform.job("alpha", 8)
    platform.until(lambda: platform.runs(first))
    platform.run(2)
    second = platform.job("bravo", 4)
    for _ in range(6):  # slurmd and kubelet do their part, slurmctld has not yet started what was released
        platform.cycle.once()
        platform._kubelet()
        platform.clock.advance(200)
    assert not platform.slurm.job(second).held
    assert not platform.runs(second)
    # The bridge is away: Slurm goes on by itself.
    platform.clock.advance(7 * MINUTE + 13)
    platform.slurm.start_pending()
    assert platform.runs(second)
    platform.clock.advance(20 * MINUTE)
    platform.slurm.complete(first)
    platform.slurm.free(first)
    platform.clock.advance(33 * MINUTE)
    # It is back.
    platform.run(3)
    platform.clock.advance(MINUTE + 1)
    platform.slurm.complete(second)
    platform.slurm.free(second)
    platform.run(3)
    assert not platform.ledger.grants(holding=True)
    told = {row.team: row.gpu_ms for row in platform.ledger.usage(from_ms=begun_ms, to_ms=platform.clock.now_ms())}
    spans = {job: ran(platform, job) for job in (first, second)}
    assert told == {
        "alpha": 8 * (spans[first][1] - spans[first][0]),
        "bravo": 4 * (spans[second][1] - spans[second][0]),
    }
    assert spans[first][1] - spans[first][0] > 27 * MINUTE


def test_fair_share_after_an_outage_is_as_if_there_had_been_none(platform: Three) -> None:
    """Rule 17: one follower looks all along, one is new; both agree with the closed form over Slurm's own times."""
    half_life_ms = decay.half_life("1h")
    followed = FairShare(platform.ledger, half_life_ms)
    job_id = platform.job("alpha", 8)
    platform.until(lambda: platform.runs(job_id))
    followed.history(platform.clock.now_ms())
    platform.clock.advance(90 * MINUTE)
    platform.slurm.complete(job_id)
    platform.slurm.free(job_id)
    platform.clock.advance(60 * MINUTE)
    platform.run(3)
    now_ms = platform.clock.now_ms()
    span = Held(TeamName("alpha"), System.SLURM, worlds.H100, 8, *ran(platform, job_id))
    expected = decayed([span], now_ms, half_life_ms)
    key = (TeamName("alpha"), worlds.H100)
    assert expected[key] > 2.5
    for follower in (followed, FairShare(platform.ledger, half_life_ms)):
        assert follower.history(now_ms)[key] == pytest.approx(expected[key], rel=1e-9)


def test_a_pod_that_starts_and_stops_during_an_outage_is_charged_by_its_containers_times(platform: Three) -> None:
    begun_ms = platform.clock.now_ms()
    platform.pod("alpha", "web", 8)
    platform.until(lambda: platform.serves("alpha", "web"))
    platform.run(2)
    (grant,) = platform.ledger.grants(holding=True)
    assert grant.state is GrantState.RUNNING
    platform.clock.advance(30 * MINUTE)
    stopped_at = "2027-01-15T08:20:00Z"
    ended = {"state": {"terminated": {"startedAt": "2027-01-15T08:00:01Z", "finishedAt": stopped_at, "exitCode": 0}}}
    platform.kube.patch(
        port.PODS, "web", {"status": {"phase": "Succeeded", "containerStatuses": [ended]}},
        namespace="alpha", subresource="status",
    )  # fmt: skip
    platform.clock.advance(30 * MINUTE)
    platform.cycle.once()
    (row,) = platform.ledger.usage(from_ms=begun_ms, to_ms=platform.clock.now_ms())
    assert grant.running_ms is not None
    assert row.gpu_ms == 8 * (pods.parse_ms(stopped_at) - grant.running_ms)
