"""Mutations of the quota tree."""

from tests.property.mutants.mutation import Mutation

TREE = "bridge.quota.tree"
OWN = ("tests/property/test_quota.py",)

MUTATIONS = (
    Mutation(
        "limit-lets-one-more-in",
        "Q1",
        TREE,
        "room = share.limit - total.get(key, 0)",
        "room = share.limit - total.get(key, 0) + 1",
        "a subtree holds more than its limit",
        OWN,
    ),
    Mutation(
        "lends-beyond-the-lend-limit",
        "Q1",
        TREE,
        "else min(pool, quota.lend_limit)",
        "else max(pool, quota.lend_limit)",
        "what a team keeps for itself is lent",
    ),
    Mutation(
        "spills-nothing",
        "Q1",
        TREE,
        "spill = max(0, before + spill - local) - max(0, before - local)",
        "spill = max(0, before + spill - local) - max(0, before + spill - local)",
        "what is borrowed is not missing anywhere",
    ),
    Mutation(
        "refunds-more-than-was-charged",
        "Q7",
        TREE,
        "if not 0 <= gpus <= self.used(team, flavor):",
        "if not 0 <= gpus:",
        "a release beyond the charge is taken",
    ),
    Mutation(
        "clamps-a-refund",
        "Q7",
        TREE,
        """        if not 0 <= gpus <= self.used(team, flavor):
            raise BrokenInvariantError(""",
        """        if not 0 <= gpus <= self.used(team, flavor):
            return self._move(team, flavor, -self.used(team, flavor))
            raise BrokenInvariantError(""",
        "a release beyond the charge silently becomes a smaller one",
    ),
    Mutation(
        "a-lowered-quota-still-lends",
        "Q15",
        TREE,
        "pool += root.pool - reached.get(ascent[-1][0], 0)",
        "pool += max(0, root.pool - reached.get(ascent[-1][0], 0))",
        "where a lowered quota left the root over, more is granted",
        OWN,
    ),
)
