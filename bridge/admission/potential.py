"""Why preemption ends: a number that every single preemption makes smaller. Pure.

Per flavor, from the roots down, one component for each depth of the tree: the devices that its levels hold above
their guarantees, in all. The last component is the held devices, each weighted with how far the priority of its
work is below the highest. Compared from the first component on.

Let V be the devices of the victims and g those of the preemptor, and let c be the highest tree node at which the
preemptor's path parts from a victim's. All victims are below c. So at c's depth and above, sums change by at most
min(g, V) - V <= 0 where the preemptor is charged min(g, V): what it takes beyond V was idle, and is no preemption's
doing. One depth below c, the victims' side falls, because it was above its guarantee, and the preemptor's side is
within its guarantee after the start, so it adds nothing. When all victims are of the preemptor's own team, no tree
component rises, and the last one falls, because each had a lower priority. The components are whole numbers of 0 or
more, so preemptions alone cannot go on for ever.
"""

from bridge.admission import levels
from bridge.quota.model import FlavorName
from bridge.quota.tree import Balances

Potential = tuple[int, ...]


def potential(balances: Balances, flavor: FlavorName, lowness: int) -> Potential:
    """Return the potential; `lowness` is the sum over what holds of devices x (highest priority - its priority)."""
    tree = balances.tree
    depths = [sum(gpus for (_, of), gpus in balances.strays.items() if of == flavor)]
    for team in tree.teams:
        depth = len(tree.path(team)) - 1
        _add(depths, depth, levels.over(balances, flavor, levels.Level(team)))
        if tree.children(team):
            _add(depths, depth + 1, levels.over(balances, flavor, levels.Level(team, own=True)))
    return (*depths, lowness)


def _add(depths: list[int], depth: int, over: int) -> None:
    depths.extend([0] * (depth + 1 - len(depths)))
    depths[depth] += max(0, over)
