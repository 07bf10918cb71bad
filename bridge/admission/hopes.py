"""Whether a search for victims has any hope, before it is made: upper bounds, looked at once per pass. Pure.

In a full fleet most blocked workloads that could reclaim by quota find no node that victims could clear, and each
search looks at every node. So the pass first counts, for each share of a node, the nodes that would have room if
every team that may be a victim lost as much there as it may at most: what it holds there, and in all less than what
it is above its guarantee plus its largest holding (who borrows with a gang may lose the gang).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from bridge.admission import levels
from bridge.admission.levels import Level
from bridge.admission.model import Holding
from bridge.admission.racks import Share
from bridge.admission.section import Attempt, Section
from bridge.quota.model import TeamName
from bridge.workloads.model import NodeName, System


def prey(section: Section, team: TeamName, gpus: int) -> tuple[TeamName, ...]:
    """Return the other teams whose work a start of `gpus` in `team` might reclaim, as the balances are."""
    balances, flavor = section.balances, section.flavor
    found = [
        borrower
        for level in levels.chain(section.tree, team)
        if levels.over(balances, flavor, level) + gpus <= 0
        for other in levels.siblings(balances, flavor, level)
        if other != level
        for borrower in _borrowers(section, other)
    ]
    return tuple(found)


def holdings(section: Section, teams: Iterable[TeamName], going: Iterable[Attempt]) -> Iterator[Holding]:
    """Return what a search has to see: what these teams hold, and whatever is leaving."""
    rest = section.leaving.union(going)
    for team in teams:
        held = section.by_team.get(team, {})
        rest.difference_update(held)
        yield from held.values()
    for name, attempt in rest:
        if attempt in section.holdings.get(name, {}):
            yield section.holdings[name][attempt]


def clearable(section: Section, teams: Collection[TeamName], going: Collection[Attempt], share: Share) -> int:
    """Count the nodes that have room for a share, or could have it if these teams lost what they may at most."""
    freed: dict[NodeName, dict[System, int]] = {}
    for name, attempt in section.leaving.union(going):
        holding = section.holdings.get(name, {}).get(attempt)
        if holding is not None:
            _free(freed, holding.grant.placement, holding.grant.system)
    for team in teams:
        over = levels.over(section.balances, section.flavor, levels.chain(section.tree, team)[0])
        held = section.by_team.get(team, {})
        staying = [each for key, each in held.items() if key not in section.leaving and key not in going]
        for (where, lost), gpus in _losses(over, staying).items():
            _free(freed, {where: gpus}, lost)
    system, asks = share
    count = section.racks.roomy(share)
    for where, devices in freed.items():
        node = section.racks.like(where)
        if node is not None and node.room(system) < asks:
            slurm, pods = node.slurm - devices[System.SLURM], node.pods - devices[System.KUBERNETES]
            count += node.room_beside(system, max(0, slurm), max(0, pods)) >= asks
    return count


def _borrowers(section: Section, level: Level) -> Iterator[TeamName]:
    """Return the teams below a level that hold something, where every level down to them is above its guarantee."""
    if levels.over(section.balances, section.flavor, level) <= 0:
        return
    team = level.team
    if level.own or team not in section.tree or not section.tree.children(team):
        yield team
        return
    for below in (Level(team, own=True), *(Level(child) for child in section.tree.children(team))):
        yield from _borrowers(section, below)


def _losses(over: int, held: Iterable[Holding]) -> Mapping[tuple[NodeName, System], int]:
    """Return what a team that is `over` its guarantee may lose on each of its nodes."""
    devices: dict[tuple[NodeName, System], int] = {}
    largest = 0
    for holding in held:
        if not holding.shield:
            grant = holding.grant
            largest = max(largest, grant.gpus)
            for name, gpus in grant.placement.items():
                devices[name, grant.system] = devices.get((name, grant.system), 0) + gpus
    return {where: min(here, over - 1 + largest) for where, here in devices.items()}


def _free(freed: dict[NodeName, dict[System, int]], placement: Mapping[NodeName, int], system: System) -> None:
    for name, gpus in placement.items():
        freed.setdefault(name, dict.fromkeys(System, 0))[system] += gpus
