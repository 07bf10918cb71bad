"""Which running work makes way for a workload that may reclaim what is guaranteed to it. Pure, deterministic.

Who may be a victim is said in bridge.admission.borrowers. Of those, in the stated order - lower priority, then less
lost work (devices x run time), then the later start, then the id - the search takes

 1. free nodes first, then the node whose victims cost least, again and again until there are enough nodes (a gang
    over several nodes is counted once: its other nodes have become cheaper);
 2. whatever quota is then still short of, from inside the tree node that binds;
 3. and gives back, the most valuable first, whoever is not needed: of the answer, no victim can be given back.

Gangs that would take a level below its guarantee are looked at only when nothing else frees enough. The search is
greedy: with few candidates it is followed by a complete one, so there it finds a set whenever there is one.

Work that is leaving already counts as gone, on nodes and in quota: while it suffices, nobody else is a victim.
Whoever marks work as leaving bounds for how long.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridge.admission import levels
from bridge.admission.borrowers import Borrowers, Candidate
from bridge.admission.clearing import Clearing
from bridge.admission.model import Holding, Policy, Victim, WithinTeam
from bridge.admission.potential import Potential, potential
from bridge.admission.supply import NodeSupply, Placement
from bridge.errors import BrokenInvariantError
from bridge.quota.tree import Balances
from bridge.workloads.model import NodeName, Workload

COMPLETE = 8  # candidates up to which every set is tried when the greedy search found none: at most 256 sets


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Victims in the order they are chosen, and where the workload starts when they have ended."""

    victims: tuple[Victim, ...]
    placement: Placement
    lapses_ms: int
    potential_before: Potential
    potential_after: Potential


def can_help(workload: Workload, balances: Balances, policy: Policy) -> bool:
    """Return False when no reclaim could start the workload: O(depth), and children only where it may reclaim."""
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
    if not can_help(workload, balances, policy):
        return None
    held = sorted(holdings, key=_identity)
    base = _without_leaving(balances, held)
    candidates = Borrowers(workload, base, policy).candidates(held, now_ms)
    if not candidates:
        return None
    for crossing in (False, True):
        clearing = Clearing(workload, base, Borrowers(workload, base, policy), nodes, held)
        if clearing.fits():
            return None
        if _greedy(clearing, candidates, crossing=crossing) or _complete(clearing, candidates, crossing=crossing):
            return _answer(workload, clearing, base, held, policy, now_ms)
    return None


def _identity(holding: Holding) -> tuple[str, int]:
    return holding.grant.workload, holding.grant.attempt


def _without_leaving(balances: Balances, holdings: Iterable[Holding]) -> Balances:
    """Return what is held once the leaving work has left."""
    base = balances.copy()
    for grant in (holding.grant for holding in holdings if holding.leaving):
        if grant.team in base.tree:
            base.refund(grant.team, grant.flavor, grant.gpus)
        else:
            base.strays[grant.team, grant.flavor] -= grant.gpus
    return base


def _greedy(clearing: Clearing, candidates: list[Candidate], *, crossing: bool) -> bool:
    """Free nodes, then quota, then give back; False, with nothing taken, when that leads nowhere."""
    if clearing.free_nodes(candidates, crossing=crossing) and clearing.free_quota(candidates, crossing=crossing):
        clearing.give_back()
        return True
    clearing.reset()
    return False


def _complete(clearing: Clearing, candidates: list[Candidate], *, crossing: bool) -> bool:
    """Try every legal set of few candidates, and take the one that costs least; False when none fits."""
    if len(candidates) > COMPLETE:
        return False
    ordered = sorted(candidates)
    best: tuple[int, int, int, tuple[Candidate, ...]] | None = None
    seen: set[frozenset[tuple[str, int]]] = {frozenset()}
    sets: list[tuple[Candidate, ...]] = [()]
    for picks in sets:  # grows while it is walked: smaller sets before larger ones
        clearing.replay(picks)
        if picks and clearing.fits():
            cost = (max(c.priority for c in picks), sum(c.lost_gpu_ms for c in picks), len(picks), picks)
            best = cost if best is None else min(best, cost, key=lambda each: each[:3])
            continue
        for candidate in ordered:
            larger = frozenset(each.key for each in (*picks, candidate))
            if larger not in seen and clearing.legal(candidate, crossing=crossing):
                seen.add(larger)
                sets.append((*picks, candidate))
    clearing.replay(() if best is None else best[3])
    if best is not None:
        clearing.give_back()
    return best is not None


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
    before = potential(base, workload.flavor, staying, top)
    gone = {candidate.key for candidate in chosen}
    charged = min(workload.gpus, sum(victim.gpus for victim in victims))
    remaining = [
        (holding.grant.gpus, holding.priority)
        for holding in holdings
        if not holding.leaving and _identity(holding) not in gone
    ]
    start = clearing.balances.copy()
    start.charge(workload.team, workload.flavor, charged)
    after = potential(start, workload.flavor, [*remaining, (charged, workload.priority)], top)
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
