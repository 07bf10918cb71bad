"""A second, deliberately naive admission: everything recomputed and sorted for every question, nothing kept.

Written from the rules on paper (docs of the design, section 5), not from bridge.admission; it shares no code with it
and none with bridge.quota.tree. It walks a pass in step with the product's answer. Where the rules leave the product
no choice (who starts, in which order, for which reason not) the two must agree. Where they leave one (which of several
feasible nodes, which of several equal nodes are kept, who makes way) the product's choice is checked and followed.
What hangs on such a choice is counted as open, not as a decision.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TypeVar

from bridge.admission.decisions import Decisions, Placed
from bridge.admission.model import Earmark, Holding, Policy
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, TeamName, TeamSpec
from bridge.workloads.model import NodeName, System, Workload, WorkloadId
from bridge.workloads.reasons import Reason
from tests.property import oracle_quota

NEVER_MS = 10**15  # later than every time in these worlds: no known end leads there
MOST_KEEPERS = 16  # per flavor and pass; stated by the rules
FINAL = (
    Reason.NEVER_FITS_QUOTA,
    Reason.NEVER_FITS_NODES,
    Reason.NO_SUCH_FLAVOR,
    Reason.FLAVOR_CLOSED,
    Reason.UNKNOWN_TEAM,
)


@dataclass
class Snapshot:
    """Everything one pass is told."""

    specs: Sequence[TeamSpec]
    flavors: Sequence[FlavorName]
    policy: Policy
    history: Mapping[tuple[TeamName, FlavorName], float]
    waiting: Sequence[Workload]
    holdings: Sequence[Holding]
    nodes: Sequence[NodeSupply]
    earmarks: Sequence[Earmark]
    now_ms: int


class Answer(Enum):
    """What the rules say of one workload at one moment of a pass."""

    STARTS = "starts"
    QUOTA = "quota"
    NODES = "nodes"
    BEHIND = "behind"
    GUARANTEE_ONLY = "guarantee only"
    OPEN = "open"  # hangs on a choice that is the product's


REASONS = {
    Answer.QUOTA: Reason.QUOTA,
    Answer.NODES: Reason.CAPACITY,
    Answer.BEHIND: Reason.BEHIND_GANG,
    Answer.GUARANTEE_ONLY: Reason.GUARANTEE_ONLY,
}


@dataclass(frozen=True)
class Piece:
    """Devices that somebody holds on nodes: a grant, an earmark, or what this pass started."""

    owner: WorkloadId
    team: TeamName
    system: System
    gpus: int
    placement: Mapping[NodeName, int]
    ends_ms: int | None
    endless: bool


@dataclass(frozen=True)
class Keeper:
    """Who waits first in its queue, and what it waits for."""

    workload: Workload
    within: bool
    ends: bool  # only work that ends is in its way
    kept: frozenset[NodeName]  # nodes that surely are kept for it
    maybe: frozenset[NodeName]  # nodes that might be: equal choices
    starts_ms: int  # earliest; NEVER_MS: nobody knows
    sure: bool = True  # False: its try to reclaim has lapsed and is not settled yet; whether it keeps is open


@dataclass
class Tally:
    """What was compared."""

    decisions: int = 0
    open: int = 0
    admitted: int = 0
    preemptions: int = 0
    reasons: dict[Reason, int] = field(default_factory=dict)


class Mismatch(AssertionError):  # noqa: N818 - it is an assertion that failed
    """The product and the rules disagree."""


class Pass:
    """One flavor's pass, walked beside the product's answer."""

    def __init__(self, world: Snapshot, flavor: FlavorName, told: Decisions, tally: Tally) -> None:
        self.world, self.flavor, self.told, self.tally = world, flavor, told, tally
        self.specs = {spec.name: spec for spec in world.specs}
        self._guarantees: dict[TeamName, int] = {}
        self._past = {team: Fraction(value) for (team, each), value in world.history.items() if each == flavor}
        self.nodes = [node for node in world.nodes if node.flavor == flavor]
        self.pieces = [
            Piece(g.workload, g.team, g.system, g.gpus, g.placement, h.ends_ms, h.endless)
            for h in world.holdings
            for g in (h.grant,)
            if g.flavor == flavor
        ]
        holding = {h.grant.workload for h in world.holdings}
        self.waiting = [w for w in world.waiting if w.flavor == flavor and w.id not in holding]
        self.marks = {
            m.workload: m
            for m in world.earmarks
            if m.workload in {w.id for w in self.waiting} and m.lapses_ms > world.now_ms
        }
        for mark in self.marks.values():
            asker = next(w for w in self.waiting if w.id == mark.workload)
            self.pieces.append(Piece(asker.id, mark.team, asker.system, mark.gpus, mark.placement, None, asker.endless))
        self.keepers: list[Keeper] = []
        self.blocked: list[tuple[Workload, set[Answer], tuple[Keeper, ...]]] = []

    # --- quota: the balance rule on the list of pieces -----------------------------------------------------------

    def used(self, pieces: Sequence[Piece], extra: Mapping[TeamName, int] | None = None) -> dict[TeamName, int]:
        used = dict(extra or {})
        for piece in pieces:
            if piece.team in self.specs:
                used[piece.team] = used.get(piece.team, 0) + piece.gpus
        return used

    def quota_fits(self, team: TeamName, gpus: int, used: Mapping[TeamName, int]) -> bool:
        return quota_fits(self.world.specs, self.flavor, team, gpus, used)

    def total(self, team: TeamName, used: Mapping[TeamName, int]) -> int:
        return total_of(self.world.specs, team, used)

    def guarantee(self, team: TeamName) -> int:
        if team not in self._guarantees:
            self._guarantees[team] = oracle_quota.guarantee(self.world.specs, self.specs[team], self.flavor)
        return self._guarantees[team]

    def within(self, team: TeamName, gpus: int, used: Mapping[TeamName, int]) -> bool:
        children = [spec.name for spec in self.world.specs if spec.parent == team]
        own = self.guarantee(team) - sum(self.guarantee(child) for child in children)
        return used.get(team, 0) + gpus <= own and self.total(team, used) + gpus <= self.guarantee(team)

    # --- order ---------------------------------------------------------------------------------------------------

    def score(self, team: TeamName, gpus: int, used: Mapping[TeamName, int]) -> tuple[Fraction | float, ...]:
        path: list[TeamName] = []
        node: TeamName | None = team
        while node is not None:
            path.insert(0, node)
            node = self.specs[node].parent
        levels = path[1:] or path
        scores: list[Fraction | float] = []
        for name in levels:
            held = self.total(name, used) + (gpus if name == team else 0)
            past = total_of(self.world.specs, name, self._past) if self._past else 0
            above = max(0, held - self.guarantee(name)) + max(0, past - self.guarantee(name))
            weight = self.specs[name].weight
            scores.append(Fraction(above) / weight if weight else float("inf"))
        return tuple(scores)

    def rank(self, w: Workload) -> tuple[object, ...]:
        used = self.used(self._without_own(w))
        age = (-w.priority, w.submitted_ms, w.id)
        if self.within(w.team, w.gpus, used):
            return (0, (), *age)
        return (1, self.score(w.team, w.gpus, used), *age)

    def _without_own(self, w: Workload) -> list[Piece]:
        return [piece for piece in self.pieces if piece.owner != w.id]

    # --- nodes ---------------------------------------------------------------------------------------------------

    def roomy(self, w: Workload, pieces: Sequence[Piece]) -> list[NodeName]:
        """Return the nodes that have room for one share of `w` beside these pieces."""
        return [node.name for node in self._eligible(w) if node_has_room(node, w, pieces)]

    def _eligible(self, w: Workload) -> list[NodeSupply]:
        return [node for node in self.nodes if w.within_nodes is None or node.name in w.within_nodes]

    def hopeful(self, w: Workload) -> list[NodeSupply]:
        """Return the nodes that could hold a share of `w` once everything of the platform's own has ended there."""
        return [node for node in self._eligible(w) if could_ever(node, w)]

    # --- one workload --------------------------------------------------------------------------------------------

    def judge(self, w: Workload) -> Answer:
        """Say whether `w` may start beside everything that is held, and beside what is kept by those before it."""
        pieces = self._without_own(w)
        used = self.used(pieces)
        if not w.preemptible and not self.within(w.team, w.gpus, used):
            return Answer.GUARANTEE_ONLY
        if not self.quota_fits(w.team, w.gpus, used):
            return Answer.QUOTA
        ahead = self.ahead(w)
        answers = {self._behind(w, used, ahead)}
        if self.keepers:
            answers.add(self._behind(w, used, self.ahead(w, late=True)))
            answers.add(self._behind(w, used, [keeper for keeper in ahead if keeper.sure]))
        return answers.pop() if len(answers) == 1 else Answer.OPEN

    def _behind(self, w: Workload, used: Mapping[TeamName, int], ahead: Sequence[Keeper]) -> Answer:
        """Say whether `w`, which quota admits, may start beside what is kept by these."""
        roomy = set(self.roomy(w, self._without_own(w)))
        if ahead and w.id in self.marks:
            return Answer.OPEN if len(roomy) >= w.nodes else Answer.NODES
        kept = dict(used)
        for keeper in ahead:
            kept[keeper.workload.team] = kept.get(keeper.workload.team, 0) + keeper.workload.gpus
        if not self.quota_fits(w.team, w.gpus, kept):
            return Answer.BEHIND
        return self._beside(w, roomy, ahead)

    def _beside(self, w: Workload, roomy: set[NodeName], ahead: Sequence[Keeper]) -> Answer:
        """Say whether nodes have room beside those that are kept."""
        closed = frozenset[NodeName]().union(*(k.kept for k in ahead))
        maybe = frozenset[NodeName]().union(*(k.maybe for k in ahead))
        if len(roomy - closed - maybe) >= w.nodes:
            return Answer.STARTS
        if len(roomy - closed) >= w.nodes:
            return Answer.OPEN
        return Answer.BEHIND if len(roomy) >= w.nodes else Answer.NODES

    def ahead(self, w: Workload, *, late: bool = False) -> list[Keeper]:
        """Return those who keep something from `w`.

        When a keeper can start at the earliest is asked when it begins to keep or, `late`, when it is passed: what
        starts in between may have told an end, and what is kept for `w` itself is not counted against it. The rules
        leave that open.
        """
        within = self.within(w.team, w.gpus, self.used(self._without_own(w)))
        return [keeper for keeper in self.keepers if self._binds(keeper, w, within=within, late=late)]

    def _binds(self, keeper: Keeper, w: Workload, *, within: bool, late: bool) -> bool:
        if not keeper.ends and (within or not keeper.within):
            return False
        if w.time_limit_s is None or w.endless:
            return True
        first = keeper.workload
        others = [piece for piece in self._without_own(first) if piece.owner != w.id]
        starts_ms = self._earliest(first, others) if late else keeper.starts_ms
        return starts_ms == NEVER_MS or self.world.now_ms + w.time_limit_s * 1000 > starts_ms

    # --- who keeps -----------------------------------------------------------------------------------------------

    def keep(self, w: Workload, answer: Answer) -> None:
        """Let the first blocked of its queue keep what it waits for."""
        queue = w.team
        if any(keeper.workload.team == queue for keeper in self.keepers) or len(self.keepers) == MOST_KEEPERS:
            return
        if answer is Answer.GUARANTEE_ONLY or len(self.hopeful(w)) < w.nodes:
            return
        pieces = self._without_own(w)
        within = self.within(w.team, w.gpus, self.used(pieces))
        lasting = [piece for piece in pieces if piece.endless]
        kept, maybe = frozenset[NodeName](), frozenset[NodeName]()
        ends = self._could_start(w, lasting)
        if answer is not Answer.QUOTA:
            kept, maybe = self._nearest(w, pieces)
            ends = all(node_has_room(node, w, lasting) for node in self.nodes if node.name in kept) and ends
        sure = all(mark.workload != w.id for mark in self.world.earmarks)
        self.keepers.append(Keeper(w, within, ends, kept, maybe, self._earliest(w, pieces), sure))

    def _could_start(self, w: Workload, pieces: Sequence[Piece]) -> bool:
        return self.quota_fits(w.team, w.gpus, self.used(pieces)) and len(self.roomy(w, pieces)) >= w.nodes

    def _earliest(self, w: Workload, pieces: Sequence[Piece]) -> int:
        """Return when quota and nodes suffice, each by known ends only: at once when only others' claims block it."""
        if self._could_start(w, pieces):
            return self.world.now_ms
        for moment in sorted({piece.ends_ms for piece in pieces if piece.ends_ms is not None and not piece.endless}):
            if self._could_start(w, still_there(pieces, moment)):
                return moment
        return NEVER_MS

    def _nearest(self, w: Workload, pieces: Sequence[Piece]) -> tuple[frozenset[NodeName], frozenset[NodeName]]:
        """Return the nodes that are nearest to having room, and those that are equally near where the cut falls.

        Nodes that are kept from `w` for others are not among them; without enough others, none is kept.
        """
        closed = frozenset[NodeName]().union(*(k.kept for k in self.ahead(w)))
        maybe = frozenset[NodeName]().union(*(k.maybe for k in self.ahead(w)))
        ranked = sorted((distance(node, w, pieces), node.name) for node in self.hopeful(w) if node.name not in closed)
        if len(ranked) < w.nodes:
            return frozenset(), frozenset()
        if maybe & {name for _, name in ranked}:
            return frozenset(), frozenset(name for _, name in ranked)
        cut = ranked[w.nodes - 1][0]
        below = frozenset(name for far, name in ranked if far < cut)
        at_cut = frozenset(name for far, name in ranked if far == cut)
        if len(below) + len(at_cut) == w.nodes:
            return below | at_cut, frozenset()
        return below, at_cut

    # --- the walk ------------------------------------------------------------------------------------------------

    def walk(self, check_reclaim: Callable[["Pass", Workload, Earmark], None]) -> None:
        """Judge every waiting workload in the order, beside the product's answer."""
        admitted = [placed for placed in self.told.admitted if placed.workload.flavor == self.flavor]
        reclaims = {mark.workload: mark for mark in self.told.preemptions if mark.flavor == self.flavor}
        left, seen = [w for w in self.waiting if not self._refused(w)], set[WorkloadId]()
        while left:
            heads: dict[TeamName, Workload] = {}
            for w in sorted(left, key=lambda w: (-w.priority, w.submitted_ms, w.id)):
                heads.setdefault(w.team, w)
            new = [w for w in heads.values() if w.id not in seen]
            seen.update(w.id for w in new)
            w = next((w for w in new if self.is_hopeless(w)), None) or min(heads.values(), key=self.rank)
            left.remove(w)
            self._meet(w, admitted, reclaims, check_reclaim)
        if admitted:
            raise Mismatch(f"the product starts what nobody judged: {[p.workload.id for p in admitted]}")
        if reclaims:
            raise Mismatch(f"the product reclaims for what is not blocked: {list(reclaims)}")
        self._check_reasons()

    def is_hopeless(self, w: Workload) -> bool:
        """Return whether `w`, now the first of its queue, is passed over before its turn.

        That is so when somebody of its queue keeps already and it is blocked now: in this pass there will be no more
        room, and no fewer keepers. Those behind it then have their own place in the order.
        """
        if w.id in self.marks or all(keeper.workload.team != w.team for keeper in self.keepers):
            return False
        answer = self.judge(w)
        return answer is not Answer.STARTS and (answer is not Answer.OPEN or w.id in self.told.waiting)

    def _meet(
        self,
        w: Workload,
        admitted: list[Placed],
        reclaims: dict[WorkloadId, Earmark],
        check_reclaim: Callable[["Pass", Workload, Earmark], None],
    ) -> None:
        answer = self.judge(w)
        if answer is Answer.OPEN:
            self.tally.open += 1
        else:
            self.tally.decisions += 1
        now = next((placed for placed in admitted if placed.workload.id == w.id), None)
        if answer is Answer.STARTS and now is None:
            raise Mismatch(f"{w.id} should start, the product says {self.told.waiting.get(w.id)}")
        if now is not None:
            if answer not in (Answer.STARTS, Answer.OPEN):
                raise Mismatch(f"{w.id} is started, though {answer}: {dict(now.placement)}")
            if admitted[0] is not now:
                raise Mismatch(f"{w.id} comes before {admitted[0].workload.id} in the order")
            admitted.pop(0)
            self._start(w, now)
            return
        waits = self.told.waiting.get(w.id)
        if waits is None:
            raise Mismatch(f"{w.id} is neither started nor waiting")
        self.tally.reasons[waits.reason] = self.tally.reasons.get(waits.reason, 0) + 1
        if w.id in reclaims:
            mark = reclaims.pop(w.id)
            check_reclaim(self, w, mark)
            self.tally.preemptions += 1
            self.pieces.append(Piece(w.id, w.team, w.system, w.gpus, mark.placement, None, w.endless))
        elif w.id not in self.marks:
            self._block(w, answer, waits.reason)

    def _block(self, w: Workload, answer: Answer, told: Reason) -> None:
        """Let what may not start wait, and keep."""
        blockers = self.blockers(w)
        if answer is Answer.OPEN:
            answer = {Reason.QUOTA: Answer.QUOTA, Reason.CAPACITY: Answer.NODES}.get(told, Answer.BEHIND)
        self.blocked.append((w, blockers, tuple(self.keepers)))
        self.keep(w, answer)

    def _check_reasons(self) -> None:
        """Compare why each one waits: for something that blocked it at its turn, or does at the end of the pass."""
        every = self.keepers
        for w, answers, before in self.blocked:
            told = self.told.waiting[w.id].reason
            self.keepers = list(before)
            true = answers | self.blockers(w)
            if Answer.OPEN not in true and told not in {REASONS[answer] for answer in true if answer in REASONS}:
                shown = sorted(answer.value for answer in true)
                raise Mismatch(f"{w.id} waits by the rules for {shown}, the product says {self.told.waiting[w.id]}")
        self.keepers = every

    def blockers(self, w: Workload) -> set[Answer]:
        """Return everything that stands in the way now."""
        blockers = {self.judge(w)}
        if len(self.roomy(w, self._without_own(w))) < w.nodes and Answer.GUARANTEE_ONLY not in blockers:
            blockers.add(Answer.NODES)
        return blockers

    def _refused(self, w: Workload) -> bool:
        """Compare the refusals that are final: what could never run here."""
        waits = self.told.waiting.get(w.id)
        expected = self._never(w)
        told = waits.reason if waits is not None and waits.reason in FINAL else None
        if expected is not told:
            raise Mismatch(f"{w.id}: by the rules {expected}, the product says {waits}")
        self.tally.decisions += 1 if expected else 0
        return expected is not None

    def _never(self, w: Workload) -> Reason | None:
        if w.team not in self.specs:
            return Reason.UNKNOWN_TEAM
        if w.flavor not in self.specs[w.team].quotas:
            return Reason.FLAVOR_CLOSED
        if not self.quota_fits(w.team, w.gpus, {}) or (not w.preemptible and not self.within(w.team, w.gpus, {})):
            return Reason.NEVER_FITS_QUOTA
        if len([node for node in self._eligible(w) if node.total >= w.gpus_per_node]) < w.nodes:
            return Reason.NEVER_FITS_NODES
        return None

    def _start(self, w: Workload, placed: Placed) -> None:
        """Check the product's choice of nodes, and charge it."""
        pieces = self._without_own(w)
        roomy = self.roomy(w, pieces)
        if len(placed.placement) != w.nodes or set(placed.placement.values()) != {w.gpus_per_node}:
            raise Mismatch(f"{w.id} is placed as {dict(placed.placement)}")
        if not set(placed.placement) <= set(roomy):
            raise Mismatch(f"{w.id} is placed on {dict(placed.placement)}, room is on {roomy}")
        ends = None if w.time_limit_s is None or w.endless else self.world.now_ms + w.time_limit_s * 1000
        self.pieces = pieces
        self.pieces.append(Piece(w.id, w.team, w.system, w.gpus, placed.placement, ends, w.endless))
        self.tally.admitted += 1


