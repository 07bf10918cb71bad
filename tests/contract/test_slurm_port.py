"""What the bridge relies on of Slurm, over the fake, and (inside the bridge's image) over a real slurmctld.

tests/contract/test_slurm_real.py runs this module in a container, with SLURM_CONTRACT_CONF set.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import NotFoundError, RejectedError
from bridge.slurm.model import GraceSignal, JobState, Phase
from bridge.slurm.port import JobRef
from tests.contract.slurm_worlds import (
    FakeWorld,
    RealWorld,
    World,
    job,
    node,
    phase,
    reaches,
    submit,
    until,
)

ARGUMENTS: dict[str, tuple[object, ...]] = {
    "release": (["w1"],),
    "annotate": ("text",),
    "signal": (GraceSignal(10),),
}
CONF = os.environ.get("SLURM_CONTRACT_CONF")


@pytest.fixture(scope="module")
def real_world() -> Iterator[RealWorld | None]:
    """One adapter for all tests: what a long-lived bridge has."""
    if CONF is None:
        yield None
        return
    world = RealWorld(Path(CONF))
    yield world
    world.close()


@pytest.fixture(params=["real" if CONF else "fake"])
def world(real_world: RealWorld | None) -> Iterator[World]:
    """Offer an idle cluster."""
    if real_world is None:
        yield FakeWorld()
        return
    real_world.reset()
    yield real_world
    real_world.reset()


def test_ping_answers(world: World) -> None:
    world.slurm.ping()


def test_nodes_tell_their_gpus_by_type_and_are_idle(world: World) -> None:
    seen = {n.name: dict(n.gpus) for n in world.slurm.nodes()}
    assert seen == {"w1": {"h100": 8}, "w2": {"h100": 4}, "w3": {"a100": 4}}
    assert [n.state for n in world.slurm.nodes()] == ["IDLE"] * 3
    assert all(n.started_ms for n in world.slurm.nodes())


def test_a_submitted_job_waits_held_with_its_key_its_owner_and_its_request(world: World) -> None:
    ref = submit(world, gpus=2, nodes=2)
    seen = job(world, ref.job_id)
    assert (seen.key, seen.comment_text, seen.held, seen.admin_held) == (ref.key, "", True, False)
    assert (seen.user, seen.uid, seen.account, seen.name) == ("alice", 2001, "vision", "contract")
    assert (dict(seen.requested.gpus), seen.requested.nodes) == ({"h100": 4}, 2)
    assert phase(world, ref.job_id) is Phase.WAITING
    assert (seen.start_ms, seen.end_ms, seen.nodes, seen.exit_code) == (None, None, (), None)


def test_a_limit_of_601_seconds_is_never_less_for_the_job(world: World) -> None:
    """J8: seconds to minutes, rounded up."""
    limit_s = job(world, submit(world).job_id).time_limit_s
    assert limit_s is not None
    assert 601 <= limit_s <= 660


def test_a_held_job_never_starts(world: World) -> None:
    ref = submit(world)
    released = submit(world)
    world.slurm.release(released, ["w1"])
    reaches(world, released.job_id, Phase.RUNNING)  # the scheduler has passed over the held one by now
    assert phase(world, ref.job_id) is Phase.WAITING


def test_release_runs_the_job_on_exactly_the_given_nodes_with_what_it_asked(world: World) -> None:
    ref = submit(world, gpus=2)
    world.slurm.release(ref, ["w2"])
    seen = reaches(world, ref.job_id, Phase.RUNNING)
    assert (seen.nodes, dict(seen.allocated.gpus), seen.held) == (("w2",), {"h100": 2}, False)
    assert seen.start_ms is not None
    assert dict(node(world, "w2").gpus_allocated) == {"h100": 2}
    assert node(world, "w2").busy


def test_release_of_a_job_of_two_nodes_runs_on_both(world: World) -> None:
    ref = submit(world, gpus=4, nodes=2)
    world.slurm.release(ref, ["w1", "w2"])
    seen = reaches(world, ref.job_id, Phase.RUNNING)
    assert (sorted(seen.nodes), dict(seen.allocated.gpus)) == (["w1", "w2"], {"h100": 8})


def test_release_again_changes_nothing(world: World) -> None:
    ref = submit(world)
    world.slurm.release(ref, ["w1"])
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.RUNNING)
    world.slurm.release(ref, ["w1"])
    assert job(world, ref.job_id).restart_count == 0


def test_a_released_job_waits_for_its_pinned_node_though_another_is_free(world: World) -> None:
    first, second = submit(world, gpus=4), submit(world, gpus=4)
    world.slurm.release(first, ["w2"])
    reaches(world, first.job_id, Phase.RUNNING)
    world.slurm.release(second, ["w2"])
    third = submit(world, gpus=1)
    world.slurm.release(third, ["w1"])
    reaches(world, third.job_id, Phase.RUNNING)
    assert phase(world, second.job_id) is Phase.WAITING
    world.slurm.cancel(first)
    reaches(world, second.job_id, Phase.RUNNING)


@pytest.mark.parametrize("verb", ["release", "hold", "requeue", "signal", "cancel", "annotate"])
def test_a_job_id_that_is_a_strangers_by_now_is_not_touched(world: World, verb: str) -> None:
    """J12."""
    ref = submit(world)
    stale = JobRef(ref.job_id, "job-somebodyelses")
    arguments = ARGUMENTS.get(verb, ())
    before = job(world, ref.job_id)
    with pytest.raises(NotFoundError):
        getattr(world.slurm, verb)(stale, *arguments)
    assert job(world, ref.job_id) == before


@pytest.mark.parametrize("verb", ["release", "hold", "requeue", "signal", "cancel", "annotate"])
def test_a_job_that_slurmctld_does_not_know_is_not_found(world: World, verb: str) -> None:
    arguments = ARGUMENTS.get(verb, ())
    with pytest.raises(NotFoundError):
        getattr(world.slurm, verb)(JobRef(999_999, "job-nobody"), *arguments)


def test_hold_lets_a_running_job_run_on(world: World) -> None:
    """J13."""
    ref = submit(world)
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.RUNNING)
    world.slurm.hold(ref)
    seen = job(world, ref.job_id)
    assert (seen.state, seen.held, seen.admin_held) == (JobState.RUNNING, True, True)


def test_requeue_lands_held_and_a_second_release_runs_it_again_elsewhere(world: World) -> None:
    ref = submit(world)
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.RUNNING)
    world.slurm.hold(ref)
    world.slurm.requeue(ref)
    seen = reaches(world, ref.job_id, Phase.WAITING)
    assert (seen.held, seen.restart_count, seen.nodes, seen.start_ms) == (True, 1, (), None)
    assert (seen.key, seen.allocated.gpu_total) == (ref.key, 0)
    world.slurm.release(ref, ["w2"])
    assert reaches(world, ref.job_id, Phase.RUNNING).nodes == ("w2",)


def test_requeue_of_a_waiting_job_only_holds_it(world: World) -> None:
    ref = submit(world)
    world.slurm.requeue(ref)
    seen = job(world, ref.job_id)
    assert (seen.held, seen.restart_count, phase(world, ref.job_id)) == (True, 0, Phase.WAITING)


def test_what_ended_is_neither_released_nor_requeued(world: World) -> None:
    ref = submit(world)
    world.slurm.cancel(ref)
    reaches(world, ref.job_id, Phase.ENDED)
    with pytest.raises(RejectedError):
        world.slurm.release(ref, ["w1"])
    with pytest.raises(RejectedError):
        world.slurm.requeue(ref)
    assert phase(world, ref.job_id) is Phase.ENDED


def test_a_failed_job_is_retried_held_as_the_same_job_and_a_completed_one_is_not(world: World) -> None:
    ref = submit(world, exits=3)
    world.slurm.release(ref, ["w1"])
    assert reaches(world, ref.job_id, Phase.ENDED).state is JobState.FAILED
    world.slurm.retry(ref)
    seen = reaches(world, ref.job_id, Phase.WAITING)
    assert (seen.held, seen.restart_count, seen.key) == (True, 1, ref.key)
    world.slurm.retry(ref)
    assert job(world, ref.job_id).restart_count == 1


def test_a_running_job_gets_its_signal_and_runs_on_and_a_waiting_one_none(world: World) -> None:
    ref = submit(world, traps=True)
    world.slurm.signal(ref, GraceSignal(10, batch=True))  # it waits: nobody to tell
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.RUNNING)
    world.slurm.signal(ref, GraceSignal(12))  # no step runs but the batch shell, which this is not for
    assert phase(world, ref.job_id) is Phase.RUNNING
    world.settle()
    world.slurm.signal(ref, GraceSignal(10, batch=True))
    assert reaches(world, ref.job_id, Phase.ENDED).exit_code == 7


def test_a_signal_for_what_has_ended_is_fine(world: World) -> None:
    ref = submit(world, exits=0)
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.ENDED)
    world.slurm.signal(ref, GraceSignal(10, batch=True))


def test_a_users_signal_and_nice_are_seen_and_outlive_an_annotation(world: World) -> None:
    job_id = world.sbatch(1, options=("--nice=100",), script_options=("--signal=B:USR1@60",))
    seen = job(world, job_id)
    assert (seen.signal, seen.nice, seen.batch) == (GraceSignal(10, batch=True), 100, True)
    world.slurm.annotate(JobRef(job_id, seen.key), "waits")
    again = job(world, job_id)
    assert (again.comment_text, again.key, again.signal) == ("waits", seen.key, seen.signal)
    on_the_line = world.sbatch(1, options=("--signal=USR2",))
    assert job(world, on_the_line).signal == GraceSignal(12)


def test_cancel_ends_a_waiting_job_that_never_ran(world: World) -> None:
    """J2."""
    ref = submit(world)
    world.slurm.cancel(ref)
    seen = reaches(world, ref.job_id, Phase.ENDED)
    assert (seen.state, seen.nodes) == (JobState.CANCELLED, ())


def test_cancel_ends_a_running_job_and_may_be_repeated(world: World) -> None:
    ref = submit(world, gpus=2)
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.RUNNING)
    world.slurm.cancel(ref)
    world.slurm.cancel(ref)
    seen = reaches(world, ref.job_id, Phase.ENDED)
    world.slurm.cancel(ref)
    assert seen.state is JobState.CANCELLED
    assert seen.end_ms is not None
    until(world, "its node is free", lambda: not node(world, "w1").busy and not node(world, "w1").gpus_allocated)


@pytest.mark.parametrize(("code", "state"), [(0, JobState.COMPLETED), (3, JobState.FAILED)])
def test_a_job_that_ends_by_itself_tells_its_exit_code(world: World, code: int, state: JobState) -> None:
    ref = submit(world, exits=code)
    world.slurm.release(ref, ["w1"])
    seen = reaches(world, ref.job_id, Phase.ENDED)
    assert (seen.state, seen.exit_code, seen.exit_signal) == (state, code, None)
    assert seen.nodes == ("w1",)
    assert seen.start_ms is not None
    assert seen.end_ms is not None
    assert seen.start_ms <= seen.end_ms


def test_annotate_puts_the_text_behind_the_key(world: World) -> None:
    ref = submit(world)
    for text in ("waiting: 3 of 8 free", "waiting: 3 of 8 free", "granted | on w1", ""):
        world.slurm.annotate(ref, text)
        seen = job(world, ref.job_id)
        assert (seen.key, seen.comment_text) == (ref.key, text)


def test_a_users_gpu_job_is_held_under_a_key_of_its_own_and_a_cpu_job_is_not(world: World) -> None:
    first, second, plain = world.sbatch(2), world.sbatch(2), world.sbatch(0)
    keys = {job(world, first).key, job(world, second).key}
    assert len(keys) == 2
    assert all(len(key) >= 16 for key in keys)
    assert (job(world, first).held, dict(job(world, first).requested.gpus)) == (True, {"": 2})
    assert (job(world, plain).key, job(world, plain).held) == ("", False)
    reaches(world, plain, Phase.RUNNING)
    assert phase(world, first) is Phase.WAITING


def test_an_untyped_request_gets_the_types_of_its_nodes(world: World) -> None:
    job_id = world.sbatch(2)
    world.slurm.release(JobRef(job_id, job(world, job_id).key), ["w1"])
    assert dict(reaches(world, job_id, Phase.RUNNING).allocated.gpus) == {"h100": 2}


def test_an_array_is_one_record_until_a_task_is_released(world: World) -> None:
    """J7."""
    array = world.sbatch(1, array=[0, 1, 2, 3, 7])
    whole = job(world, array)
    assert (whole.array_job_id, whole.array_task_id, whole.array_tasks) == (array, None, (0, 1, 2, 3, 7))
    world.slurm.release(JobRef(array, whole.key, task=2), ["w1"])
    until(world, "task 2 runs", lambda: _task(world, array, 2) is not None and _runs(world, array, 2))
    assert job(world, array).array_tasks == (0, 1, 3, 7)
    assert job(world, array).held
    task = next(j for j in world.slurm.jobs() if j.array_task_id == 2 and j.array_job_id == array)
    assert (task.key, task.nodes, dict(task.allocated.gpus)) == (whole.key, ("w1",), {"h100": 1})


def test_a_long_array_is_told_in_full(world: World) -> None:
    """Slurm shortens long lists of tasks; half a list would be half a workload."""
    tasks = tuple(range(1, 400, 2))
    assert job(world, world.sbatch(1, array=tasks)).array_tasks == tasks


def test_one_task_of_an_array_is_cancelled_alone(world: World) -> None:
    array = world.sbatch(1, array=[0, 1, 2])
    key = job(world, array).key
    world.slurm.cancel(JobRef(array, key, task=1))
    until(world, "task 1 is gone from the rest", lambda: 1 not in job(world, array).array_tasks)
    assert job(world, array).array_tasks == (0, 2)
    assert phase(world, array) is Phase.WAITING


def test_a_running_task_is_requeued_alone_and_lands_held(world: World) -> None:
    array = world.sbatch(1, array=[0, 1])
    key = job(world, array).key
    world.slurm.release(JobRef(array, key, task=0), ["w1"])
    until(world, "task 0 runs", lambda: _runs(world, array, 0))
    task = _task(world, array, 0)
    assert task is not None
    world.slurm.requeue(JobRef(task, key))
    assert reaches(world, task, Phase.WAITING).held
    assert job(world, array).array_tasks == (1,)


def test_our_drain_is_set_and_lifted(world: World) -> None:
    """N4, N5."""
    world.slurm.drain("w1", "bridge: node cordoned")
    world.slurm.drain("w1", "bridge: node cordoned")
    seen = node(world, "w1")
    assert (seen.drained_by_bridge, seen.reason, seen.state) == (True, "bridge: node cordoned", "IDLE")
    world.slurm.undrain("w1")
    assert "DRAIN" not in node(world, "w1").flags
    world.slurm.undrain("w1")


def test_a_new_cause_replaces_our_own_reason(world: World) -> None:
    world.slurm.drain("w1", "bridge: node cordoned")
    world.slurm.drain("w1", "bridge: scale down")
    assert node(world, "w1").reason == "bridge: scale down"


def test_a_foreign_drain_is_neither_overwritten_nor_lifted(world: World) -> None:
    """N4."""
    world.drain_as_admin("w1", "ECC errors")
    world.slurm.drain("w1", "bridge: node cordoned")
    with pytest.raises(RejectedError, match="ECC errors"):
        world.slurm.undrain("w1")
    seen = node(world, "w1")
    assert (seen.reason, "DRAIN" in seen.flags, seen.drained_by_bridge) == ("ECC errors", True, False)


def test_a_drained_node_keeps_its_job_and_takes_no_other(world: World) -> None:
    ref, late = submit(world), submit(world)
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.RUNNING)
    world.slurm.drain("w1", "bridge: node cordoned")
    world.slurm.release(late, ["w1"])
    other = submit(world)
    world.slurm.release(other, ["w2"])
    reaches(world, other.job_id, Phase.RUNNING)
    assert phase(world, ref.job_id) is Phase.RUNNING
    assert phase(world, late.job_id) is Phase.WAITING
    assert node(world, "w1").busy


def test_a_node_that_runs_a_job_is_not_forgotten(world: World) -> None:
    ref = submit(world)
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.RUNNING)
    with pytest.raises(RejectedError):
        world.slurm.forget("w1")
    assert node(world, "w1").busy


@pytest.mark.parametrize("verb", ["drain", "undrain", "forget"])
def test_a_node_that_slurmctld_does_not_know_is_not_found(world: World, verb: str) -> None:
    arguments = ["bridge: test"] if verb == "drain" else []
    with pytest.raises(NotFoundError):
        getattr(world.slurm, verb)("w99", *arguments)


def test_reconfigure_keeps_jobs_and_nodes(world: World) -> None:
    ref = submit(world)
    world.slurm.release(ref, ["w1"])
    reaches(world, ref.job_id, Phase.RUNNING)
    world.slurm.reconfigure()
    until(world, "all nodes are usable", lambda: len([n for n in world.slurm.nodes() if n.state != "DOWN"]) == 3)
    assert phase(world, ref.job_id) is Phase.RUNNING


def _task(world: World, array: int, task: int) -> int | None:
    found = [j.job_id for j in world.slurm.jobs() if (j.array_job_id, j.array_task_id) == (array, task)]
    return found[0] if found else None


def _runs(world: World, array: int, task: int) -> bool:
    job_id = _task(world, array, task)
    return job_id is not None and phase(world, job_id) is Phase.RUNNING
