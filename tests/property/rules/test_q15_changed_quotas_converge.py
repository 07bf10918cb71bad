"""Q15: lowering a quota converges; so do raised ones, and teams that are moved or removed, with their parents."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.model import Policy
from bridge.quota.model import Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import System
from bridge.workloads.reasons import Reason
from tests.property import oracle
from tests.property.oracle_platform import FLAVORS, Platform, Shape, eights, flat, in_memory

H100 = FLAVORS[0]


def overage(platform: Platform) -> dict[TeamName, int]:
    """Return by how much each subtree is above its limit, each root also above its guarantee."""
    known = {spec.name for spec in platform.specs}
    held = {team: gpus for team, gpus in platform.held().items() if team in known}
    found = {}
    for spec in platform.specs:
        quota = spec.quotas.get(H100)
        total = oracle.total_of(platform.specs, spec.name, held)
        bounds = [quota.limit] if quota is not None and quota.limit is not None else []
        if spec.parent is None and quota is not None:
            bounds.append(quota.guarantee)
        found[spec.name] = max([0, *(total - bound for bound in bounds)])
    return found


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32))
def test_after_any_change_the_overage_only_shrinks_and_is_gone_when_work_has_ended(seed: int) -> None:
    """Q15: a crowded platform gets wholly other quotas; nothing granted adds overage, and in the end none is left."""
    platform = Platform(seed, in_memory(), Shape(endless=0, preempts=0, faults=False))
    for _ in range(12):
        platform.submit()
    platform.pass_and_record_all()
    platform.change_quotas()
    before = overage(platform)
    for _ in range(40):
        platform.pass_and_record_all()
        now = overage(platform)
        assert all(now[name] <= before[name] for name in now), f"{before} -> {now}"
        before = now
        if not platform.running():
            break
        platform.end(min(platform.running()), again=False)
    assert not any(before.values())


def moved(specs: list[TeamSpec], changes: Mapping[str, TeamSpec | None]) -> list[TeamSpec]:
    """Replace or remove teams."""
    kept = (changes.get(spec.name, spec) for spec in specs)
    return [spec for spec in kept if spec is not None]


def deep() -> list[TeamSpec]:
    """Make root > (left > (a, b), right > c), guarantees 8 4 4, root 16."""

    def team(name: str, parent: str | None, guarantee: int) -> TeamSpec:
        return TeamSpec(TeamName(name), None if parent is None else TeamName(parent), 1, {H100: Quota(guarantee)})

    return [
        team("root", None, 16),
        team("left", "root", 12),
        team("right", "root", 4),
        team("a", "left", 8),
        team("b", "left", 4),
        team("c", "right", 4),
    ]


CHANGES: dict[str, Mapping[str, TeamSpec | None]] = {
    "lowered": {"b": replace(deep()[4], quotas={H100: Quota(0, limit=0)})},
    "raised": {"b": replace(deep()[4], quotas={H100: Quota(4, limit=16)})},
    "moved": {"b": replace(deep()[4], parent=TeamName("right"), quotas={H100: Quota(0)})},
    "removed": {"b": None},
    "parent removed": {"right": None, "c": replace(deep()[5], parent=TeamName("root"))},
    "limit below what is held": {"left": replace(deep()[1], quotas={H100: Quota(12, limit=12)})},
}


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("system", list(System))
def test_teams_within_their_guarantee_are_not_touched(change: str, system: System) -> None:
    """Q15: b borrows a's 8 beside its own; whatever happens to b or the tree, c keeps its 4, and a gets its 8."""
    platform = Platform(1, in_memory(), specs=deep(), nodes=eights(2), policy=Policy())
    quiet = platform.ask("c", 4, system=system, priority=5)
    for _ in range(3):
        platform.ask("b", 4, system=system)
    platform.pass_and_record_all()
    assert platform.held() == {"b": 12, "c": 4}
    platform.specs = moved(platform.specs, CHANGES[change])
    platform.desk.reorganise(Tree.build(platform.specs), platform.policy, FLAVORS)
    asked = [platform.ask("a", 4, system=system) for _ in range(2)]
    for _ in range(12):
        told = platform.pass_and_record_all()
        assert quiet.id not in {v.workload for mark in told.preemptions for v in mark.victims}
        for victim in [v.workload for mark in platform.marks().values() for v in mark.victims]:
            platform.end(victim, again=True)
    assert quiet.id in platform.running()
    assert {w.id for w in asked} <= platform.running()


@given(st.integers(0, 16), st.integers(1, 8))
def test_while_a_team_is_over_nothing_more_is_granted_to_it_and_the_numbers_say_so(limit: int, gpus: int) -> None:
    """Q15: negative room is told as it is, never as zero or as a grant."""
    platform = Platform(1, in_memory(), specs=flat({"a": 16}), nodes=eights(3), policy=Policy(preempts=False))
    platform.ask("a", 8)
    platform.ask("a", 8)
    platform.pass_and_record_all()
    root, a = platform.specs
    platform.specs = [root, replace(a, quotas={H100: Quota(0, limit=limit)})]
    platform.desk.reorganise(Tree.build(platform.specs), platform.policy, FLAVORS)
    asked = platform.ask("a", gpus)
    told = platform.decide()
    assert told.admitted == ()
    waits = told.waiting[asked.id]
    assert waits.reason is (Reason.QUOTA if gpus <= limit else Reason.NEVER_FITS_QUOTA)
    balances = Balances(Tree.build(platform.specs), {(TeamName("a"), H100): 16})
    assert balances.available(TeamName("a"), H100) == limit - 16