def compare(
    world: Snapshot, told: Decisions, tally: Tally, check_reclaim: Callable[[Pass, Workload, Earmark], None]
) -> None:
    """Raise Mismatch where the product's answer is not what the rules say."""
    names = {placed.workload.id for placed in told.admitted}
    if names & set(told.waiting) or len(names) != len(told.admitted):
        raise Mismatch("a workload is in two lists")
    for flavor in world.flavors:
        Pass(world, flavor, told, tally).walk(check_reclaim)


# --- arithmetic on plain lists ---------------------------------------------------------------------------------------

N = TypeVar("N", int, Fraction)


def total_of(specs: Sequence[TeamSpec], team: TeamName, used: Mapping[TeamName, N]) -> N | int:
    """Return what the subtree holds."""
    below = [total_of(specs, spec.name, used) for spec in specs if spec.parent == team]
    return sum(below, used.get(team, 0))


def quota_fits(
    specs: Sequence[TeamSpec], flavor: FlavorName, team: TeamName, gpus: int, used: Mapping[TeamName, int]
) -> bool:
    """Apply the balance rule: after the grant every limit above holds, and the root lends nothing that it has not.

    What the team and those above it do not lend to others is there for the team; and where a lowered quota left the
    root short, it covers that first. In a state without overage this is the plain rule of oracle_quota.
    """
    by_name = {spec.name: spec for spec in specs}
    if flavor not in by_name[team].quotas:
        return False
    after = {**used, team: used.get(team, 0) + gpus}
    path: list[TeamName] = []
    node: TeamName | None = team
    while node is not None:
        path.append(node)
        quota = by_name[node].quotas.get(flavor)
        if quota is not None and quota.limit is not None and total_of(specs, node, after) > quota.limit:
            return False
        node = by_name[node].parent
    return _balance(specs, by_name[path[-1]], flavor, after, path) >= 0


