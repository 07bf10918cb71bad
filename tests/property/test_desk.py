"""The desk after any changes decides as a fresh one; what it decides keeps every rule that a decision can break."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.decisions import Decisions
from bridge.admission.desk import Desk
from bridge.admission.model import Earmark, Holding, Policy, Preemption, WithinTeam
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId
from bridge.workloads.reasons import Reason

FLAVORS = (FlavorName("a100"), FlavorName("h100"))
TEAMS = tuple(TeamName(name) for name in ("left", "left-a", "left-b", "right", "right-a", "solo"))
PARENTS = {"left": "root", "left-a": "left", "left-b": "left", "right": "root", "right-a": "right", "solo": "root"}
START_MS = 1_000_000
MINUTE_MS = 60_000
EXAMPLES = 25


def a_tree(rng: random.Random) -> Tree:
    specs = [TeamSpec(TeamName("root"), None, quotas={flavor: Quota(40) for flavor in FLAVORS})]
    for name in TEAMS:
        parent = PARENTS[name]
        most = 6 if parent != "root" else 13
        quota = {
            flavor: Quota(
                0 if rng.random() < 0.3 else (most if parent == "root" else rng.randint(0, most)),
                limit=rng.choice([None, None, 16]),
            )
            for flavor in FLAVORS
            if flavor == "h100" or parent == "root"
        }
        if parent == "root":
            quota = {flavor: Quota(13, each.limit) for flavor, each in quota.items()}
        specs.append(TeamSpec(name, TeamName(parent), weight=rng.choice([0, 1, 1, 2]), quotas=quota))
    return Tree.build(specs)


def a_policy(rng: random.Random) -> Policy:
    return Policy(
        {
            team: Preemption(
                min_runtime_ms=rng.choice([0, 0, 5 * MINUTE_MS]),
                grace_ms=30_000,
                within_team=rng.choice(list(WithinTeam)),
            )
            for team in TEAMS
        },
        preempts=rng.random() < 0.8,
    )


def a_workload(rng: random.Random, number: int) -> Workload:
    endless = rng.random() < 0.2
    system = rng.choice(list(System))
    return Workload(
        WorkloadId(f"w{number}"),
        system,
        rng.choice([*TEAMS, TeamName("ghosts")] if rng.random() < 0.1 else TEAMS),
        FLAVORS[1] if rng.random() < 0.8 else FLAVORS[0],
        nodes=rng.choice([1, 1, 1, 2, 3]),
        gpus_per_node=rng.choice([1, 2, 4, 8]),
        submitted_ms=START_MS + rng.randint(0, 5),
        priority=rng.choice([0, 0, 0, 1]),
        time_limit_s=rng.choice([None, 60, 600, 3600]),
        within_nodes=None if rng.random() < 0.9 else frozenset({NodeName("n1"), NodeName("n2")}),
        preemptible=rng.random() < 0.85,
        endless=endless and system is System.KUBERNETES,
    )


class World:
    """The state that a desk was told, kept beside it; and random changes to both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = START_MS
        self.tree, self.policy = a_tree(self.rng), a_policy(self.rng)
        self.history: dict[tuple[TeamName, FlavorName], float] = {}
        self.waiting: dict[WorkloadId, Workload] = {}
        self.holdings: dict[WorkloadId, Holding] = {}
        self.nodes: dict[NodeName, NodeSupply] = {}
        self.earmarks: dict[WorkloadId, Earmark] = {}
        self.desk = Desk(self.tree, FLAVORS, self.policy)
        self.made = 0
        for number in range(5):
            self.put(NodeSupply(NodeName(f"n{number}"), FLAVORS[1] if number < 4 else FLAVORS[0], 8))

    def put(self, node: NodeSupply) -> None:
        self.nodes[node.name] = node
        self.desk.node(node)

    def fresh(self, rng: random.Random | None = None) -> Desk:
        """Return a new desk that is told the same, in another order when `rng` is given."""
        desk = Desk(self.tree, FLAVORS, self.policy, self.history)
        self.tell(desk, rng)
        return desk

    def tell(self, desk: Desk, rng: random.Random | None = None) -> None:
        """Bring a desk to this state as a whole; some of it as other objects."""
        waiting = [replace(each) if number % 2 else each for number, each in enumerate(self.waiting.values())]
        holdings = [replace(each) for each in self.holdings.values()]
        nodes, earmarks = list(self.nodes.values()), list(self.earmarks.values())
        if rng is not None:
            rng.shuffle(waiting)
            rng.shuffle(holdings)
            rng.shuffle(nodes)
            rng.shuffle(earmarks)
        desk.sync(waiting=waiting, holdings=holdings, nodes=nodes, earmarks=earmarks)

    def change(self) -> None:
        """Let one thing happen."""
        step = self.rng.choice(
            [self.submit, self.submit, self.submit, self.carry_out, self.carry_out, self.end, self.withdraw, self.move]
        )
        step()

    def submit(self) -> None:
        self.made += 1
        workload = a_workload(self.rng, self.made)
        self.waiting[workload.id] = workload
        self.desk.submit(workload)

    def withdraw(self) -> None:
        if self.waiting:
            name = self.rng.choice(list(self.waiting))
            del self.waiting[name]
            self.desk.withdraw(name)

    def carry_out(self) -> None:
        """Record some or all of what is proposed."""
        self.now_ms += self.rng.choice([0, 1, MINUTE_MS])
        decisions = self.desk.decide(self.now_ms)
        for placed in decisions.admitted:
            if self.rng.random() < 0.8:
                self.hold(placed.workload, dict(placed.placement))
        for earmark in decisions.preemptions:
            if self.rng.random() < 0.8:
                self.earmarks[earmark.workload] = earmark
                self.desk.earmark(earmark)

    def hold(self, workload: Workload, placement: dict[NodeName, int]) -> None:
        w = workload
        ends = None if w.time_limit_s is None or w.endless else self.now_ms + w.time_limit_s * 1000
        grant = Grant(
            w.id, 1, w.team, w.flavor, w.system, w.gpus, GrantState.RUNNING, placement, running_ms=self.now_ms
        )
        holding = Holding(grant, w.priority, ends, w.endless, "" if w.preemptible else "not preemptible")
        self.holdings[w.id] = holding
        self.desk.hold(holding)
        if self.rng.random() < 0.5:
            del self.waiting[w.id]
            self.desk.withdraw(w.id)
        if self.earmarks.pop(w.id, None) is not None:
            self.desk.unmark(w.id)

    def end(self) -> None:
        victims = [v.workload for mark in self.earmarks.values() for v in mark.victims if v.workload in self.holdings]
        if self.holdings:
            name = self.rng.choice(victims or list(self.holdings))
            del self.holdings[name]
            self.desk.free(name)
            if self.waiting.pop(name, None) is not None:
                self.desk.withdraw(name)

    def move(self) -> None:
        """Change a node, the quotas, the history, or drop an earmark."""
        match self.rng.randrange(4):
            case 0:
                node = self.nodes[self.rng.choice(list(self.nodes))]
                self.put(
                    replace(
                        node,
                        usable=self.rng.random() < 0.8,
                        total=self.rng.choice([8, 8, 6]),
                        slurm_ok=self.rng.random() < 0.9,
                        worker_gpus=self.rng.choice([None, 8, 4]),
                    )
                )
            case 1:
                self.tree, self.policy = a_tree(self.rng), a_policy(self.rng)
                self.desk.reorganise(self.tree, self.policy, FLAVORS)
            case 2:
                self.history = {(team, FLAVORS[1]): float(self.rng.randint(0, 9)) for team in TEAMS}
                self.desk.remember(self.history)
            case _ if self.earmarks:
                name = self.rng.choice(list(self.earmarks))
                del self.earmarks[name]
                self.desk.unmark(name)
            case _:
                self.now_ms += MINUTE_MS


