"""Fair share among borrowers: who holds, and held of late, least above its guarantee for its weight. Pure.

The score of a tree node n, with `gpus` more, is

    (max(0, total(n) + gpus - G(n)) + max(0, H(n) - G(n))) / weight(n)

with G the guarantee and H the decayed average of the devices that the subtree held (GPUs; see
bridge.ledger.history). A node of weight 0 scores infinite: it borrows last.

A team's score is the tuple from the root's child down to the team, compared from the front. The devices asked for
count at the team only: above it, what a subtree holds is compared. Were they counted there, too, then of two
teams with a common parent the smaller request would always come first, and cutting a gang into pieces would pay.
Scores only rise while a pass admits.
"""

from collections.abc import Mapping

from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances, Tree

Score = tuple[float, ...]


class FairShare:
    """The scores of one flavor's teams. `history`: decayed average devices that each team held itself."""

    def __init__(self, tree: Tree, flavor: FlavorName, history: Mapping[TeamName, float]) -> None:
        """Sum the history up the tree; of teams that are not in it, it counts for nobody."""
        self._flavor = flavor
        held = dict.fromkeys(tree.teams, 0.0)
        for team in sorted(history):
            for node in tree.path(team) if team in tree else ():
                held[node] += history[team]
        self._levels: dict[TeamName, tuple[tuple[TeamName, int, float, int], ...]] = {}
        for team in tree.teams:
            path = tree.path(team)
            levels = path[:-1] or path  # the root itself has nobody to be compared with, unless it stands alone
            self._levels[team] = tuple(
                (node, guarantee, max(0.0, held[node] - guarantee), tree.spec(node).weight)
                for node in reversed(levels)
                for guarantee in (tree.share(node, flavor).guarantee,)
            )

    def score(self, balances: Balances, team: TeamName, gpus: int) -> Score:
        """Return the team's scores from the root's child down, with `gpus` more at the team."""
        scores = []
        for node, guarantee, past, weight in self._levels[team]:
            above = balances.total(node, self._flavor) - guarantee + (gpus if node == team else 0)
            scores.append((max(0, above) + past) / weight if weight > 0 else float("inf"))
        return tuple(scores)
