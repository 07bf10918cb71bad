"""Q1: conservation at every tree node, for any sequence from both systems."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.quota.tree import Balances, Tree
from tests.property import oracle
from tests.property.oracle_platform import FLAVORS, Platform, Shape, in_memory

STEPS = 20


def conserved(platform: Platform) -> None:
    """Compare, at every node and flavor, the product's sums with the list of what the ledger holds."""
    holdings = [h.grant for h in platform.holdings()]
    tree = Tree.build(platform.specs)
    used = {(g.team, g.flavor): 0 for g in holdings}
    for g in holdings:
        used[g.team, g.flavor] += g.gpus
        assert sum(g.placement.values()) == g.gpus
    known = {key: gpus for key, gpus in used.items() if key[0] in tree}
    balances = Balances(tree, known)
    for flavor in FLAVORS:
        held = {team: gpus for (team, each), gpus in known.items() if each == flavor}
        for spec in platform.specs:
            assert balances.total(spec.name, flavor) == oracle.total_of(platform.specs, spec.name, held)
    assert list(platform.ledger.verify()) == []


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32))
def test_what_a_subtree_holds_is_the_sum_of_its_grants_after_any_sequence(seed: int) -> None:
    """Q1."""
    platform = Platform(seed, in_memory(), Shape(preempts=0.5))
    for _ in range(STEPS):
        platform.step()
        conserved(platform)


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32))
def test_no_grant_takes_a_subtree_above_its_limit_or_a_root_above_what_it_has(seed: int) -> None:
    """Q1, with the naive balance rule as the judge of every single grant (see oracle.quota_fits)."""
    platform = Platform(seed, in_memory(), Shape(endless=0))
    for _ in range(STEPS):
        platform.step()
        held = platform.holdings()
        for flavor in FLAVORS:
            used: dict[str, int] = {}
            for grant in (h.grant for h in held if h.grant.flavor == flavor):
                used[grant.team] = used.get(grant.team, 0) + grant.gpus
            for placed in platform.decide().admitted:
                w = placed.workload
                if w.flavor == flavor:
                    assert oracle.quota_fits(platform.specs, flavor, w.team, w.gpus, used)  # type: ignore[arg-type]
                    used[w.team] = used.get(w.team, 0) + w.gpus