def told(decisions: Decisions) -> tuple[object, ...]:
    return (
        decisions.admitted,
        decisions.preemptions,
        decisions.next_ms,
        {name: decisions.waiting[name] for name in sorted(decisions.waiting)},
    )


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**9))
def test_after_any_changes_the_desk_decides_and_explains_as_a_fresh_one(seed: int) -> None:
    """Q4, Q20: deterministic, whatever came before and in whatever order it was told."""
    world = World(seed)
    synced = Desk(world.tree, FLAVORS, world.policy)
    for _ in range(25):
        world.change()
        kept, fresh = world.desk.decide(world.now_ms), world.fresh(world.rng).decide(world.now_ms)
        assert told(kept) == told(fresh)
        synced.reorganise(world.tree, world.policy, FLAVORS)
        synced.remember(world.history)
        world.tell(synced, world.rng)
        assert told(synced.decide(world.now_ms)) == told(fresh)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**9))
def test_deciding_changes_nothing(seed: int) -> None:
    world = World(seed)
    for _ in range(20):
        world.change()
    first = told(world.desk.decide(world.now_ms))
    assert told(world.desk.decide(world.now_ms)) == first
    world.desk.submit(a_workload(random.Random(seed), 10_000))
    world.desk.decide(world.now_ms)
    world.desk.withdraw(WorkloadId("w10000"))
    assert told(world.desk.decide(world.now_ms)) == first


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**9))
def test_what_is_decided_fits_quota_and_nodes_beside_what_holds_and_is_earmarked(seed: int) -> None:
    """Q1, Q12, Q19: each waiting workload is decided once; no subtree over its limit, no node oversubscribed."""
    world = World(seed)
    for _ in range(25):
        world.change()
        decisions = world.desk.decide(world.now_ms)
        admitted = {placed.workload.id for placed in decisions.admitted}
        assert admitted.isdisjoint(decisions.waiting)
        assert admitted | set(decisions.waiting) == set(world.waiting)
        _check_nodes(world, decisions)
        _check_quota(world, decisions)


