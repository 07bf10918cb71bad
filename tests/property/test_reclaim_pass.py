"""What one pass takes back for several owners at once, all of it together. Rules 2, 9, 12."""

import random
from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from bridge.admission.decisions import Decisions
from bridge.admission.model import Holding, Policy
from bridge.admission.plan import admit
from bridge.quota.model import Quota, TeamName, TeamSpec
from bridge.workloads.model import Grant, GrantState, System, Workload, WorkloadId
from tests.property import oracle_quota, reclaim_worlds
from tests.property.reclaim_worlds import FLAVOR, NOW_MS, World

OWNERS = (TeamName("a"), TeamName("b"), TeamName("c"))


def _crowd(rng: random.Random) -> tuple[World, list[Workload]]:
    """Draw a full platform whose owners lent everything out and all ask for it at once, more than there is."""
    world = reclaim_worlds.lent_out(rng)
    (shared,) = [spec.quotas[FLAVOR].guarantee for spec in world.specs if spec.parent is None]
    share = shared // len(OWNERS)
    owners = [TeamSpec(name, TeamName("org"), quotas={FLAVOR: Quota(share)}) for name in OWNERS]
    specs = tuple(spec for spec in world.specs if spec.name != "owner") + tuple(owners)
    waiting = [
        replace(
            world.workload,
            id=WorkloadId(f"w{index}"),
            team=rng.choice(OWNERS),
            system=rng.choice(list(System)),
            nodes=rng.choice([1, 1, 2]),
            gpus_per_node=rng.choice([1, 2, 4]),
            submitted_ms=index,
        )
        for index in range(6)
    ]
    return replace(world, specs=specs), waiting


def _pass(world: World, waiting: list[Workload]) -> Decisions:
    nodes = reclaim_worlds.supplied(world.nodes, world.holdings)
    return admit(waiting, world.tree, world.holdings, nodes, flavors=[FLAVOR], policy=Policy(), now_ms=NOW_MS)


@given(st.integers(0, 2**32 - 1))
def test_all_that_one_pass_promises_has_room_together_once_the_victims_are_gone(seed: int) -> None:
    """Q2, Q12: no two are promised the same devices or the same quota, and no victim is taken for two."""
    world, waiting = _crowd(random.Random(seed))
    decided = _pass(world, waiting)
    asked = {workload.id: workload for workload in waiting}
    promised = [(placed.workload, placed.placement) for placed in decided.admitted]
    promised += [(asked[mark.workload], mark.placement) for mark in decided.preemptions]
    victims = [victim.workload for mark in decided.preemptions for victim in mark.victims]
    event(f"preemptions: {len(decided.preemptions)}")
    assert len(victims) == len(set(victims))
    stays = [holding for holding in world.holdings if holding.grant.workload not in victims]
    for workload, placement in promised:
        grant = Grant(
            workload.id, 1, workload.team, FLAVOR, workload.system, workload.gpus, GrantState.RUNNING, placement
        )
        stays.append(Holding(grant))
    for node in reclaim_worlds.supplied(world.nodes, stays):
        assert node.slurm + node.pods <= node.total
        assert not (node.slurm and node.pods)
    assert oracle_quota.allowed(world.specs, FLAVOR, reclaim_worlds.used(stays))


@given(st.integers(0, 2**32 - 1))
def test_a_pass_reclaims_exactly_when_the_search_finds_victims(seed: int) -> None:
    """Q9: nothing between the queue and the search keeps an owner from its guarantee."""
    world, waiting = _crowd(random.Random(seed))
    decided = _pass(world, waiting[:1])
    alone = replace(world, workload=waiting[0])
    assert bool(decided.admitted) == reclaim_worlds.starts(alone, ())
    assert bool(decided.preemptions) == (reclaim_worlds.find(alone) is not None)
