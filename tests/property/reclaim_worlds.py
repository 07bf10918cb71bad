"""Small random platforms that lend, and a naive second opinion on who may make way: every sequence is tried."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge.admission import reclaim
from bridge.admission.model import Holding, Policy, Preemption, WithinTeam
from bridge.admission.reclaim import Reclaim
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId
from tests.property import oracle_quota

FLAVOR = FlavorName("h100")
NOW_MS = 10_000_000
GONE_TEAM = TeamName("gone")


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a reclaim is decided on."""

    specs: tuple[TeamSpec, ...]
    policy: Policy
    nodes: tuple[NodeSupply, ...]
    holdings: tuple[Holding, ...]
    workload: Workload

    @property
    def tree(self) -> Tree:
        """Return the quota tree."""
        return Tree.build(self.specs)


def find(world: World, *, holdings: Sequence[Holding] | None = None) -> Reclaim | None:
    """Ask the product, with these holdings (the world's own when not given) in this order."""
    given = world.holdings if holdings is None else holdings
    return reclaim.find(
        world.workload,
        balances=Balances(world.tree, used(world.holdings)),
        holdings=given,
        nodes={node.name: node for node in supplied(world.nodes, world.holdings)},
        policy=world.policy,
        now_ms=NOW_MS,
    )


def used(holdings: Iterable[Holding]) -> dict[tuple[TeamName, FlavorName], int]:
    """Devices by team."""
    sums: dict[tuple[TeamName, FlavorName], int] = {}
    for grant in (holding.grant for holding in holdings):
        sums[grant.team, grant.flavor] = sums.get((grant.team, grant.flavor), 0) + grant.gpus
    return sums


def supplied(nodes: Iterable[NodeSupply], holdings: Iterable[Holding]) -> list[NodeSupply]:
    """Nodes with what the holdings hold on them."""
    sums: dict[tuple[NodeName, System], int] = {}
    for grant in (holding.grant for holding in holdings):
        for name, gpus in grant.placement.items():
            sums[name, grant.system] = sums.get((name, grant.system), 0) + gpus
    return [
        replace(node, slurm=sums.get((node.name, System.SLURM), 0), pods=sums.get((node.name, System.KUBERNETES), 0))
        for node in nodes
    ]


def draw(rng: random.Random, *, holdings: int = 6, priorities: int = 2) -> World:
    """Draw a platform whose holdings were admitted one by one, then maybe had a guarantee lowered or a team removed."""
    specs = _specs(rng)
    nodes = [
        NodeSupply(
            NodeName(f"n{i}"),
            FLAVOR,
            rng.choice([2, 4, 4]),
            usable=rng.random() > 0.05,
            unmanaged=int(rng.random() < 0.05),
            worker_gpus=2 if rng.random() < 0.1 else None,
            slurm_ok=rng.random() > 0.05,
        )
        for i in range(rng.randint(1, 4))
    ]
    held: list[Holding] = []
    names = [spec.name for spec in specs]
    for index in range(rng.randint(2, holdings + 2)):
        if grant := _grant(rng, index, names, nodes, held):
            held.append(_holding(rng, grant, priorities))
    if held and rng.random() < 0.1:  # a team was removed while its work runs
        held[0] = replace(held[0], grant=replace(held[0].grant, team=GONE_TEAM))
    held_by = used(held)
    owed = [s.name for s in specs if s.quotas[FLAVOR].guarantee > held_by.get((s.name, FLAVOR), 0)]
    workload = Workload(
        WorkloadId("w"),
        rng.choice(list(System)),
        rng.choice(owed if owed and rng.random() < 0.8 else names),
        FLAVOR,
        nodes=rng.choice([1, 1, 2]),
        gpus_per_node=rng.choice([1, 2, 4]),
        submitted_ms=0,
        priority=rng.randrange(priorities),
        within_nodes=None if rng.random() < 0.8 else frozenset(node.name for node in nodes[:2]),
    )
    return World(tuple(specs), _policy(rng, names), tuple(nodes), tuple(held), workload)


def lent_out(rng: random.Random) -> World:
    """Draw a full platform: an owner's whole guarantee is lent to teams that have none, in both systems."""
    nodes = [NodeSupply(NodeName(f"n{i}"), FLAVOR, 4) for i in range(rng.randint(2, 6))]
    total = sum(node.total for node in nodes)
    own = rng.randint(1, total)
    names = [TeamName(f"t{i}") for i in range(rng.randint(1, 4))]
    specs = [
        TeamSpec(TeamName("org"), None, quotas={FLAVOR: Quota(total)}),
        TeamSpec(TeamName("owner"), TeamName("org"), quotas={FLAVOR: Quota(own)}),
        *(TeamSpec(name, TeamName("org"), weight=rng.randrange(3), quotas={FLAVOR: Quota(0)}) for name in names),
    ]
    held: list[Holding] = []
    for index in range(40):
        if grant := _grant(rng, index, names, nodes, held):
            held.append(Holding(grant, priority=rng.randrange(3)))
    if rng.random() < 0.4:  # nodes came beyond what quota gives out: room is free, quota is not
        nodes += [NodeSupply(NodeName(f"spare{i}"), FLAVOR, 4) for i in range(2)]
    count = rng.choice([1, 1, 2])
    gpus = rng.randint(1, 4)
    if own < gpus * count:
        count, gpus = 1, min(own, 4)
    workload = Workload(WorkloadId("w"), rng.choice(list(System)), TeamName("owner"), FLAVOR, count, gpus, 0)
    return World(tuple(specs), Policy(), tuple(nodes), tuple(held), workload)


