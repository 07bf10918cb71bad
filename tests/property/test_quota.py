"""Quota arithmetic against a naive oracle, on random trees of up to five levels. Rules 1, 7, 8, 15 of the ledger."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BrokenInvariantError
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree, problems
from tests.property import oracle_quota

FLAVORS = (FlavorName("a100"), FlavorName("h100"))
DEPTH = 5
OPTIONAL = st.none() | st.integers(0, 6)


@st.composite
def trees(draw: st.DrawFn) -> list[TeamSpec]:
    """Draw a sound tree: guarantees are drawn for leaves and for own parts, and summed upwards."""
    parents = [None, *draw(st.lists(st.integers(0, 8), max_size=8))]
    level, up = [1], [None if p is None else p for p in parents]
    for index in range(1, len(parents)):
        parent = up[index]
        above = None if parent is None or parent >= index or level[parent] >= DEPTH else parent
        up[index] = above
        level.append(1 if above is None else level[above] + 1)
    quotas: list[dict[FlavorName, Quota]] = [{} for _ in parents]
    promised = {(index, flavor): 0 for index in range(len(parents)) for flavor in FLAVORS}
    for index in reversed(range(len(parents))):
        for flavor in FLAVORS:
            guarantee = promised[index, flavor]
            if draw(st.integers(0, 3)):  # one in four does not list the flavor
                guarantee += draw(st.integers(0, 5))
                limit = draw(OPTIONAL)
                quotas[index][flavor] = Quota(guarantee, None if limit is None else guarantee + limit, draw(OPTIONAL))
            above = up[index]
            if above is not None:
                promised[above, flavor] += guarantee
    return [
        TeamSpec(TeamName(f"t{i}"), None if (p := up[i]) is None else TeamName(f"t{p}"), quotas=quotas[i])
        for i in range(len(parents))
    ]


STEPS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from(FLAVORS), st.integers(0, 6), st.booleans()), max_size=15)


def _team(specs: list[TeamSpec], index: int) -> TeamName:
    return specs[index % len(specs)].name


@given(trees(), STEPS)
def test_available_is_what_the_naive_balance_rule_allows_after_any_history(
    specs: list[TeamSpec], steps: list[tuple[int, FlavorName, int, bool]]
) -> None:
    assert problems(specs) == []
    balances = Balances(Tree.build(specs), {})
    used: dict[tuple[TeamName, FlavorName], int] = {}
    for index, flavor, gpus, give_back in steps:
        team = _team(specs, index)
        if give_back:
            back = min(gpus, used.get((team, flavor), 0))
            balances.refund(team, flavor, back)
            used[team, flavor] = used.get((team, flavor), 0) - back
        elif gpus <= balances.available(team, flavor):
            balances.charge(team, flavor, gpus)
            used[team, flavor] = used.get((team, flavor), 0) + gpus
        assert oracle_quota.allowed(specs, flavor, used)
        for spec in specs:
            expected = oracle_quota.most(specs, spec.name, flavor, used)
            assert balances.available(spec.name, flavor) == expected
            assert balances.total(spec.name, flavor) == oracle_quota.total(specs, spec, flavor, used)


@given(trees(), STEPS)
def test_balances_do_not_depend_on_the_way_they_were_reached(
    specs: list[TeamSpec], steps: list[tuple[int, FlavorName, int, bool]]
) -> None:
    """Rule 1, and rebuild equals: charged one by one (also beyond quota), or loaded at once."""
    tree = Tree.build(specs)
    walked, used = Balances(tree, {}), dict[tuple[TeamName, FlavorName], int]()
    for index, flavor, gpus, give_back in steps:
        team = _team(specs, index)
        moved = -min(gpus, used.get((team, flavor), 0)) if give_back else gpus
        if moved < 0:
            walked.refund(team, flavor, -moved)
        else:
            walked.charge(team, flavor, moved)
        used[team, flavor] = used.get((team, flavor), 0) + moved
    loaded = Balances(tree, used)
    for team in tree.teams:
        for flavor in FLAVORS:
            below = sum(walked.total(child, flavor) for child in tree.children(team))
            assert walked.total(team, flavor) == walked.used(team, flavor) + below
            assert walked.available(team, flavor) == loaded.available(team, flavor)
            assert walked.borrowed(team, flavor) == loaded.borrowed(team, flavor)
            assert walked.copy().available(team, flavor) == loaded.available(team, flavor)


@given(trees(), STEPS)
def test_a_binding_node_is_named_exactly_when_a_grant_does_not_fit(
    specs: list[TeamSpec], steps: list[tuple[int, FlavorName, int, bool]]
) -> None:
    """Rule 20: the numbers shown are those that decide, also where a lowered quota left a team over it."""
    balances = Balances(Tree.build(specs), {})
    for index, flavor, gpus, _ in steps:
        team = _team(specs, index)
        balances.charge(team, flavor, gpus)
        if not balances.tree.opens(team, flavor):
            continue
        room = balances.available(team, flavor)
        assert balances.binding(team, flavor, room) is None
        binding = balances.binding(team, flavor, room + 1)
        assert binding is not None
        assert binding.room == room
        assert binding.node in balances.tree.path(team)
        if binding.kind == "limit":
            assert binding.bound - binding.held == room
            assert binding.held == balances.total(binding.node, flavor)


@given(trees(), STEPS)
def test_all_grants_together_never_exceed_all_quota_even_after_a_lowered_one(
    specs: list[TeamSpec], steps: list[tuple[int, FlavorName, int, bool]]
) -> None:
    """Rule 15: from any overage, what is granted adds no overage, and giving back reaches a sound state."""
    tree = Tree.build(specs)
    balances = Balances(tree, {})
    for index, flavor, gpus, forced in steps:
        team = _team(specs, index)
        root = tree.path(team)[-1]
        if forced:
            balances.charge(team, flavor, gpus)  # found running, or left over from a higher quota
        elif 0 < gpus <= balances.available(team, flavor):
            balances.charge(team, flavor, gpus)
            assert balances.total(root, flavor) <= tree.share(root, flavor).guarantee
    used = {(t, f): balances.used(t, f) for t in tree.teams for f in FLAVORS}
    for (team, flavor), gpus in used.items():
        balances.refund(team, flavor, gpus)
    for team in tree.teams:
        for flavor in FLAVORS:
            assert balances.available(team, flavor) == balances.ceiling(team, flavor)


@given(trees(), st.integers(0, 8), st.integers(1, 5))
def test_a_refund_beyond_the_charge_is_refused(specs: list[TeamSpec], index: int, gpus: int) -> None:
    """Rule 7: no silent clamp."""
    balances = Balances(Tree.build(specs), {})
    team = _team(specs, index)
    balances.charge(team, FLAVORS[0], gpus - 1)
    with pytest.raises(BrokenInvariantError):
        balances.refund(team, FLAVORS[0], gpus)
    assert balances.used(team, FLAVORS[0]) == gpus - 1
