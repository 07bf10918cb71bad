"""Q16: gangs do not starve."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.model import Policy
from bridge.quota.model import TeamName
from bridge.workloads.model import Grant, System, Workload
from tests.property.oracle_platform import MINUTE_MS, Platform, eights, flat, in_memory

LIMITS_S = (60, 300, 600)


def end_on_time(platform: Platform) -> None:
    """End everything whose time limit has passed."""
    for holding in platform.holdings():
        if holding.ends_ms is not None and holding.ends_ms <= platform.now_ms:
            platform.end(holding.grant.workload, again=False)


@settings(max_examples=settings().max_examples // 5, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(list(System)), st.booleans())
def test_a_gang_starts_when_what_ran_before_it_has_ended_however_much_small_work_comes(
    seed: int, system: System, own_team: bool
) -> None:
    """Q16: a stream of small work, in its own team or in others, that would fill every gap for ever."""
    rng = random.Random(seed)
    specs = flat({"a": 16, "b": 8, "c": 8})
    platform = Platform(1, in_memory(), specs=specs, nodes=eights(4), policy=Policy(preempts=False))
    small = ["a"] if own_team else ["b", "c"]
    for _ in range(12):
        platform.ask(rng.choice(small), rng.choice([1, 2, 4]), system=system, time_limit_s=rng.choice(LIMITS_S))
    platform.pass_and_record_all()
    latest = max((h.ends_ms or 0 for h in platform.holdings()), default=platform.now_ms)
    gang = platform.ask("a", 8, nodes=2 if not own_team else 4, system=system, time_limit_s=600, priority=1)
    while gang.id not in platform.running():
        assert platform.now_ms <= latest, "everything that ran before it has ended, and it waits still"
        for _ in range(2):
            platform.ask(rng.choice(small), rng.choice([1, 2, 4]), system=system, time_limit_s=rng.choice(LIMITS_S))
        platform.pass_and_record_all()
        platform.now_ms += MINUTE_MS
        end_on_time(platform)
        platform.pass_and_record_all()


def grant_of(platform: Platform, w: Workload) -> Grant:
    return next(grant for grant in platform.ledger.grants() if grant.workload == w.id)


@given(st.integers(1, 20), st.integers(2, 20))
def test_only_what_ends_in_time_may_pass(limit_min: int, until_min: int) -> None:
    """Q16: one node is busy until a known time, the gang waits for both; who ends by then may use the other one."""
    platform = Platform(1, in_memory(), specs=flat({"a": 16}), nodes=eights(2), policy=Policy())
    platform.ask("a", 8, time_limit_s=until_min * 60)
    platform.pass_and_record_all()
    platform.ask("a", 8, nodes=2, priority=1)
    passing = platform.ask("a", 8, time_limit_s=limit_min * 60)
    unlimited = platform.ask("a", 8)
    told = platform.pass_and_record_all()
    assert (passing.id in platform.running()) == (limit_min <= until_min)
    assert unlimited.id in told.waiting


def test_nobody_passes_where_no_end_is_known_and_serving_pods_hold_nobody_back() -> None:
    """Q16: work without a time limit ends some time, so the gang keeps; what serves for ever is not waited for."""
    for endless in (False, True):
        platform = Platform(1, in_memory(), specs=flat({"a": 16}), nodes=eights(2), policy=Policy())
        system = System.KUBERNETES if endless else System.SLURM
        platform.ask("a", 8, system=system, endless=endless)
        platform.pass_and_record_all()
        platform.ask("a", 8, nodes=2, priority=1)
        later = platform.ask("a", 8, time_limit_s=60)
        platform.pass_and_record_all()
        assert (later.id in platform.running()) == endless


def test_a_keeper_within_its_guarantee_is_not_held_back_by_borrowers() -> None:
    """Q16: even where serving pods are in the way, a borrower does not take what it waits for."""
    specs = flat({"a": 16, "b": 0})
    platform = Platform(1, in_memory(), specs=specs, nodes=eights(2), policy=Policy(preempts=False))
    platform.ask("b", 8, system=System.KUBERNETES, endless=True)
    platform.pass_and_record_all()
    platform.ask("a", 8, nodes=2)
    borrower = platform.ask("b", 8)
    platform.pass_and_record_all()
    assert borrower.id not in platform.running()
    assert platform.held() == {TeamName("b"): 8}
