"""Q11: preemption terminates."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.model import Policy, WithinTeam
from bridge.workloads.model import System
from tests.property.oracle_platform import Platform, Shape, a_policy, eights, flat, in_memory

CROWD = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(list(System)), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2)),
    min_size=4,
    max_size=14,
)


def preemptions_until_rest(platform: Platform, most: int) -> int:
    """Let every victim ask again at once, and nothing end by itself; count until nothing is decided any more."""
    count = 0
    for _ in range(most):
        told = platform.pass_and_record_all()
        count += len(told.preemptions)
        platform.now_ms += 600_000  # past every minimum runtime
        for name, mark in platform.marks().items():
            for victim in mark.victims:
                if victim.workload in platform.running():
                    platform.end(victim.workload, again=True)
            if mark.lapses_ms <= platform.now_ms:
                platform.lapse(name)
        if not told.admitted and not told.preemptions and not platform.marks():
            return count
    raise AssertionError(f"{count} preemptions, and no rest")


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(CROWD)
def test_two_teams_never_take_the_same_devices_back_and_forth(crowd: list[tuple[str, System, int, int]]) -> None:
    """Q11: everybody asks again for ever; in the end nobody takes anything from anybody."""
    platform = Platform(1, in_memory(), specs=flat({"a": 6, "b": 6, "c": 4}), nodes=eights(2), policy=Policy())
    for team, system, gpus, priority in crowd:
        platform.ask(team, gpus, system=system, priority=priority)
        platform.pass_and_record_all()
    assert preemptions_until_rest(platform, 60) <= 60


@settings(max_examples=settings().max_examples // 6, deadline=None)
@given(st.integers(0, 2**32))
def test_in_deep_trees_with_preemption_inside_teams_it_comes_to_rest_too(seed: int) -> None:
    """Q11: with priorities that preempt inside a team."""
    platform = Platform(seed, in_memory(), Shape(preempts=1, history=False, nodes=3))
    terms = a_policy(platform.rng, platform.specs, platform.shape).preemption
    inside = {team: replace(each, within_team=WithinTeam.LOWER_PRIORITY) for team, each in terms.items()}
    platform.policy = Policy(inside)
    platform.desk = platform.fresh()
    for _ in range(10):
        platform.submit()
        platform.pass_and_record_all()
    assert preemptions_until_rest(platform, 80) < 80


def test_equal_priorities_of_one_team_never_preempt_each_other() -> None:
    """Q11: inside a team only strictly lower priority makes way."""
    specs = flat({"a": 8})
    inside = Policy({specs[1].name: replace(Policy().of(specs[1].name), within_team=WithinTeam.LOWER_PRIORITY)})
    platform = Platform(1, in_memory(), specs=specs, nodes=eights(1), policy=inside)
    running = platform.ask("a", 8)
    platform.pass_and_record_all()
    platform.ask("a", 8)
    assert platform.decide().preemptions == ()
    higher = platform.ask("a", 8, priority=1)
    told = platform.decide()
    assert [(mark.workload, mark.victims[0].workload) for mark in told.preemptions] == [(higher.id, running.id)]


def test_the_owner_takes_no_more_than_its_guarantee() -> None:
    """Q11: else what it took would be borrowed, and would be taken back."""
    platform = Platform(1, in_memory(), specs=flat({"a": 8, "b": 8}), nodes=eights(2), policy=Policy())
    for _ in range(4):
        platform.ask("b", 4)
    platform.pass_and_record_all()
    platform.ask("a", 4)
    platform.ask("a", 8)
    platform.rest()
    assert platform.held() == {"a": 4, "b": 12}
