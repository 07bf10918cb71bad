"""Q20: one query explains a wait, and agrees with the decision."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.quota.model import TeamName
from bridge.workloads.model import System
from bridge.workloads.reasons import Reason
from tests.property import oracle
from tests.property.oracle_platform import FLAVORS, Platform, Shape, eights, flat, in_memory

H100 = FLAVORS[0]


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32))
def test_everything_that_waits_has_one_reason_which_is_what_blocks_it(seed: int) -> None:
    """Q20: each decision's reason is compared with what the naive rules find in the way (see oracle.blockers)."""
    platform = Platform(seed, in_memory(), Shape(teams=5, nodes=3))
    for _ in range(15):
        platform.step()
    told = platform.decide()
    asked = {w.id for w in platform.snapshot().waiting}
    assert {placed.workload.id for placed in told.admitted} | set(told.waiting) == asked
    for name in told.waiting:
        assert told.waiting[name].text


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32))
def test_the_numbers_of_a_wait_for_quota_are_those_that_decide(seed: int) -> None:
    """Q20: `available` is the most that would be granted: one more is refused by the naive rule, as much is not."""
    platform = Platform(seed, in_memory(), Shape(teams=6, nodes=5, endless=0, preempts=0))
    for _ in range(14):
        platform.submit(time_limit_s=None)
    told = platform.decide()
    platform.carry_out(told)
    told = platform.decide()
    held = platform.held()
    for w in platform.snapshot().waiting:
        waits = told.waiting.get(w.id)
        if waits is None or waits.reason is not Reason.QUOTA or w.flavor != H100:
            continue
        room = waits.numbers["available"]
        assert isinstance(room, int)
        assert waits.numbers["asks"] == w.gpus
        assert room < w.gpus
        assert not oracle.quota_fits(platform.specs, H100, w.team, room + 1, held)
        assert room <= 0 or oracle.quota_fits(platform.specs, H100, w.team, room, held)
        binding = waits.numbers["binding"]
        assert binding in {spec.name for spec in platform.specs}
        assert str(binding) in waits.text


@given(st.integers(1, 16), st.sampled_from(list(System)))
def test_what_would_never_fit_is_refused_at_once_with_what_could(gpus: int, system: System) -> None:
    """Q20: over the limit of its team is final, also while the platform is empty or full."""
    platform = Platform(1, in_memory(), specs=flat({"a": 4, "b": 4}), nodes=eights(2))
    w = platform.ask("a", gpus, system=system)
    waits = platform.decide().waiting.get(w.id)
    if gpus <= 8:
        assert waits is None or not waits.final
        return
    assert waits is not None
    assert waits.final
    assert waits.reason in (Reason.NEVER_FITS_QUOTA, Reason.NEVER_FITS_NODES)
    assert "8" in waits.text


@given(st.integers(1, 30), st.integers(1, 8))
def test_the_earliest_start_is_when_the_work_in_the_way_ends_and_then_it_starts(minutes: int, gpus: int) -> None:
    """Q20: a bound that is told is kept: not before it, and at it when nothing else came."""
    platform = Platform(1, in_memory(), specs=flat({"a": 8}), nodes=eights(1))
    running = platform.ask("a", 8, time_limit_s=minutes * 60)
    platform.pass_and_record_all()
    w = platform.ask("a", gpus)
    waits = platform.decide().waiting[w.id]
    assert waits.numbers["earliest_ms"] == platform.now_ms + minutes * 60_000
    assert "a" in str(waits.numbers["holders"])
    platform.now_ms += minutes * 60_000
    platform.end(running.id, again=False)
    assert w.id in {placed.workload.id for placed in platform.decide().admitted}
    assert TeamName("a") == w.team
