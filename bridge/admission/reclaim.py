"""Which running work makes way for a workload that may reclaim what is guaranteed to it. Pure, deterministic.

Who may be a victim is said in bridge.admission.borrowers. Of those, in the stated order - lower priority, then less
lost work (devices x run time), then the later start, then the id - the search takes

 1. free nodes first, then the node whose victims cost least, again and again until there are enough nodes (a gang
    over several nodes is counted once: its other nodes have become cheaper);
 2. whatever quota is then still short of, from inside the tree node that binds;
 3. and gives back, the most valuable first, whoever is not needed: with any one victim of the answer given back, the
    workload does not fit. So nobody makes way only to let somebody else be a victim.

Gangs that would take a level below its guarantee are looked at only when nothing else frees enough.

With few candidates the search is complete instead: of all legal sets that free enough, the one that loses least
work of the highest priority, then of the next lower one, and so on; then the fewest victims.

Work that is leaving already counts as gone, on nodes and in quota: while it suffices, nobody else is a victim.
Whoever marks work as leaving bounds for how long.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridge.admission import levels
from bridge.admission.borrowers import Borrowers, Candidate, Harm, harm
from bridge.admission.clearing import Clearing
from bridge.admission.model import Holding, Policy, Victim, WithinTeam
from bridge.admission.potential import Potential, potential
from bridge.admission.supply import NodeSupply, Placement
from bridge.errors import BrokenInvariantError
from bridge.quota.tree import Balances
from bridge.workloads.model import Grant, NodeName, Workload

COMPLETE = 8  # candidates up to which every set of them is tried: at most 256 sets


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Victims in the order they are chosen, and where the workload starts when they have ended."""

    victims: tuple[Victim, ...]
    placement: Placement
    lapses_ms: int
    potential_before: Potential
    potential_after: Potential


def can_help(workload: Workload, balances: Balances, policy: Policy) -> bool:
    """Return False when no reclaim could start the workload: O(depth), and children only where it may reclaim.

    Asked with what is leaving still charged, it may answer False until that has left.
    """
    team, flavor = workload.team, workload.flavor
    if not policy.preempts or not balances.tree.opens(team, flavor):
        return False
    if policy.of(team).within_team is WithinTeam.LOWER_PRIORITY and balances.used(team, flavor):
        return True
    for level in levels.chain(balances.tree, team):
        share = balances.tree.share(level.team, flavor)
        room = None if share.limit is None or level.own else share.limit - balances.total(level.team, flavor)
        if room is not None and room < workload.gpus:
            return False  # its own limit binds, and nobody below that may be a victim
        if levels.over(balances, flavor, level) + workload.gpus <= 0 and any(
            levels.over(balances, flavor, other) > 0 for other in levels.siblings(balances, flavor, level)
        ):
            return True
    return False


def find(
    workload: Workload,
    *,
    balances: Balances,
    holdings: Iterable[Holding],
    nodes: Mapping[NodeName, NodeSupply],
    policy: Policy,
    now_ms: int,
) -> Reclaim | None:
    """Return the victims for a workload that does not fit; None when no legal set helps, or none is needed.

    `holdings` are those of the workload's flavor. `balances` and `nodes` count everything that holds and every
    earmark but the workload's own. Nothing given is changed.
    """
    held = list(holdings)
    leaving = [holding.grant for holding in held if holding.leaving]
    base = _without(balances, leaving)
    if not can_help(workload, base, policy):
        return None
    candidates = Borrowers(workload, base, policy).candidates(held, now_ms)
    if not candidates:
        return None
    search = _cheapest if len(candidates) <= COMPLETE else _greedy
    for crossing in (False, True):
        clearing = Clearing(workload, base, Borrowers(workload, base, policy), nodes, leaving)
        if clearing.fits():
            return None
        if search(clearing, candidates, crossing=crossing):
            return _answer(workload, clearing, base, held, policy, now_ms)
    return None


def _without(balances: Balances, leaving: Iterable[Grant]) -> Balances:
    """Return what is held once the leaving work has left."""
    base = balances.copy()
    for grant in leaving:
        if grant.team in base.tree:
            base.refund(grant.team, grant.flavor, grant.gpus)
        else:
            base.strays[grant.team, grant.flavor] -= grant.gpus
    return base


def _greedy(clearing: Clearing, candidates: list[Candidate], *, crossing: bool) -> bool:
    """Free nodes, then quota, then give back; when that leads nowhere, once more with inner victims first."""
    for opening in (False, True):
        clearing.reset()
        if opening and not clearing.open_levels(candidates, crossing=crossing):
            return False
        if clearing.free_nodes(candidates, crossing=crossing) and clearing.free_quota(candidates, crossing=crossing):
            clearing.give_back()
            if clearing.open():
                return True
    return False


def _cheapest(clearing: Clearing, candidates: list[Candidate], *, crossing: bool) -> bool:
    """Try the legal sets of few candidates, cheapest first, and take the first that fits; False when none does."""
    queue: list[tuple[int, Harm, int, tuple[Candidate, ...]]] = [(0, (), 0, ())]
    seen: set[frozenset[tuple[str, int]]] = set()
    while queue:  # ends: each of the at most 2 ** COMPLETE sets is looked at once
        short, _, count, picks = heapq.heappop(queue)
        these = frozenset(candidate.key for candidate in picks)
        if these in seen:
            continue
        seen.add(these)
        clearing.replay(picks)
        if clearing.fits():
            if clearing.needed():
                return True
            continue  # whatever else it takes, somebody is not needed
        for each in candidates:
            if clearing.borrowers.legal(each, crossing=crossing):
                larger = (*picks, each)
                heapq.heappush(queue, (short + clearing.borrowers.short(each), harm(larger), count + 1, larger))
    return False


def _answer(
    workload: Workload,
    clearing: Clearing,
    base: Balances,
    holdings: Iterable[Holding],
    policy: Policy,
    now_ms: int,
) -> Reclaim:
    """Name victims and placement, and assert that the potential falls."""
    chosen = clearing.chosen()
    victims = tuple(_victim(candidate, policy) for candidate in chosen)
    staying = [(holding.grant.gpus, holding.priority) for holding in holdings if not holding.leaving]
    top = max([workload.priority, *(priority for _, priority in staying)])
    lowness = sum(gpus * (top - priority) for gpus, priority in staying)
    before = potential(base, workload.flavor, lowness)
    charged = min(workload.gpus, sum(victim.gpus for victim in victims))
    start = clearing.balances.copy()
    start.charge(workload.team, workload.flavor, charged)
    lowness -= sum(candidate.gpus * (top - candidate.priority) for candidate in chosen)
    after = potential(start, workload.flavor, lowness + charged * (top - workload.priority))
    if not after < before:
        names = ", ".join(victim.workload for victim in victims)
        raise BrokenInvariantError(f"reclaim for {workload.id} from {names}: potential {before} does not fall: {after}")
    grace_ms = max(victim.grace_ms for victim in victims)
    return Reclaim(victims, clearing.place(), now_ms + grace_ms + policy.earmark_margin_ms, before, after)


def _victim(candidate: Candidate, policy: Policy) -> Victim:
    return Victim(
        candidate.workload,
        candidate.attempt,
        candidate.team,
        candidate.gpus,
        policy.of(candidate.team).grace_ms,
        candidate.lost_gpu_ms,
    )