def _balance(
    specs: Sequence[TeamSpec],
    spec: TeamSpec,
    flavor: FlavorName,
    used: Mapping[TeamName, int],
    path: Sequence[TeamName],
) -> int:
    """Return what the subtree has left for the asking team, whose path it is."""
    children = [each for each in specs if each.parent == spec.name]
    left = oracle_quota.guarantee(specs, spec, flavor) - used.get(spec.name, 0)
    for child in children:
        coming = _balance(specs, child, flavor, used, path)
        quota = child.quotas.get(flavor)
        if quota is not None and quota.lend_limit is not None and child.name not in path:
            coming = min(coming, quota.lend_limit)
        left += coming - oracle_quota.guarantee(specs, child, flavor)
    return left


def held_on(node: NodeSupply, system: System, pieces: Sequence[Piece]) -> int:
    """Return the devices that a system holds on a node: by the pieces, or what was seen there when that is more."""
    seen = node.slurm if system is System.SLURM else node.pods
    return max(seen, sum(piece.placement.get(node.name, 0) for piece in pieces if piece.system is system))


def node_has_room(node: NodeSupply, w: Workload, pieces: Sequence[Piece]) -> bool:
    """Return whether one share of `w` may go on the node. It serves one system, and a worker in use has its size."""
    slurm, pods = (held_on(node, system, pieces) for system in (System.SLURM, System.KUBERNETES))
    if not node.usable:
        return False
    if w.system is System.KUBERNETES:
        return slurm == 0 and node.total - node.unmanaged - pods >= w.gpus_per_node
    if not node.slurm_ok or pods or node.unmanaged:
        return False
    size = min(node.total, node.worker_gpus) if slurm and node.worker_gpus is not None else node.total
    return size - slurm >= w.gpus_per_node


