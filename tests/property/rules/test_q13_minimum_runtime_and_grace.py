"""Q13: minimum runtime and grace on both sides."""

from hypothesis import given
from hypothesis import strategies as st

from bridge.admission.model import Policy, Preemption
from bridge.quota.model import TeamName
from bridge.workloads.model import System
from tests.property.oracle_platform import Platform, eights, flat, in_memory

SYSTEMS = st.sampled_from(list(System))
SPANS = st.integers(0, 600_000)


@given(SYSTEMS, SYSTEMS, SPANS, SPANS, st.integers(0, 120_000))
def test_no_victim_before_its_teams_minimum_runtime_and_each_has_its_teams_grace(
    owner: System, borrower: System, least_ms: int, ran_ms: int, grace_ms: int
) -> None:
    """Q13: the victim's team's terms, whatever the preemptor's are, and whichever system either uses."""
    terms = {
        TeamName("a"): Preemption(min_runtime_ms=0, grace_ms=7),
        TeamName("b"): Preemption(min_runtime_ms=least_ms, grace_ms=grace_ms),
    }
    policy = Policy(terms)
    platform = Platform(1, in_memory(), specs=flat({"a": 8, "b": 0}), nodes=eights(1), policy=policy)
    platform.ask("b", 8, system=borrower)
    platform.pass_and_record_all()
    platform.now_ms += ran_ms
    platform.ask("a", 8, system=owner)
    told = platform.decide()
    assert bool(told.preemptions) == (ran_ms >= least_ms)
    for mark in told.preemptions:
        assert [victim.grace_ms for victim in mark.victims] == [grace_ms]
        assert mark.lapses_ms == platform.now_ms + grace_ms + policy.earmark_margin_ms
    if ran_ms < least_ms:
        assert told.next_ms is not None
        assert platform.now_ms < told.next_ms <= platform.now_ms + least_ms - ran_ms, "it is looked at again in time"
        platform.now_ms += least_ms - ran_ms
        assert platform.decide().preemptions


@given(st.permutations([5_000, 60_000, 600_000]), SYSTEMS)
def test_the_earmark_lasts_until_the_longest_grace_of_its_victims(graces: list[int], system: System) -> None:
    """Q13: three victims of three teams, each with a grace of its own."""
    names = [TeamName(name) for name in ("b", "c", "d")]
    policy = Policy({name: Preemption(grace_ms=grace) for name, grace in zip(names, graces, strict=True)})
    specs = flat({"a": 9, "b": 0, "c": 0, "d": 0})
    platform = Platform(1, in_memory(), specs=specs, nodes=eights(2), policy=policy)
    for name in names:
        platform.ask(name, 4, system=system)
    platform.pass_and_record_all()
    platform.ask("a", 4, nodes=2, system=system)
    (mark,) = platform.decide().preemptions
    longest = max(victim.grace_ms for victim in mark.victims)
    assert all(victim.grace_ms == policy.of(victim.team).grace_ms for victim in mark.victims)
    assert mark.lapses_ms == platform.now_ms + longest + policy.earmark_margin_ms
