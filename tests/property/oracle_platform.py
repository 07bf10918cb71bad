"""A platform of random teams and nodes that lives on the product's decisions and ledger, each decision compared.

Every step is one thing that happens: somebody asks, something ends, a node or a quota changes, the bridge dies and
comes back from what the ledger has. `decide` asks the product and has the answer compared with the naive rules.
"""

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.admission.decisions import Decisions
from bridge.admission.desk import Desk
from bridge.admission.model import Earmark, Holding, Policy, Preemption, WithinTeam
from bridge.admission.supply import NodeSupply
from bridge.clock import FakeClock
from bridge.controller import earmarks
from bridge.ledger.journal import open_ledger
from bridge.ledger.memory import MemoryLedger
from bridge.ledger.port import Ledger
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Tree
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId
from tests.property import oracle, oracle_reclaim

FLAVORS = (FlavorName("h100"), FlavorName("a100"))
START_MS = 1_000_000_000
MINUTE_MS = 60_000
DEPTH = 4


@dataclass(frozen=True)
class Shape:
    """What a platform is drawn from."""

    teams: int = 7
    nodes: int = 4
    endless: float = 0.15
    preempts: float = 0.8
    history: bool = True
    limits: bool = True
    faults: bool = True
    systems: tuple[System, ...] = tuple(System)


def in_memory() -> Callable[[], Ledger]:
    """Make a ledger that survives the bridge's crashes as a database does, without its time."""
    kept = MemoryLedger(FakeClock(0))
    return lambda: kept


@contextmanager
def on_disk(fault: Callable[[str], None] | None = None) -> Iterator[Callable[[], Ledger]]:
    """Make ledgers that open the same file; all are closed, and the file is removed, at the end."""
    opened: list[Ledger] = []
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'ledger.db'}"

        def make() -> Ledger:
            opened.append(open_ledger(url, FakeClock(0), fault))
            return opened[-1]

        try:
            yield make
        finally:
            for ledger in opened:
                ledger.close()


def flat(guarantees: Mapping[str, int], *, weights: Mapping[str, int] | None = None) -> list[TeamSpec]:
    """Make one root and a team for each guarantee of h100, which sum up to the root's."""
    root = TeamName("root")
    specs = [TeamSpec(root, None, 1, {FLAVORS[0]: Quota(sum(guarantees.values()))})]
    for name, guarantee in guarantees.items():
        specs.append(TeamSpec(TeamName(name), root, (weights or {}).get(name, 1), {FLAVORS[0]: Quota(guarantee)}))
    return specs


def eights(count: int) -> list[NodeSupply]:
    """Make nodes of 8 h100."""
    return [NodeSupply(NodeName(f"n{number}"), FLAVORS[0], 8) for number in range(count)]


def a_tree(rng: random.Random, shape: Shape) -> list[TeamSpec]:
    """Draw a sound tree (or several): guarantees are drawn for leaves and own parts, and summed upwards."""
    count = rng.randint(2, shape.teams)
    up: list[int | None] = [None]
    level = [1]
    for index in range(1, count):
        above = rng.randrange(index) if rng.random() < 0.9 else None
        if above is not None and level[above] >= DEPTH:
            above = 0
        up.append(above)
        level.append(1 if above is None else level[above] + 1)
    quotas: list[dict[FlavorName, Quota]] = [{} for _ in up]
    promised = {(index, flavor): 0 for index in range(count) for flavor in FLAVORS}
    for index in reversed(range(count)):
        above = up[index]
        for flavor in FLAVORS:
            own = rng.choice([0, 0, 2, 4, 8, 8]) if above is not None else rng.choice([0, 4, 8])
            guarantee = promised[index, flavor] + own
            if flavor == FLAVORS[0] or rng.random() < 0.6:
                bound = rng.choice([None, None, None, 0, 4, 8]) if shape.limits else None
                lent = rng.choice([None, None, None, 0, 2, 6]) if shape.limits else None
                quotas[index][flavor] = Quota(guarantee, None if bound is None else guarantee + bound, lent)
            else:
                guarantee = promised[index, flavor]
            if above is not None:
                promised[above, flavor] += guarantee
    return [
        TeamSpec(
            _name(index),
            None if (parent := up[index]) is None else _name(parent),
            rng.choice([0, 1, 1, 1, 2, 3]),
            quotas[index],
        )
        for index in range(count)
    ]


def _name(index: int) -> TeamName:
    return TeamName(f"t{index}")