def _specs(rng: random.Random) -> list[TeamSpec]:
    later = [None if rng.random() < 0.15 else rng.randrange(index) for index in range(1, rng.randint(2, 7))]
    parents: list[int | None] = [None, *later]
    own = [rng.choice([0, 0, 1, 2, 3, 4, 4, 6]) for _ in parents]
    for index in reversed(range(len(parents))):
        above = parents[index]
        if above is not None:
            own[above] += own[index]
    return [
        TeamSpec(
            TeamName(f"t{i}"),
            None if above is None else TeamName(f"t{above}"),
            weight=rng.choice([0, 1, 2]),
            quotas={
                FLAVOR: Quota(
                    own[i],
                    limit=own[i] + rng.randint(0, 6) if rng.random() < 0.15 else None,
                    lend_limit=rng.randint(0, 4) if rng.random() < 0.1 else None,
                )
            },
        )
        for i, above in enumerate(parents)
    ]


def _grant(
    rng: random.Random, index: int, names: Sequence[TeamName], nodes: Sequence[NodeSupply], held: Sequence[Holding]
) -> Grant | None:
    """Draw a grant that has room on nodes; quota is not asked, so guarantees may be overdrawn in any way."""
    system, gpus, count = rng.choice(list(System)), rng.choice([1, 1, 2, 2, 4]), rng.choice([1, 1, 1, 2])
    sound = [replace(node, usable=True, slurm_ok=True) for node in supplied(nodes, held)]
    open_nodes = [node.name for node in sound if node.room(system) >= gpus]
    if len(open_nodes) < count:
        return None
    placement = dict.fromkeys(rng.sample(open_nodes, count), gpus)
    started = None if rng.random() < 0.1 else NOW_MS - 1000 * rng.randint(0, 50)
    state = GrantState.RESERVED if started is None else GrantState.RUNNING
    team = rng.choice(names)
    return Grant(WorkloadId(f"h{index}"), 1, team, FLAVOR, system, gpus * count, state, placement, running_ms=started)


def _holding(rng: random.Random, grant: Grant, priorities: int) -> Holding:
    return Holding(
        grant,
        priority=rng.randrange(priorities),
        shield="not requeueable" if rng.random() < 0.08 else "",
        leaving=rng.random() < 0.08,
    )


def _policy(rng: random.Random, names: Sequence[TeamName]) -> Policy:
    terms = {
        name: Preemption(
            min_runtime_ms=rng.choice([0, 0, 20_000]),
            grace_ms=rng.choice([0, 5_000, 30_000]),
            within_team=rng.choice([WithinTeam.NEVER, WithinTeam.NEVER, WithinTeam.LOWER_PRIORITY]),
        )
        for name in names
    }
    return Policy(preemption=terms, earmark_margin_ms=1_000)


# The second opinion: nothing below asks the product but for `Balances.available`, which has an oracle of its own.


def legal_next(world: World, chosen: Sequence[Holding], victim: Holding, *, crossing: bool) -> bool:
    """Return whether `victim` may make way after `chosen` did."""
    grant, workload = victim.grant, world.workload
    terms = world.policy.of(grant.team)
    if victim.shield or victim.leaving or victim in chosen:
        return False
    ran_ms = 0 if grant.running_ms is None else NOW_MS - grant.running_ms
    if ran_ms < terms.min_runtime_ms:
        return False
    if grant.team == workload.team:
        return terms.within_team is WithinTeam.LOWER_PRIORITY and victim.priority < workload.priority
    stays = [each for each in world.holdings if each not in chosen and not each.leaving]
    ours, theirs = parting(world, grant.team)
    if _above(world, ours, stays) + workload.gpus > 0:
        return False
    after = [each for each in stays if each is not victim]
    return all(_above(world, level, stays) > 0 and (crossing or _above(world, level, after) >= 0) for level in theirs)


LevelKey = tuple[TeamName, str]


def parting(world: World, team: TeamName) -> tuple[LevelKey, list[LevelKey]]:
    """Return our level where the paths part, and all of theirs from there down."""
    mine, theirs = _down(world, world.workload.team), _down(world, team)
    at = next(i for i, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other)
    return mine[at], theirs[at:]


def _down(world: World, team: TeamName) -> list[LevelKey]:
    parents = {spec.name: spec.parent for spec in world.specs}
    path: list[LevelKey] = [(team, "own")]
    above: TeamName | None = team
    while above is not None:
        path.append((above, "all"))
        above = parents.get(above)
    return path[::-1]


