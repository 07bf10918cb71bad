"""Admission on random worlds: what must hold for every decision, and that nothing starves in a simulation."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bridge.admission import supply
from bridge.admission.model import Holding
from bridge.admission.plan import Decisions, Placed, admit
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId
from bridge.workloads.reasons import Reason
from tests.property import oracle_quota
from tests.property.test_quota import trees

FLAVORS = (FlavorName("a100"), FlavorName("h100"))
World = tuple[list[TeamSpec], list[Workload], list[Grant], list[NodeSupply]]


def _node(draw: st.DrawFn, index: int, specs: list[TeamSpec]) -> tuple[NodeSupply, Grant | None]:
    """Draw a node that serves one system, with the grant that says so."""
    name, total = NodeName(f"n{index}"), draw(st.integers(0, 8))
    flavor = draw(st.sampled_from(FLAVORS))
    held = draw(st.integers(0, total))
    system = draw(st.sampled_from(System))
    team = draw(st.sampled_from([spec.name for spec in specs]))
    slurm, pods = (held, 0) if system is System.SLURM else (0, held)
    worker = draw(st.sampled_from([None, total])) if not slurm else draw(st.integers(slurm, total))
    usable = draw(st.integers(0, 5)) > 0
    node = NodeSupply(
        name,
        flavor,
        total,
        usable,
        "" if usable else "node cordoned",
        slurm,
        pods,
        unmanaged=0 if slurm else draw(st.integers(0, total - pods)) * draw(st.sampled_from([0, 0, 1])),
        worker_gpus=None if pods else worker,
        slurm_ok=draw(st.integers(0, 5)) > 0,
    )
    grant = Grant(WorkloadId(f"run{index}"), 1, team, flavor, system, held, GrantState.RUNNING, {name: held})
    return node, grant if held else None


@st.composite
def worlds(draw: st.DrawFn) -> World:
    specs = draw(trees())
    drawn = [_node(draw, index, specs) for index in range(draw(st.integers(0, 6)))]
    waiting = [
        Workload(
            WorkloadId(f"w{index}"),
            draw(st.sampled_from(System)),
            draw(st.sampled_from([*[spec.name for spec in specs], TeamName("ghosts")])),
            draw(st.sampled_from(FLAVORS)),
            nodes=draw(st.integers(1, 3)),
            gpus_per_node=draw(st.integers(0, 8)),
            submitted_ms=draw(st.integers(0, 3)),
            priority=draw(st.integers(0, 1)),
            within_nodes=draw(st.none() | st.frozensets(st.sampled_from([NodeName(f"n{i}") for i in range(4)]))),
        )
        for index in range(draw(st.integers(0, 12)))
    ]
    return specs, waiting, [grant for _, grant in drawn if grant is not None], [node for node, _ in drawn]


def _decide(world: World) -> Decisions:
    specs, waiting, grants, nodes = world
    return admit(waiting, Tree.build(specs), grants, nodes, flavors=FLAVORS)


def _used(world: World, decisions: Decisions) -> dict[tuple[TeamName, FlavorName], int]:
    used: dict[tuple[TeamName, FlavorName], int] = {}
    for grant in _grants(world, decisions):
        used[grant.team, grant.flavor] = used.get((grant.team, grant.flavor), 0) + grant.gpus
    return used


@given(worlds())
def test_every_workload_is_decided_once(world: World) -> None:
    decisions = _decide(world)
    admitted = [placed.workload.id for placed in decisions.admitted]
    assert len(admitted) == len(set(admitted))
    assert {*admitted, *decisions.waiting} == {workload.id for workload in world[1]}
    assert not set(admitted) & set(decisions.waiting)


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(world: World, rng: random.Random) -> None:
    specs, waiting, grants, nodes = world
    shuffled = [rng.sample(part, len(part)) for part in (specs, waiting, grants, nodes)]
    assert _decide((shuffled[0], shuffled[1], shuffled[2], shuffled[3])) == _decide(world)  # type: ignore[arg-type]


@given(worlds())
def test_quota_is_kept_at_every_tree_node(world: World) -> None:
    """Rule 1: from a state within quota to a state within quota; where it was over, its own subtree gets nothing."""
    specs = world[0]
    decisions = _decide(world)
    before: dict[tuple[TeamName, FlavorName], int] = {}
    for grant in world[2]:
        before[grant.team, grant.flavor] = before.get((grant.team, grant.flavor), 0) + grant.gpus
    after = _used(world, decisions)
    for flavor in FLAVORS:
        if oracle_quota.allowed(specs, flavor, before):
            assert oracle_quota.allowed(specs, flavor, after)
        for spec in specs:
            quota = spec.quotas.get(flavor)
            if quota is not None and quota.limit is not None:
                was = oracle_quota.total(specs, spec, flavor, before)
                assert oracle_quota.total(specs, spec, flavor, after) <= max(quota.limit, was)


@given(worlds())
def test_nodes_are_never_overfilled_or_shared_by_the_two_systems(world: World) -> None:
    """Rule 19, and whole nodes."""
    nodes = {node.name: node for node in world[3]}
    new: dict[NodeName, dict[System, int]] = {}
    for placed in _decide(world).admitted:
        workload = placed.workload
        assert len(placed.placement) == workload.nodes
        assert sum(placed.placement.values()) == workload.gpus
        for name, gpus in placed.placement.items():
            assert nodes[name].flavor == workload.flavor
            assert workload.within_nodes is None or name in workload.within_nodes
            sums = new.setdefault(name, dict.fromkeys(System, 0))
            sums[workload.system] += gpus
    for name, sums in new.items():
        node = nodes[name]
        slurm, pods = node.slurm + sums[System.SLURM], node.pods + sums[System.KUBERNETES]
        assert node.usable
        assert slurm + pods + node.unmanaged <= node.total
        assert not (slurm and (pods or node.unmanaged))
        if sums[System.SLURM]:
            assert node.slurm_ok
            assert not node.slurm or node.worker_gpus is None or slurm <= node.worker_gpus


def _final_nodes(world: World, decisions: Decisions) -> list[NodeSupply]:
    """Return the nodes as the pass leaves them."""
    held = supply.held(_grants(world, decisions))
    return [
        replace(node, slurm=held.get((node.name, System.SLURM), 0), pods=held.get((node.name, System.KUBERNETES), 0))
        for node in world[3]
    ]


def _grants(world: World, decisions: Decisions) -> list[Grant]:
    return [*world[2], *(_granted(placed) for placed in decisions.admitted)]


def _granted(placed: Placed) -> Grant:
    w = placed.workload
    return Grant(w.id, 1, w.team, w.flavor, w.system, w.gpus, GrantState.RUNNING, placed.placement)


@given(worlds())
def test_every_reason_agrees_with_the_decision(world: World) -> None:
    """Rule 20: what a wait says is in the way really is, in the state that the pass leaves behind."""
    decisions = _decide(world)
    tree = Tree.build(world[0])
    balances = Balances(tree, _used(world, decisions))
    nodes = _final_nodes(world, decisions)
    workloads = {workload.id: workload for workload in world[1]}
    for name, waiting in decisions.waiting.items():
        workload, numbers = workloads[name], waiting.numbers
        large = supply.eligible(workload, nodes)
        room = balances.available(workload.team, workload.flavor) if workload.team in tree else 0
        if waiting.reason is Reason.QUOTA:
            assert workload.gpus > int(numbers["available"]) >= room
            if numbers["bound"] == "limit":
                assert int(numbers["slurm"]) + int(numbers["kubernetes"]) == numbers["held"]
                assert int(numbers["of"]) - int(numbers["held"]) == numbers["available"]
        elif waiting.reason is Reason.CAPACITY:
            assert supply.place(workload, large) is None
            assert len(large) == int(numbers["nodes_large_enough"]) >= workload.nodes
        elif waiting.reason is Reason.BEHIND_GANG:
            first = WorkloadId(str(numbers["behind"]))
            assert decisions.waiting[first].reason in (Reason.CAPACITY, Reason.BEHIND_GANG, Reason.QUOTA)
            assert workloads[first].flavor == workload.flavor
        elif waiting.reason is Reason.NEVER_FITS_QUOTA:
            assert workload.gpus > balances.ceiling(workload.team, workload.flavor) == numbers["ceiling"]
        elif waiting.reason is Reason.NEVER_FITS_NODES:
            assert len(large) < workload.nodes
        assert waiting.text


@given(worlds())
def test_everything_that_can_ever_start_does_once_the_work_before_it_ends(world: World) -> None:
    """Rule 16, and no deadlock: run to the end, what is kept for one never stops all."""
    specs, waiting, grants, nodes = world
    for _ in range(len(waiting) + 2):  # each round lets all that runs end, so each must start something
        decisions = _decide((specs, waiting, grants, nodes))
        if not decisions.admitted and not grants:
            break
        grants = []
        started = {placed.workload.id for placed in decisions.admitted}
        waiting = [workload for workload in waiting if workload.id not in started]
        nodes = [replace(node, slurm=0, pods=0) for node in nodes]
    assert not decisions.admitted
    for name, reason in decisions.waiting.items():
        assert reason.reason not in (Reason.QUOTA, Reason.BEHIND_GANG)
        if reason.reason is Reason.CAPACITY:  # only nodes out of service or unmanaged pods can be the cause
            workload = next(w for w in waiting if w.id == name)
            possible = [n for n in supply.eligible(workload, nodes) if n.in_the_way(workload) is not None]
            assert len(possible) < workload.nodes


STREAM_S = 40
LONGEST_S = 6


@given(st.integers(0, 10**6), st.sampled_from(["own team", "borrowers"]), st.sampled_from(System))
def test_a_gang_within_its_guarantee_starts_under_any_stream_of_small_work(
    seed: int, stream: str, system: System
) -> None:
    """Rule 16: small work of its own team, or of borrowers in both systems, arrives for ever; each ends within 6 s."""
    rng = random.Random(seed)
    h100, root, owner, other = FLAVORS[1], TeamName("root"), TeamName("owner"), TeamName("other")
    promised = 40 if stream == "own team" else 16  # where its own team is in the way, only nodes are scarce
    quota = {root: Quota(promised), owner: Quota(promised), other: Quota(0)}
    tree = Tree.build(TeamSpec(n, None if n == root else root, quotas={h100: q}) for n, q in quota.items())
    team, systems = (owner, [system]) if stream == "own team" else (other, list(System))
    gang = Workload(WorkloadId("gang"), system, owner, h100, nodes=2, gpus_per_node=8, submitted_ms=5)
    running: dict[WorkloadId, tuple[Grant, int]] = {}
    waiting: list[Workload] = []
    for now in range(STREAM_S):
        running = {name: held for name, held in running.items() if held[1] > now}
        waiting += [
            Workload(WorkloadId(f"s{now}-{i}"), rng.choice(systems), team, h100, 1, rng.randint(1, 3), now)
            for i in range(16 - len(waiting))
        ]
        waiting += [gang] if now == gang.submitted_ms else []
        held = supply.held(grant for grant, _ in running.values())
        nodes = [
            NodeSupply(
                name, h100, 8, slurm=held.get((name, System.SLURM), 0), pods=held.get((name, System.KUBERNETES), 0)
            )
            for name in (NodeName("n1"), NodeName("n2"))
        ]
        holdings = [Holding(grant) for grant, _ in running.values()]  # all of it ends, the pods, too
        decisions = admit(waiting, tree, holdings, nodes, flavors=FLAVORS)
        for placed in decisions.admitted:
            running[placed.workload.id] = (_granted(placed), now + rng.randint(1, LONGEST_S))
        waiting = [workload for workload in waiting if workload.id not in running]
        if gang.id in running:
            return
    raise AssertionError(
        f"the gang did not start within {STREAM_S - gang.submitted_ms} s: {decisions.waiting[gang.id]}"
    )
