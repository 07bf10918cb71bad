"""Q14: a small, deterministic victim set."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.desk import Desk
from bridge.admission.model import Earmark, Policy
from bridge.quota.tree import Tree
from bridge.workloads.model import System
from tests.property.oracle_platform import FLAVORS, Platform, Shape, eights, flat, in_memory

SIZES = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=2, max_size=10)


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 99))
def test_the_same_platform_in_any_order_gives_the_same_victims(seed: int, order: int) -> None:
    """Q14: a crowded platform told to two desks, each in an order of its own."""
    platform = Platform(seed, in_memory(), Shape(preempts=1, endless=0, nodes=3))
    for _ in range(10):
        platform.submit()
    platform.pass_and_record_all()
    platform.now_ms += 600_000
    for _ in range(4):
        platform.submit(priority=3)
    rng, world = random.Random(order), platform.snapshot()
    answers = []
    for _ in range(2):
        desk = Desk(Tree.build(world.specs), FLAVORS, world.policy, world.history)
        parts = [list(part) for part in (world.waiting, world.holdings, world.nodes, world.earmarks)]
        for part in parts:
            rng.shuffle(part)
        waiting, holdings, nodes, marks = parts
        desk.sync(waiting=waiting, holdings=holdings, nodes=nodes, earmarks=marks)  # type: ignore[arg-type]
        answers.append(desk.decide(world.now_ms))
    assert answers[0].preemptions == answers[1].preemptions
    assert answers[0].admitted == answers[1].admitted


def one_reclaim(sizes: list[int], gpus: int, system: System, started: list[int]) -> tuple[Platform, Earmark | None]:
    """Let b borrow 16 with work of these sizes, started one after another, and a ask for `gpus`."""
    platform = Platform(1, in_memory(), specs=flat({"a": 16, "b": 0}), nodes=eights(2), policy=Policy())
    for size, after in zip(sizes, started, strict=False):
        platform.now_ms += after
        platform.ask("b", size, system=system)
        platform.pass_and_record_all()
    platform.now_ms += 1
    platform.ask("a", gpus, system=system)
    return platform, next(iter(platform.decide().preemptions), None)


@settings(max_examples=settings().max_examples // 2, deadline=None)
@given(SIZES, st.sampled_from([1, 2, 4, 8]), st.sampled_from(list(System)), st.lists(st.integers(1, 10_000)))
def test_no_victim_can_be_given_back_and_none_that_lost_less_would_have_done_alone(
    sizes: list[int], gpus: int, system: System, started: list[int]
) -> None:
    """Q14: irreducible (oracle_reclaim tries each); and no single other borrower is both enough and cheaper."""
    started = (started + [1000] * len(sizes))[: len(sizes)]
    platform, mark = one_reclaim(sizes, gpus, system, started)
    if mark is None:
        return
    lost = sum(victim.lost_gpu_ms for victim in mark.victims)
    free = dict.fromkeys(platform.nodes, 8)
    for grant in platform.ledger.grants():
        for name, held in grant.placement.items():
            free[name] -= held
    for grant in platform.ledger.grants():
        started_ms = grant.running_ms
        assert started_ms is not None
        cost = grant.gpus * (platform.now_ms - started_ms)
        enough = any(free[name] + held >= gpus for name, held in grant.placement.items())
        assert not enough or cost >= lost, f"{grant.workload} alone loses {cost} < {lost}"


def test_lower_priority_makes_way_first_then_less_lost_work() -> None:
    """Q14: the stated order, where each of them would be enough alone."""
    platform = Platform(1, in_memory(), specs=flat({"a": 24, "b": 0}), nodes=eights(3), policy=Policy())
    old = platform.ask("b", 8, priority=0)
    platform.pass_and_record_all()
    platform.now_ms += 60_000
    middle = platform.ask("b", 8, priority=0)
    platform.pass_and_record_all()
    platform.now_ms += 60_000
    young = platform.ask("b", 8, priority=1)
    platform.pass_and_record_all()
    platform.now_ms += 60_000
    expected = [middle.id, old.id, young.id]
    for victim in expected:
        platform.ask("a", 8)
        (mark,) = platform.pass_and_record_all().preemptions
        assert [each.workload for each in mark.victims] == [victim]
        platform.end(victim, again=False)
        platform.pass_and_record_all()
