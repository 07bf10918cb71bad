"""Q6: orphans die, and never block their owner's deletion."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import NotFoundError, UnknownStateError
from bridge.kube import port
from bridge.slurm import states
from bridge.slurm.model import Phase
from tests.unit import test_controller_plan as batch
from tests.unit.test_controller_cycle import Platform

MOST_CYCLES = 80


def apply_job(platform: Platform) -> None:
    made = batch.batch_job()
    del made["metadata"]["uid"]
    platform.kube.create(port.JOBS, {"apiVersion": "batch/v1", "kind": "Job", **made}, namespace="vision")


def outage(platform: Platform, cycles: int) -> None:
    """Let slurmctld be away for some cycles."""
    platform.slurm.go_away(UnknownStateError("connection refused"))
    for _ in range(cycles):
        platform.cycle.once()
        platform.clock.advance(200)
    platform.slurm.come_back()


def is_there(platform: Platform) -> bool:
    try:
        platform.kube.get(port.JOBS, "train", namespace="vision")
    except NotFoundError:
        return False
    return True


def alive(platform: Platform) -> list[int]:
    """Return the Slurm jobs that run or could still run."""
    over = Phase.ENDED
    return [job.job_id for job in platform.slurm._jobs.values() if states.phase(job.state, job.flags) is not over]


@settings(max_examples=max(8, settings().max_examples // 6), deadline=None)
@given(st.integers(0, 12), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_a_job_deleted_at_any_moment_takes_its_slurm_job_along_and_goes(
    cycles: int, away_before: int, away_after: int, completes: bool
) -> None:
    """Q6: before it was submitted, while it waits or runs or ends, and with slurmctld away around it."""
    platform = Platform()
    apply_job(platform)
    platform.run(cycles)
    outage(platform, away_before)
    running = [i for i in alive(platform) if platform.slurm.job(i).state.value == "RUNNING"]
    if completes and running:
        platform.slurm.complete(running[0])
    platform.kube.delete(port.JOBS, "train", namespace="vision")
    outage(platform, away_after)
    for _ in range(MOST_CYCLES):
        platform.run(1)
        platform.clock.advance(400)
        for job in list(platform.slurm._jobs.values()):
            if states.phase(job.state, job.flags) is Phase.ENDING:
                platform.slurm.free(job.job_id)
        if not is_there(platform) and not alive(platform) and not platform.ledger.grants():
            break
    assert not is_there(platform), "its deletion is blocked"
    assert alive(platform) == [], "an orphan lives on"
    assert not platform.ledger.grants()
    assert not platform.ledger.verify()
    platform.ledger.close()


def test_the_owner_waits_for_the_end_and_not_longer() -> None:
    """Q6: what runs is ended first; the finalizer goes when that was seen, not when it was asked for."""
    platform = Platform()
    apply_job(platform)
    platform.until(lambda: any(job.state.value == "RUNNING" for job in platform.slurm._jobs.values()))
    platform.kube.delete(port.JOBS, "train", namespace="vision")
    platform.run(4)
    (job,) = platform.slurm._jobs.values()
    assert job.state.value == "CANCELLED"
    if states.phase(job.state, job.flags) is Phase.ENDING:
        assert is_there(platform)
        platform.slurm.free(job.job_id)
    platform.until(lambda: not is_there(platform))
    platform.ledger.close()
