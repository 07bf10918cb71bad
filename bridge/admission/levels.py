"""The levels of the quota tree at which what is held is compared with what is guaranteed. Pure.

Every team is a level: its subtree's devices against its guarantee. A team with children has one more level below
it, its *own*: what it holds itself against the part of its guarantee that no child was promised. So the guarantees
of the levels below a level sum up to its guarantee, and whenever a level is above its guarantee, one below it is,
too. Work of a team that is not in the tree is a level of its own at the top, with a guarantee of 0.
"""

from typing import NamedTuple

from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances, Tree


class Level(NamedTuple):
    """A team's subtree, or (`own`) what a team with children holds itself."""

    team: TeamName
    own: bool = False


def chain(tree: Tree, team: TeamName) -> tuple[Level, ...]:
    """Return the levels that count what the team holds itself, lowest first, the root last."""
    if team not in tree:
        return (Level(team),)
    path = tuple(Level(node) for node in tree.path(team))
    return (Level(team, own=True), *path) if tree.children(team) else path


def over(balances: Balances, flavor: FlavorName, level: Level) -> int:
    """Devices held above the level's guarantee; negative while it is within."""
    team = level.team
    if team not in balances.tree:
        return balances.strays.get((team, flavor), 0)
    share = balances.tree.share(team, flavor)
    if level.own:
        return balances.used(team, flavor) - share.own
    return balances.total(team, flavor) - share.guarantee


def siblings(balances: Balances, flavor: FlavorName, level: Level) -> tuple[Level, ...]:
    """Return every level with the same level above it, itself included."""
    tree, team = balances.tree, level.team
    above = team if level.own else tree.spec(team).parent
    if above is not None:
        return (Level(above, own=True), *(Level(child) for child in tree.children(above)))
    strays = sorted(name for (name, of), gpus in balances.strays.items() if of == flavor and gpus)
    return tuple(Level(name) for name in (*tree.roots, *strays))
