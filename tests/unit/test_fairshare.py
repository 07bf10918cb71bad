"""Fair share by example: above the guarantee, for its weight, with what was held of late."""

from bridge.quota.fairshare import FairShare
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree

H100 = FlavorName("h100")
ROOT, ORG, A, B, C = (TeamName(name) for name in ("root", "org", "a", "b", "c"))
TREE = Tree.build(
    [
        TeamSpec(ROOT, None, quotas={H100: Quota(20)}),
        TeamSpec(ORG, ROOT, weight=2, quotas={H100: Quota(8)}),
        TeamSpec(A, ORG, quotas={H100: Quota(4)}),
        TeamSpec(B, ORG, quotas={H100: Quota(2)}),
        TeamSpec(C, ROOT, weight=0, quotas={H100: Quota(4)}),
    ]
)


def test_a_score_is_what_is_held_above_the_guarantee_for_the_weight() -> None:
    balances = Balances(TREE, {(A, H100): 10})
    assert FairShare(TREE, H100, {}).score(balances, A, 2) == (1.0, 8.0)  # org: (10 - 8) / 2; a: 10 + 2 - 4


def test_what_is_asked_counts_at_the_team_only_so_cutting_a_gang_into_pieces_does_not_pay() -> None:
    """Q22."""
    balances = Balances(TREE, {(A, H100): 8, (B, H100): 30})
    fair = FairShare(TREE, H100, {})
    assert fair.score(balances, A, 8) < fair.score(balances, B, 1)


def test_use_of_late_counts_up_the_tree_above_the_guarantee() -> None:
    """Q17: tiny use is not rounded away."""
    fair = FairShare(TREE, H100, {A: 9.5, TeamName("gone"): 100.0})
    assert fair.score(Balances(TREE, {}), A, 4) == (0.75, 5.5)
    assert FairShare(TREE, H100, {A: 4.0001}).score(Balances(TREE, {}), A, 4)[1] > 0


def test_weight_zero_comes_last() -> None:
    assert FairShare(TREE, H100, {}).score(Balances(TREE, {}), C, 5) == (float("inf"),)