def a_policy(rng: random.Random, specs: Iterable[TeamSpec], shape: Shape) -> Policy:
    terms = {
        spec.name: Preemption(
            min_runtime_ms=rng.choice([0, 0, 0, 5 * MINUTE_MS]),
            grace_ms=rng.choice([0, 30_000, 60_000]),
            within_team=rng.choice(list(WithinTeam)),
        )
        for spec in specs
        if rng.random() < 0.8
    }
    return Policy(terms, preempts=rng.random() < shape.preempts)


class Platform:
    """The state of one platform: what was asked, what holds, what the ledger says; and the product's desk.

    `make_ledger` opens the ledger; it is called again after each crash. What is not given is drawn from the seed.
    """

    def __init__(
        self,
        seed: int,
        make_ledger: Callable[[], Ledger],
        shape: Shape | None = None,
        *,
        tally: oracle.Tally | None = None,
        specs: list[TeamSpec] | None = None,
        nodes: Iterable[NodeSupply] | None = None,
        policy: Policy | None = None,
        compares: bool = True,
    ) -> None:
        self.compares = compares  # each decision with the oracle
        self.rng = random.Random(seed)
        self.shape = shape or Shape()
        self.tally = tally or oracle.Tally()
        self.now_ms = START_MS
        self._make_ledger = make_ledger
        self.ledger = make_ledger()
        self.epoch = self.ledger.newest_epoch() + 1
        self.ledger.open_epoch(self.epoch, "one")
        self.specs = a_tree(self.rng, self.shape) if specs is None else specs
        self.policy = a_policy(self.rng, self.specs, self.shape) if policy is None else policy
        self.history: dict[tuple[TeamName, FlavorName], float] = {}
        self.asked: dict[WorkloadId, Workload] = {}  # waits or holds: everything that has not ended
        self.nodes = {node.name: node for node in (self._some_nodes() if nodes is None else nodes)}
        self.made = 0
        self.desk = self.fresh()

    def _some_nodes(self) -> Iterator[NodeSupply]:
        for number in range(self.rng.randint(2, self.shape.nodes)):
            flavor = FLAVORS[0] if number < 3 or self.rng.random() < 0.6 else FLAVORS[1]
            yield NodeSupply(NodeName(f"n{number}"), flavor, self.rng.choice([8, 8, 8, 4]))

    # --- what the ledger says ------------------------------------------------------------------------------------

    def marks(self) -> dict[WorkloadId, Earmark]:
        found = (earmarks.earmark_of(intent) for intent in earmarks.under_way(self.ledger.intents()))
        return {mark.workload: mark for mark in found}

    def holdings(self) -> list[Holding]:
        leaving = {(v.workload, v.attempt) for mark in self.marks().values() for v in mark.victims}
        return [self._holding(grant, leaving) for grant in sorted(self.ledger.grants(), key=lambda g: g.workload)]

    def _holding(self, grant: Grant, leaving: set[tuple[WorkloadId, int]]) -> Holding:
        w = self.asked[grant.workload]
        ends = None if w.time_limit_s is None or w.endless else grant.reserved_ms + w.time_limit_s * 1000
        shield = "" if w.preemptible else "annotated as not preemptible"
        return Holding(grant, w.priority, ends, w.endless, shield, (grant.workload, grant.attempt) in leaving)

    def snapshot(self) -> oracle.Snapshot:
        holdings = self.holdings()
        held = {h.grant.workload for h in holdings}
        waiting = [w for w in self.asked.values() if w.id not in held]
        nodes = list(self.nodes.values())
        marks = list(self.marks().values())
        return oracle.Snapshot(
            self.specs, FLAVORS, self.policy, self.history, waiting, holdings, nodes, marks, self.now_ms
        )

    def fresh(self) -> Desk:
        desk = Desk(Tree.build(self.specs), FLAVORS, self.policy, self.history)
        self.tell(desk)
        return desk

    def tell(self, desk: Desk) -> None:
        """Bring a desk to what is so now, as the controller does."""
        world = self.snapshot()
        parts = [list(part) for part in (world.waiting, world.holdings, world.nodes, world.earmarks)]
        for part in parts:
            self.rng.shuffle(part)
        waiting, holdings, nodes, marks = parts
        desk.sync(waiting=waiting, holdings=holdings, nodes=nodes, earmarks=marks)  # type: ignore[arg-type]

    # --- the decision --------------------------------------------------------------------------------------------

    def decide(self) -> Decisions:
        """Ask the product, and compare."""
        self.tell(self.desk)
        told = self.desk.decide(self.now_ms)
        if self.compares:
            oracle.compare(self.snapshot(), told, self.tally, oracle_reclaim.check)
        return told

    def carry_out(self, told: Decisions, *, share: float = 1.0) -> None:
        """Record what was decided, or some of it: earmarks that were used are settled with the grant."""
        marks = self.marks()
        for placed in told.admitted:
            if self.rng.random() >= share:
                continue
            grant = self.ledger.reserve(placed.workload, placed.placement, at_ms=self.now_ms)
            self._run(grant)
            if placed.workload.id in marks:
                self._settle(placed.workload.id, earmarks.STARTED)
        for mark in told.preemptions:
            if self.rng.random() < share:
                number = len(earmarks.tries(self.ledger.intents(open_only=False)).get(mark.workload, [])) + 1
                self.ledger.intend(earmarks.intent_of(mark, number))

    def _run(self, grant: Grant) -> None:
        self.ledger.run(grant.workload, grant.attempt, gpus=grant.gpus, placement=grant.placement, at_ms=self.now_ms)

    def _settle(self, name: WorkloadId, outcome: str) -> None:
        for intent in earmarks.under_way(self.ledger.intents()):
            if intent.workload == name:
                self.ledger.settle(intent.id, outcome=outcome, at_ms=self.now_ms)

    # --- what happens --------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let one thing happen."""
        ask, act = self.submit, self.pass_and_record
        happens: list[Callable[[], object]] = [ask, ask, ask, act, act, act, self.end, self.end]
        self.rng.choice([*happens, self.withdraw, self.wait, self.change])()

    def submit(self, **changes: object) -> Workload:
        self.made += 1
        rng = self.rng
        system = rng.choice(self.shape.systems)
        w = Workload(
            WorkloadId(f"{'slurm/main' if system is System.SLURM else 'pod'}/{self.made:03}"),
            system,
            rng.choice([spec.name for spec in self.specs] if rng.random() < 0.97 else [TeamName("ghosts")]),
            FLAVORS[0] if rng.random() < 0.85 else FLAVORS[1],
            nodes=rng.choice([1, 1, 1, 1, 2, 3]),
            gpus_per_node=rng.choice([1, 2, 4, 8]),
            submitted_ms=self.now_ms - rng.randint(0, 5),
            priority=rng.choice([0, 0, 0, 1, 2]),
            time_limit_s=rng.choice([None, 60, 600, 3600]),
            within_nodes=None
            if rng.random() < 0.9
            else frozenset(rng.sample(sorted(self.nodes), min(2, len(self.nodes)))),
            preemptible=rng.random() < 0.85,
            endless=system is System.KUBERNETES and rng.random() < self.shape.endless,
        )
        w = replace(w, **changes)  # type: ignore[arg-type]
        self.asked[w.id] = w
        return w

    def ask(
        self, team: str, gpus: int, *, nodes: int = 1, system: System = System.SLURM, **changes: object
    ) -> Workload:
        """Submit exactly this: `gpus` on each of `nodes`, h100, preemptible, priority 0, ends nobody knows when."""
        plain = {"flavor": FLAVORS[0], "priority": 0, "time_limit_s": None, "within_nodes": None, "preemptible": True}
        shape = {"team": TeamName(team), "system": system, "nodes": nodes, "gpus_per_node": gpus, "endless": False}
        self.made += 1
        name = WorkloadId(f"{'slurm/main' if system is System.SLURM else 'pod'}/{self.made:03}")
        return self.submit(**{"id": name, "submitted_ms": self.now_ms, **plain, **shape, **changes})

    def running(self) -> set[WorkloadId]:
        """Return what holds."""
        return {grant.workload for grant in self.ledger.grants()}

    def held(self) -> dict[TeamName, int]:
        """Return the h100 that each team holds."""
        held: dict[TeamName, int] = {}
        for grant in self.ledger.grants():
            if grant.flavor == FLAVORS[0]:
                held[grant.team] = held.get(grant.team, 0) + grant.gpus
        return held

    def rest(self, passes: int = 50) -> None:
        """Decide and record until nothing is decided any more; victims end at once, and ask again."""
        for _ in range(passes):
            told = self.decide()
            self.carry_out(told)
            for victim in [v for mark in self.marks().values() for v in mark.victims]:
                if victim.workload in self.running():
                    self.end(victim.workload, again=True)
            if not told.admitted and not told.preemptions and not self.marks():
                return
        raise AssertionError(f"no rest after {passes} passes")

    def pass_and_record_all(self) -> Decisions:
        """Decide and record all of it."""
        told = self.decide()
        self.carry_out(told)
        return told

    def pass_and_record(self) -> None:
        self.carry_out(self.decide(), share=self.rng.choice([1.0, 1.0, 0.6]))

    def end(self, name: WorkloadId | None = None, *, again: bool | None = None) -> None:
        """Let running work end; victims first. `again`: it asks again (a victim may)."""
        grants = {g.workload: g for g in self.ledger.grants()}
        victims = [v.workload for m in self.marks().values() for v in m.victims if v.workload in grants]
        chosen = name or self.rng.choice(victims or sorted(grants) or [WorkloadId("")])
        if chosen in grants:
            grant = grants[chosen]
            self.ledger.release(grant.workload, grant.attempt, at_ms=self.now_ms, note="ended")
            if again is None:
                again = chosen in victims and self.rng.random() < 0.5
            if not again:
                del self.asked[chosen]

    def withdraw(self) -> None:
        waiting = sorted(set(self.asked) - self.running())
        if waiting:
            self.withdraw_this(self.rng.choice(waiting))

    def withdraw_this(self, name: WorkloadId) -> None:
        """Let a waiting workload ask no more; a try of it is settled."""
        del self.asked[name]
        self._settle(name, earmarks.GONE)

    def lapse(self, name: WorkloadId) -> None:
        """Settle a try that was not in time."""
        self._settle(name, earmarks.LAPSED)

    def wait(self) -> None:
        """Let time pass; a try that lapsed is settled as such, soon after."""
        self.now_ms += self.rng.choice([1, MINUTE_MS, 5 * MINUTE_MS])
        for name, mark in self.marks().items():
            if mark.lapses_ms <= self.now_ms and self.rng.random() < 0.7:
                self._settle(name, earmarks.LAPSED)

    def change(self) -> None:
        self.rng.choice([self.change_node, self.change_quotas, self.change_history, self.fail])()

    def change_node(self) -> None:
        rng = self.rng
        node = self.nodes[rng.choice(sorted(self.nodes))]
        self.nodes[node.name] = replace(
            node,
            usable=rng.random() < 0.85,
            total=rng.choice([8, 8, 6]),
            slurm_ok=rng.random() < 0.9,
            unmanaged=rng.choice([0, 0, 0, 0, 1]),
            worker_gpus=rng.choice([None, None, 8, 4]),
        )

    def change_quotas(self) -> None:
        """Draw the same teams anew: quotas raised and lowered, teams moved, added and removed."""
        self.specs = a_tree(self.rng, self.shape)
        self.policy = a_policy(self.rng, self.specs, self.shape)
        self.desk.reorganise(Tree.build(self.specs), self.policy, FLAVORS)

    def change_history(self) -> None:
        if self.shape.history:
            self.history = {(spec.name, FLAVORS[0]): self.rng.randint(0, 24) / 2 for spec in self.specs}
            self.desk.remember(self.history)

    def fail(self) -> None:
        """Die and come back, at some moment."""
        if self.shape.faults:
            before = sorted(map(repr, self.ledger.grants(holding=False)))
            self.restart()
            assert sorted(map(repr, self.ledger.grants(holding=False))) == before
            self.repeat()

    def restart(self) -> None:
        """Come back as a new leader: all that is left is the ledger, and the two systems' own."""
        self.ledger = self._make_ledger()
        self.epoch += 1
        self.ledger.open_epoch(self.epoch, "one")
        self.desk = self.fresh()

    def look_after_crash(self) -> None:
        """Do what the controller does on its first look: charge what was released to its system as running."""
        for grant in self.ledger.grants():
            if grant.state is GrantState.RESERVED:
                self._run(grant)
            if grant.workload in self.marks():
                self._settle(grant.workload, earmarks.STARTED)

    def repeat(self) -> None:
        """Send every reservation and start again, in any order: nothing changes."""
        newest = self.ledger.last_seq()
        grants = [grant for grant in self.ledger.grants() if grant.state is GrantState.RUNNING]
        self.rng.shuffle(grants)
        for grant in grants:
            w = self.asked[grant.workload]
            assert self.ledger.reserve(w, grant.placement, at_ms=self.now_ms) == grant
        assert self.ledger.last_seq() == newest
