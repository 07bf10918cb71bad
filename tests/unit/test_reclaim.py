"""Reclaim by example: who makes way, in which order, on which nodes."""

from collections.abc import Mapping, Sequence

import pytest

from bridge.admission import potential, reclaim
from bridge.admission.model import Holding, Policy, Preemption, WithinTeam
from bridge.admission.reclaim import Reclaim
from bridge.admission.supply import NodeSupply
from bridge.errors import BrokenInvariantError
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId

FLAVOR = FlavorName("h100")
NOW_MS = 1_000_000
SLURM, PODS = System.SLURM, System.KUBERNETES


def _team(name: str, guarantee: int, parent: str | None = "org", limit: int | None = None, weight: int = 1) -> TeamSpec:
    above = None if parent is None else TeamName(parent)
    return TeamSpec(TeamName(name), above, weight, {FLAVOR: Quota(guarantee, limit)})


ORG = (_team("org", 16, None), _team("a", 8), _team("b", 8), _team("c", 0))


def _held(
    name: str,
    team: str,
    system: System,
    placement: Mapping[str, int],
    ran_s: int = 100,
    priority: int = 0,
    shield: str = "",
    *,
    leaving: bool = False,
) -> Holding:
    grant = Grant(
        WorkloadId(name),
        1,
        TeamName(team),
        FLAVOR,
        system,
        sum(placement.values()),
        GrantState.RUNNING,
        {NodeName(node): gpus for node, gpus in placement.items()},
        running_ms=NOW_MS - 1000 * ran_s,
    )
    return Holding(grant, priority, shield=shield, leaving=leaving)


def _asks(team: str, system: System, gpus: int, nodes: int = 1, priority: int = 0) -> Workload:
    return Workload(WorkloadId("w"), system, TeamName(team), FLAVOR, nodes, gpus, 0, priority=priority)


def _find(
    workload: Workload,
    holdings: Sequence[Holding],
    *,
    specs: Sequence[TeamSpec] = ORG,
    nodes: int = 2,
    policy: Policy | None = None,
    changed: Mapping[str, NodeSupply] | None = None,
) -> Reclaim | None:
    used: dict[tuple[TeamName, FlavorName], int] = {}
    there: dict[tuple[str, System], int] = {}
    for grant in (holding.grant for holding in holdings):
        used[grant.team, FLAVOR] = used.get((grant.team, FLAVOR), 0) + grant.gpus
        for node, gpus in grant.placement.items():
            there[node, grant.system] = there.get((node, grant.system), 0) + gpus
    supplies = {
        NodeName(name): NodeSupply(
            NodeName(name), FLAVOR, 8, slurm=there.get((name, SLURM), 0), pods=there.get((name, PODS), 0)
        )
        for name in (f"n{index}" for index in range(nodes))
    }
    supplies.update({NodeName(name): node for name, node in (changed or {}).items()})
    return reclaim.find(
        workload,
        balances=Balances(Tree.build(specs), used),
        holdings=holdings,
        nodes=supplies,
        policy=policy or Policy(),
        now_ms=NOW_MS,
    )


def _names(found: Reclaim | None) -> list[str]:
    assert found is not None
    return [victim.workload for victim in found.victims]


def test_a_guarantee_comes_back_from_pods_and_from_jobs_alike() -> None:
    """Rule 9: whichever system the borrower uses, for whichever system the owner asks."""
    for borrower in System:
        for owner in System:
            held = [_held("own", "b", borrower, {"n0": 8}), _held("lent", "b", borrower, {"n1": 8})]
            assert len(_names(_find(_asks("a", owner, 8), held))) == 1


def test_the_owner_takes_no_more_than_is_guaranteed_to_it() -> None:
    held = [_held("a1", "a", SLURM, {"n0": 4}), _held("b1", "b", SLURM, {"n0": 4}), _held("b2", "b", SLURM, {"n1": 8})]
    assert _find(_asks("a", SLURM, 5), held) is None
    assert _names(_find(_asks("a", SLURM, 4), held)) == ["b1"]


def test_a_borrower_is_never_helped() -> None:
    held = [_held("a1", "a", SLURM, {"n0": 8}), _held("b1", "b", SLURM, {"n1": 8})]
    assert _find(_asks("c", SLURM, 1), held) is None


def test_lower_priority_goes_first_then_the_least_lost_work_then_the_latest_start() -> None:
    """Rule 14: the stated order."""
    held = [
        _held("old", "c", PODS, {"n0": 2}, ran_s=900),
        _held("low", "c", PODS, {"n0": 2}, ran_s=950, priority=-1),
        _held("young", "c", PODS, {"n0": 2}, ran_s=10),
        _held("urgent", "c", PODS, {"n0": 2}, ran_s=1, priority=5),
        _held("b", "b", PODS, {"n1": 8}),
    ]
    assert _names(_find(_asks("a", PODS, 2), held)) == ["low"]
    assert _names(_find(_asks("a", PODS, 4), held)) == ["low", "young"]
    assert _names(_find(_asks("a", PODS, 6), held)) == ["low", "young", "old"]