def _check_nodes(world: World, decisions: Decisions) -> None:
    on: dict[NodeName, dict[System, int]] = {name: dict.fromkeys(System, 0) for name in world.nodes}
    open_marks = [
        mark
        for name, mark in world.earmarks.items()
        if name in world.waiting and name not in world.holdings and mark.lapses_ms > world.now_ms
    ]
    new = {placed.workload.id for placed in decisions.admitted}
    for holding in world.holdings.values():
        for name, gpus in holding.grant.placement.items():
            on[name][holding.grant.system] += gpus
    before = {name: dict(sums) for name, sums in on.items()}
    for mark in open_marks:
        if mark.workload not in new:
            for name, gpus in mark.placement.items():
                on[name][world.waiting[mark.workload].system] += gpus
    for placed in decisions.admitted:
        assert len(placed.placement) == placed.workload.nodes
        for name, gpus in placed.placement.items():
            assert gpus == placed.workload.gpus_per_node
            on[name][placed.workload.system] += gpus
    for name in {name for placed in decisions.admitted for name in placed.placement}:
        node, sums = world.nodes[name], on[name]
        assert node.usable
        assert sum(sums.values()) <= node.total
        assert not all(sums.values())
        if sums[System.SLURM] > before[name][System.SLURM]:
            assert node.slurm_ok


def _check_quota(world: World, decisions: Decisions) -> None:
    for flavor in FLAVORS:
        balances = Balances(world.tree, {})
        for holding in world.holdings.values():
            if holding.grant.flavor == flavor and holding.grant.team in world.tree:
                balances.charge(holding.grant.team, flavor, holding.grant.gpus)
        for placed in decisions.admitted:
            w = placed.workload
            if w.flavor == flavor:
                assert w.gpus <= balances.available(w.team, flavor)
                balances.charge(w.team, flavor, w.gpus)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**9))
def test_work_that_cannot_be_preempted_never_borrows(seed: int) -> None:
    """Q10: else a guarantee lent to it could not be taken back."""
    world = World(seed)
    for _ in range(25):
        world.change()
        decisions = world.desk.decide(world.now_ms)
        for flavor in FLAVORS:
            balances = Balances(world.tree, {})
            for holding in world.holdings.values():
                if holding.grant.flavor == flavor and holding.grant.team in world.tree:
                    balances.charge(holding.grant.team, flavor, holding.grant.gpus)
            for placed in decisions.admitted:
                w = placed.workload
                if w.flavor == flavor:
                    assert w.preemptible or balances.within(w.team, flavor, w.gpus)
                    balances.charge(w.team, flavor, w.gpus)
        for name, waiting in decisions.waiting.items():
            if waiting.reason is Reason.GUARANTEE_ONLY:
                assert not world.waiting[name].preemptible


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**9))
def test_every_proposed_earmark_has_room_once_its_victims_are_gone(seed: int) -> None:
    """Q9, Q12: what is taken back is enough, and is kept from everybody else."""
    world = World(seed)
    for _ in range(25):
        world.change()
        decisions = world.desk.decide(world.now_ms)
        for earmark in decisions.preemptions:
            workload = world.waiting[earmark.workload]
            assert earmark.gpus == workload.gpus
            assert decisions.waiting[earmark.workload].reason is Reason.RECLAIMING
            assert earmark.victims
        victims = [(v.workload, v.attempt) for e in (*decisions.preemptions, *_open(world)) for v in e.victims]
        assert len(victims) == len(set(victims)), "one victim for two"


def _open(world: World) -> list[Earmark]:
    return [
        mark
        for name, mark in world.earmarks.items()
        if name in world.waiting and name not in world.holdings and mark.lapses_ms > world.now_ms
    ]
