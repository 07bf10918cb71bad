"""Q13: minimum runtime and grace are honoured on both sides, by a controller that may start anew at any moment."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.slurm.model import GraceSignal
from bridge.workloads import pods
from tests.property.controlled import hold_one
from tests.unit.platform_of_three import Three

USR1 = GraceSignal(10, batch=True)
CYCLE_MS = 200
STEPS = st.lists(st.sampled_from([2_000, 7_000, 20_000]), min_size=1, max_size=6)
RESTARTS = st.sets(st.integers(0, 20), max_size=4)
MIN_S, GRACE_S, RAN_S = st.sampled_from([0, 60]), st.sampled_from([0, 5, 45]), st.sampled_from([0, 20, 90])
MOST_CYCLES = 100


@settings(max_examples=6, deadline=None)
@example(min_s=0, grace_s=45, signalled=True, ran_s=20, steps=[2_000], restarts={1, 2, 9})
@example(min_s=60, grace_s=5, signalled=True, ran_s=0, steps=[7_000, 2_000], restarts=set())
@given(MIN_S, GRACE_S, st.booleans(), RAN_S, STEPS, RESTARTS)
def test_a_job_has_its_minimum_and_from_its_one_signal_on_its_whole_grace(
    min_s: int, grace_s: int, signalled: bool, ran_s: int, steps: list[int], restarts: set[int]
) -> None:
    platform = Three({"minRuntime": f"{min_s}s", "grace": f"{grace_s}s"})
    borrowing = hold_one(platform, USR1 if signalled else None)
    began_ms = platform.slurm.job(borrowing).start_ms or 0
    platform.clock.advance(ran_s * 1000)
    asked_ms = platform.clock.now_ms()
    platform.job("alpha", 8)
    told_ms, late_ms = None, 3 * (max(steps) + CYCLE_MS)  # decided, told and put back in a cycle each
    for cycle in range(MOST_CYCLES):
        if not platform.runs(borrowing):
            break
        if cycle in restarts:
            platform.restart()
        platform.clock.advance(steps[cycle % len(steps)])
        before_ms = platform.clock.now_ms()
        platform.run(1)
        told_ms = before_ms if told_ms is None and platform.slurm.signals else told_ms
    ended_ms = platform.clock.now_ms() - CYCLE_MS
    assert not platform.runs(borrowing)
    assert ended_ms >= began_ms + min_s * 1000
    due_ms = max(asked_ms, began_ms + min_s * 1000)
    if signalled:
        assert platform.slurm.signals == [(borrowing, USR1)], "once, whoever started anew"
        assert told_ms is not None
        assert told_ms >= began_ms + min_s * 1000
        assert ended_ms >= told_ms + grace_s * 1000
        due_ms = told_ms + grace_s * 1000
    assert ended_ms <= due_ms + late_ms, "and no more than that"
    platform.ledger.close()


@settings(max_examples=4, deadline=None)
@given(MIN_S, RAN_S, STEPS, RESTARTS)
def test_a_pod_has_its_minimum_and_then_its_own_grace(
    min_s: int, ran_s: int, steps: list[int], restarts: set[int]
) -> None:
    """The grace of a pod is the Eviction API's: it is evicted, never killed."""
    platform = Three({"minRuntime": f"{min_s}s", "grace": "0s"})
    platform.pod("bravo", "lent", 8)
    platform.until(lambda: platform.serves("bravo", "lent"))
    began_ms = pods.started_ms(platform.found("bravo", "lent")) or 0
    within = platform.job("charlie", 4)
    platform.until(lambda: platform.runs(within))
    platform.clock.advance(ran_s * 1000)
    platform.kube.calls.writes.clear()
    platform.job("alpha", 8)
    for cycle in range(MOST_CYCLES):
        if "lent" not in platform.names("bravo"):
            break
        if cycle in restarts:
            platform.restart()
        platform.clock.advance(steps[cycle % len(steps)])
        platform.run(1)
    assert "lent" not in platform.names("bravo")
    assert platform.clock.now_ms() - CYCLE_MS >= began_ms + min_s * 1000
    assert "post.eviction" in platform.kube.calls.writes
    platform.ledger.close()