def test_a_node_serves_one_system_so_all_pods_make_way_for_a_job() -> None:
    held = [
        _held("p1", "c", PODS, {"n0": 1}, ran_s=500),
        _held("p2", "c", PODS, {"n0": 1}, ran_s=500),
        _held("j1", "b", SLURM, {"n1": 8}),
    ]
    assert sorted(_names(_find(_asks("a", SLURM, 1), held))) == ["p1", "p2"]


def test_a_gang_on_two_nodes_is_one_victim() -> None:
    held = [
        _held("gang", "b", SLURM, {"n0": 4, "n1": 4}, ran_s=10),
        _held("x", "c", SLURM, {"n0": 4}, ran_s=20),
        _held("y", "c", SLURM, {"n1": 4}, ran_s=20),
    ]
    found = _find(_asks("a", SLURM, 4, nodes=2), held)
    assert sorted(_names(found)) == ["x", "y"]  # the gang would take b from 8 to 0, below its guarantee
    shielded = [held[0], _held("x", "c", SLURM, {"n0": 4}, shield="no"), _held("y", "c", SLURM, {"n1": 4}, shield="no")]
    assert _find(_asks("a", SLURM, 4, nodes=2), shielded) is None  # b is within its guarantee: not even its gang


def test_a_gang_that_crosses_the_guarantee_goes_only_when_nothing_else_frees_enough() -> None:
    specs = (_team("org", 16, None), _team("a", 8), _team("b", 6), _team("c", 2))
    gang = _held("gang", "b", SLURM, {"n0": 8}, ran_s=1)
    small = [_held(f"c{i}", "c", SLURM, {"n1": 2}, ran_s=900) for i in range(4)]
    assert _names(_find(_asks("a", SLURM, 6), [gang, *small], specs=specs)) == ["c0", "c1", "c2"]
    assert _names(_find(_asks("a", SLURM, 8), [gang, *small], specs=specs)) == ["gang"]


def test_a_childs_guarantee_is_reclaimed_inside_its_parent_even_when_the_parent_borrows() -> None:
    specs = (
        _team("org", 16, None),
        _team("a", 8),
        _team("a1", 4, "a"),
        _team("a2", 4, "a"),
        _team("b", 8),
    )
    held = [
        _held("a2", "a2", SLURM, {"n0": 8}, ran_s=50),
        _held("b", "b", SLURM, {"n1": 4}),
        _held("c", "a2", SLURM, {"n1": 4}, ran_s=60),
    ]
    assert _names(_find(_asks("a1", SLURM, 4), held, specs=specs)) == ["c"]


def test_a_leaf_reclaims_out_of_what_its_parent_holds() -> None:
    specs = (_team("org", 16, None), _team("a", 8), _team("a1", 0, "a"), _team("b", 8))
    held = [_held("b1", "b", SLURM, {"n0": 8}), _held("b2", "b", SLURM, {"n1": 8})]
    assert len(_names(_find(_asks("a1", SLURM, 8), held, specs=specs))) == 1


def test_a_parents_own_part_is_taken_back_from_its_children_and_the_reverse() -> None:
    specs = (_team("org", 16, None), _team("a", 8))
    assert _names(
        _find(
            _asks("org", SLURM, 8),
            [_held("x", "a", SLURM, {"n0": 8}), _held("y", "a", SLURM, {"n1": 8}, ran_s=1)],
            specs=specs,
        )
    ) == ["y"]
    assert _names(
        _find(
            _asks("a", SLURM, 8),
            [_held("x", "org", SLURM, {"n0": 8}), _held("y", "org", SLURM, {"n1": 8}, ran_s=1)],
            specs=specs,
        )
    ) == ["y"]


def test_its_own_limit_is_not_lifted_by_victims_elsewhere() -> None:
    specs = (_team("org", 16, None), _team("a", 8, limit=8), _team("a1", 4, "a", limit=4), _team("b", 8))
    held = [_held("a1", "a1", SLURM, {"n0": 4}), _held("b1", "b", SLURM, {"n0": 4}), _held("b2", "b", SLURM, {"n1": 8})]
    assert _find(_asks("a1", SLURM, 4), held, specs=specs) is None


def test_a_team_of_weight_0_keeps_its_guarantee_and_gets_it_back() -> None:
    specs = (_team("org", 16, None), _team("a", 8), _team("b", 8, weight=0))
    held = [_held("b1", "b", SLURM, {"n0": 8})]
    assert _find(_asks("a", SLURM, 8), [*held, _held("a1", "a", SLURM, {"n1": 8})], specs=specs) is None
    lent = [_held("a1", "a", SLURM, {"n0": 8}), _held("a2", "a", SLURM, {"n1": 8}, ran_s=1)]
    assert _names(_find(_asks("b", SLURM, 8), lent, specs=specs)) == ["a2"]