def _above(world: World, level: LevelKey, stays: Iterable[Holding]) -> int:
    name, kind = level
    spec = next((spec for spec in world.specs if spec.name == name), None)
    held = used(stays)
    if spec is None:
        return held.get((name, FLAVOR), 0)
    guarantee = oracle_quota.guarantee(world.specs, spec, FLAVOR)
    if kind == "all":
        return oracle_quota.total(world.specs, spec, FLAVOR, held) - guarantee
    promised = sum(oracle_quota.guarantee(world.specs, each, FLAVOR) for each in world.specs if each.parent == name)
    return held.get((name, FLAVOR), 0) - (guarantee - promised)


def starts(world: World, gone: Sequence[Holding]) -> bool:
    """Return whether the workload fits once these and what is leaving have gone."""
    workload = world.workload
    stays = [each for each in world.holdings if each not in gone and not each.leaving]
    fitting = 0
    for node in world.nodes:
        there = dict.fromkeys(System, 0)
        for grant in (each.grant for each in stays):
            there[grant.system] += grant.placement.get(node.name, 0)
        allowed = workload.within_nodes is None or node.name in workload.within_nodes
        fitting += node.usable and allowed and _room(node, workload.system, there) >= workload.gpus_per_node
    free = Balances(world.tree, used(stays)).available(workload.team, FLAVOR)
    return fitting >= workload.nodes and free >= workload.gpus


def _room(node: NodeSupply, system: System, there: Mapping[System, int]) -> int:
    """Devices free for the system, which must have the node to itself."""
    slurm, pods = there[System.SLURM], there[System.KUBERNETES]
    if system is System.KUBERNETES:
        return 0 if slurm else node.total - pods - node.unmanaged
    if pods or node.unmanaged or not node.slurm_ok:
        return 0
    size = node.total if node.worker_gpus is None or not slurm else min(node.total, node.worker_gpus)
    return size - slurm


def still_open(world: World, gone: Sequence[Holding]) -> bool:
    """Return whether, with these gone, each one's level is open to the workload."""
    stays = [each for each in world.holdings if each not in gone and not each.leaving]
    return all(
        each.grant.team == world.workload.team
        or _above(world, parting(world, each.grant.team)[0], stays) + world.workload.gpus <= 0
        for each in gone
    )


def all_sets(world: World, *, crossing: bool) -> Iterator[tuple[Holding, ...]]:
    """Every set of victims that a legal sequence reaches, that lets the workload start, and with none to spare."""
    seen: set[frozenset[str]] = set()
    sets: list[tuple[Holding, ...]] = [()]
    for chosen in sets:
        if chosen and starts(world, chosen) and all_needed(world, chosen):
            yield chosen
        for victim in world.holdings:
            larger = frozenset(each.grant.workload for each in (*chosen, victim))
            if larger not in seen and legal_next(world, chosen, victim, crossing=crossing):
                seen.add(larger)
                sets.append((*chosen, victim))


def all_needed(world: World, victims: Sequence[Holding]) -> bool:
    """Return whether, with any one of them given back, the workload would not start."""
    return not any(starts(world, [each for each in victims if each is not spared]) for spared in victims)


def in_turn(world: World, victims: Sequence[Holding], *, crossing: bool) -> bool:
    """Return whether each was legal when its turn came."""
    return all(legal_next(world, victims[:at], victims[at], crossing=crossing) for at in range(len(victims)))


def lost_gpu_ms(victims: Iterable[Holding]) -> int:
    """Work given up."""
    starts_ms = [(each.grant.gpus, each.grant.running_ms) for each in victims]
    return sum(gpus * (NOW_MS - started) for gpus, started in starts_ms if started is not None)


def potential(world: World, holdings: Sequence[Holding], top: int) -> tuple[int, ...]:
    """Return what preemption must make smaller: devices above guarantees by depth, then what outranks the held."""
    top = max([top, *(each.priority for each in holdings)])
    sums: dict[int, int] = {0: 0}
    parents = {spec.name for spec in world.specs if spec.parent is not None}
    inner = {spec.parent for spec in world.specs if spec.name in parents}
    for spec in world.specs:
        path = _down(world, spec.name)
        depth = len(path) - 2
        sums[depth] = sums.get(depth, 0) + max(0, _above(world, path[-2], holdings))
        if spec.name in inner:
            sums[depth + 1] = sums.get(depth + 1, 0) + max(0, _above(world, path[-1], holdings))
    names = {spec.name for spec in world.specs}
    sums[0] += sum(each.grant.gpus for each in holdings if each.grant.team not in names)
    return (*(sums[depth] for depth in sorted(sums)), sum(h.grant.gpus * (top - h.priority) for h in holdings))


def requeued(victim: Holding) -> Workload:
    """Return the victim as a workload that waits again."""
    grant = victim.grant
    nodes = max(1, len(grant.placement))
    return Workload(
        grant.workload, grant.system, grant.team, FLAVOR, nodes, grant.gpus // nodes, 0, priority=victim.priority
    )
