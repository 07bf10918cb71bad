"""Is this a legal preemption? Checked on plain lists against the rules on paper; it looks for no better one."""

from collections.abc import Mapping, Sequence
from itertools import permutations

from bridge.admission.model import Earmark, Holding, WithinTeam
from bridge.quota.model import TeamName
from bridge.workloads.model import Workload
from tests.property.oracle import Mismatch, Pass, Piece, node_has_room

MOST_ORDERS = 5  # of so many victims every order is tried; of more, greedily


def check(at: Pass, w: Workload, mark: Earmark) -> None:
    """Raise Mismatch unless these victims may, suffice and are all needed."""
    if not at.world.policy.preempts or w.id in at.marks:
        raise Mismatch(f"{w.id} may reclaim nothing (again)")
    victims = _victims(at, w, mark)
    leaving = _leaving(at, w)
    left = [p for p in at.pieces if p.owner not in leaving and p.owner != w.id]
    if not _some_order_is_legal(at, w, victims, left):
        raise Mismatch(f"{w.id} of {w.team}: no order of {[v.grant.workload for v in victims]} is legal")
    names = {v.grant.workload for v in victims}
    if not _fits(at, w, [p for p in left if p.owner not in names]):
        raise Mismatch(f"{w.id}: what {sorted(names)} leave does not suffice")
    _check_placement(at, w, mark, [p for p in left if p.owner not in names])
    for back in names:
        if _fits(at, w, [p for p in left if p.owner not in names or p.owner == back]):
            raise Mismatch(f"{w.id}: {back} need not make way, of {sorted(names)}")


def _victims(at: Pass, w: Workload, mark: Earmark) -> list[Holding]:
    """Find each victim, and check what is true of it alone."""
    holdings = {h.grant.workload: h for h in at.world.holdings}
    found = []
    for victim in mark.victims:
        holding = holdings.get(victim.workload)
        if holding is None or holding.grant.attempt != victim.attempt or holding.grant.flavor != w.flavor:
            raise Mismatch(f"{w.id}: the victim {victim} holds nothing there")
        if holding.shield or holding.leaving or victim.workload in _marked(at, w):
            raise Mismatch(f"{w.id}: {victim.workload} can be no victim")
        terms = at.world.policy.of(holding.grant.team)
        started = holding.grant.running_ms
        ran = 0 if started is None else at.world.now_ms - started
        if ran < terms.min_runtime_ms:
            raise Mismatch(f"{w.id}: {victim.workload} ran {ran} of {terms.min_runtime_ms} ms")
        if victim.grace_ms != terms.grace_ms or victim.gpus != holding.grant.gpus:
            raise Mismatch(f"{w.id}: {victim} has other terms")
        found.append(holding)
    if not found or len({h.grant.workload for h in found}) != len(found):
        raise Mismatch(f"{w.id}: no victims, or one twice")
    longest = max(at.world.policy.of(h.grant.team).grace_ms for h in found)
    if mark.lapses_ms != at.world.now_ms + longest + at.world.policy.earmark_margin_ms:
        raise Mismatch(f"{w.id}: lapses at {mark.lapses_ms}")
    return found


def _marked(at: Pass, w: Workload) -> set[str]:
    """Return the victims of other open earmarks, and of those proposed earlier in this pass."""
    marks = [m for m in (*at.world.earmarks, *at.told.preemptions) if m.workload != w.id]
    return {v.workload for m in marks for v in m.victims if m.lapses_ms > at.world.now_ms}


def _leaving(at: Pass, w: Workload) -> set[str]:
    going = {h.grant.workload for h in at.world.holdings if h.leaving}
    charged = {p.owner for p in at.pieces}
    marks = [m for m in (*at.marks.values(), *at.told.preemptions) if m.workload != w.id and m.workload in charged]
    return going | {v.workload for m in marks for v in m.victims}


def _path(at: Pass, team: TeamName) -> list[TeamName]:
    path = [team]
    while (parent := at.specs[path[-1]].parent) is not None:
        path.append(parent)
    return path