def test_work_of_the_same_team_makes_way_only_where_the_team_says_so_and_for_higher_priority() -> None:
    held = [_held("a1", "a", SLURM, {"n0": 8}), _held("b1", "b", SLURM, {"n1": 8})]
    lower = Policy({TeamName("a"): Preemption(within_team=WithinTeam.LOWER_PRIORITY)})
    assert _find(_asks("a", SLURM, 8, priority=1), held) is None
    assert _find(_asks("a", SLURM, 8), held, policy=lower) is None
    assert _names(_find(_asks("a", SLURM, 8, priority=1), held, policy=lower)) == ["a1"]


def test_work_is_no_victim_before_its_minimum_runtime() -> None:
    """Rule 13: to the millisecond."""
    held = [_held("b1", "b", SLURM, {"n0": 8}, ran_s=60), _held("b2", "b", SLURM, {"n1": 8}, ran_s=61)]
    for least_ms, names in ((60_000, ["b1"]), (60_001, ["b2"]), (61_001, None)):
        policy = Policy({TeamName("b"): Preemption(min_runtime_ms=least_ms)})
        found = _find(_asks("a", SLURM, 8), held, policy=policy)
        assert (None if found is None else _names(found)) == names


def test_what_is_leaving_counts_as_gone_so_two_reclaims_never_take_a_team_below_its_guarantee() -> None:
    specs = (_team("org", 24, None), _team("a", 8), _team("b", 8), _team("d", 8))
    held = [_held("b1", "b", SLURM, {"n0": 8}, leaving=True), _held("b2", "b", SLURM, {"n1": 8})]
    held.append(_held("e", "a", SLURM, {"n2": 8}, leaving=True))
    earmarked = NodeSupply(NodeName("n0"), FLAVOR, 8, slurm=16)  # b1, and the earmark that it was a victim for
    full = NodeSupply(NodeName("n2"), FLAVOR, 8, slurm=16)
    assert _find(_asks("d", SLURM, 8), held, specs=specs, nodes=3, changed={"n0": earmarked, "n2": full}) is None


def test_what_is_leaving_is_waited_for_when_it_is_enough() -> None:
    held = [_held("b1", "b", SLURM, {"n0": 8}, leaving=True), _held("b2", "b", SLURM, {"n1": 8})]
    assert _find(_asks("a", SLURM, 8), held) is None


def test_unmanaged_devices_and_unusable_nodes_are_never_freed() -> None:
    held = [_held("b1", "b", PODS, {"n0": 7}), _held("b2", "b", PODS, {"n1": 8}, ran_s=900)]
    unmanaged = NodeSupply(NodeName("n0"), FLAVOR, 8, pods=7, unmanaged=1)
    assert _names(_find(_asks("a", PODS, 8), held, changed={"n0": unmanaged})) == ["b2"]
    cordoned = NodeSupply(NodeName("n1"), FLAVOR, 8, usable=False, cause="node cordoned", pods=8)
    assert _find(_asks("a", PODS, 8), held, changed={"n0": unmanaged, "n1": cordoned}) is None


def test_the_earmark_lapses_after_the_longest_grace_and_the_margin() -> None:
    terms = {TeamName("b"): Preemption(grace_ms=5_000), TeamName("c"): Preemption(grace_ms=90_000)}
    held = [
        _held("b1", "b", SLURM, {"n0": 6, "n1": 6}),
        _held("c1", "c", SLURM, {"n0": 2}),
        _held("c2", "c", SLURM, {"n1": 2}),
    ]
    found = _find(_asks("a", SLURM, 2), held, policy=Policy(terms, earmark_margin_ms=1_000))
    assert found is not None
    assert found.lapses_ms == NOW_MS + 91_000


def test_quota_is_reclaimed_where_nodes_are_free_and_quota_is_not() -> None:
    held = [_held("b1", "b", SLURM, {"n0": 8}), _held("c1", "c", SLURM, {"n1": 8})]
    found = _find(_asks("a", SLURM, 8), held, nodes=3)
    assert _names(found) == ["c1"]


def test_a_reclaim_whose_potential_does_not_fall_stops_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 11: the code itself asserts it."""
    monkeypatch.setattr(reclaim, "potential", lambda *_: (0,))
    with pytest.raises(BrokenInvariantError, match="does not fall"):
        _find(_asks("a", SLURM, 8), [_held("b1", "b", SLURM, {"n0": 8}), _held("c1", "c", SLURM, {"n1": 8})])


def test_the_potential_counts_each_depth_and_then_priority() -> None:
    specs = (_team("org", 16, None), _team("a", 8), _team("a1", 4, "a"), _team("b", 8))
    used = {(TeamName("a1"), FLAVOR): 10, (TeamName("b"), FLAVOR): 6, (TeamName("ghost"), FLAVOR): 3}
    assert potential.potential(Balances(Tree.build(specs), used), FLAVOR, 7) == (3, 2, 6, 7)