def could_ever(node: NodeSupply, w: Workload) -> bool:
    """Return whether the node in its present service could hold a share, were nothing granted on it."""
    if not node.usable or node.total - node.unmanaged < w.gpus_per_node:
        return False
    return w.system is System.KUBERNETES or (node.slurm_ok and not node.unmanaged)


def in_the_way(node: NodeSupply, w: Workload, pieces: Sequence[Piece]) -> tuple[int, int]:
    """Return how many devices of pods, and of jobs, must end before a share fits."""
    slurm, pods = (held_on(node, system, pieces) for system in (System.SLURM, System.KUBERNETES))
    if w.system is System.KUBERNETES:
        return max(0, w.gpus_per_node - (node.total - node.unmanaged - pods)), slurm
    size = min(node.total, node.worker_gpus) if slurm and node.worker_gpus is not None else node.total
    if slurm and size < w.gpus_per_node:
        return pods, slurm
    return pods, max(0, w.gpus_per_node - (size - slurm))


def distance(node: NodeSupply, w: Workload, pieces: Sequence[Piece]) -> tuple[int, int, int, int]:
    """Return how far the node is from room: at a known time, after ends that nobody knows, or perhaps never."""
    if node_has_room(node, w, pieces):
        return (0, 0, 0, 0)
    for moment in sorted({p.ends_ms for p in pieces if p.ends_ms is not None and not p.endless}):
        if node_has_room(node, w, still_there(pieces, moment)):
            return (0, moment, 0, 0)
    lasting = [piece for piece in pieces if piece.endless]
    return (1 if node_has_room(node, w, lasting) else 2, 0, *in_the_way(node, w, pieces))


def still_there(pieces: Sequence[Piece], moment_ms: int) -> list[Piece]:
    """Return what has not ended by a moment, as far as ends are known."""
    return [p for p in pieces if p.endless or p.ends_ms is None or p.ends_ms > moment_ms]