def above(at: Pass, node: TeamName, used: Mapping[TeamName, int], *, own: bool) -> int:
    """Return devices above the guarantee of a subtree; `own`: of what the team holds itself."""
    children = [s.name for s in at.world.specs if s.parent == node]
    if own:
        return used.get(node, 0) - (at.guarantee(node) - sum(at.guarantee(c) for c in children))
    return at.total(node, used) - at.guarantee(node)


def _sides(at: Pass, t: TeamName, v: TeamName) -> tuple[tuple[TeamName, bool], list[tuple[TeamName, bool]]]:
    """Return the preemptor's side at the parting level, and the levels on the victim's; True: the team's own part."""
    ours, theirs = _path(at, t), _path(at, v)
    common = next((node for node in ours if node in theirs), None)
    mine = ours if common is None else ours[: ours.index(common)]
    yours = theirs if common is None else theirs[: theirs.index(common)]
    side = (mine[-1], False) if mine else (t, True)
    return side, [(node, False) for node in yours] or [(v, True)]


def legal(at: Pass, w: Workload, victim: Holding, pieces: Sequence[Piece]) -> bool:
    """Return whether the victim may be chosen while these pieces are held."""
    team = victim.grant.team
    if team == w.team:
        lower = at.world.policy.of(team).within_team is WithinTeam.LOWER_PRIORITY
        return lower and victim.priority < w.priority
    used = at.used(pieces)
    if team not in at.specs:
        return True
    (node, own), theirs = _sides(at, w.team, team)
    if above(at, node, used, own=own) + w.gpus > 0:
        return False
    return all(above(at, each, used, own=part) > 0 for each, part in theirs)


def _some_order_is_legal(at: Pass, w: Workload, victims: Sequence[Holding], pieces: Sequence[Piece]) -> bool:
    if len(victims) <= MOST_ORDERS:
        return any(_legal_order(at, w, order, pieces) for order in permutations(victims))
    left, rest = list(pieces), list(victims)
    while rest:
        chosen = next((v for v in rest if _opens(at, w, v, rest, left)), None)
        if chosen is None:
            return False
        rest.remove(chosen)
        left = [p for p in left if p.owner != chosen.grant.workload]
    return True


def _opens(at: Pass, w: Workload, v: Holding, rest: Sequence[Holding], left: Sequence[Piece]) -> bool:
    """Return whether v is legal now; small ones first, so that a gang takes its team below last."""
    return legal(at, w, v, left) and all(
        v.grant.gpus <= other.grant.gpus for other in rest if other.grant.team == v.grant.team
    )


def _legal_order(at: Pass, w: Workload, order: Sequence[Holding], pieces: Sequence[Piece]) -> bool:
    left = list(pieces)
    for victim in order:
        if not legal(at, w, victim, left):
            return False
        left = [p for p in left if p.owner != victim.grant.workload]
    return True


def _fits(at: Pass, w: Workload, pieces: Sequence[Piece]) -> bool:
    if not at.quota_fits(w.team, w.gpus, at.used(pieces)):
        return False
    kept = {name for keeper in at.keepers for name in keeper.kept | keeper.maybe}
    mark = next(m for m in at.told.preemptions if m.workload == w.id)
    open_to_it = [name for name in at.roomy(w, pieces) if name not in kept or name in mark.placement]
    return len(open_to_it) >= w.nodes


def _check_placement(at: Pass, w: Workload, mark: Earmark, pieces: Sequence[Piece]) -> None:
    if len(mark.placement) != w.nodes or set(mark.placement.values()) != {w.gpus_per_node}:
        raise Mismatch(f"{w.id}: earmarked {dict(mark.placement)}")
    nodes = {node.name: node for node in at.nodes}
    for name in mark.placement:
        allowed = w.within_nodes is None or name in w.within_nodes
        if not allowed or not node_has_room(nodes[name], w, pieces):
            raise Mismatch(f"{w.id}: earmarked {name}, which has no room once the victims are gone")
