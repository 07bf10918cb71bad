"""Reclaim on random platforms, against a search that tries every legal sequence of victims. Rules 9 to 14."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from bridge.admission import reclaim, supply
from bridge.admission.model import Holding, Policy
from bridge.admission.reclaim import Reclaim
from bridge.quota.tree import Balances
from bridge.workloads.model import Grant, GrantState, NodeName
from tests.property import reclaim_worlds
from tests.property.reclaim_worlds import FLAVOR, NOW_MS, World

SEEDS = st.integers(0, 2**32 - 1)
PER_SEED = 5  # worlds drawn from one seed: about one in seven needs victims and has some


def _worlds(seed: int) -> Iterator[World]:
    rng = random.Random(seed)
    for _ in range(PER_SEED):
        yield reclaim_worlds.draw(rng)


def _answered(seed: int) -> Iterator[tuple[World, Reclaim, list[Holding]]]:
    """Yield the worlds for which there are victims, with those as holdings."""
    for world in _worlds(seed):
        found = reclaim_worlds.find(world)
        if found is not None:
            yield world, found, _victims(world, found)


def _victims(world: World, found: Reclaim) -> list[Holding]:
    by_id = {holding.grant.workload: holding for holding in world.holdings}
    return [by_id[victim.workload] for victim in found.victims]


def _harm(victims: Sequence[Holding]) -> tuple[list[tuple[int, int]], int]:
    """Lost work by priority, the highest first; then how many."""
    by_priority = {
        victim.priority: [each for each in victims if each.priority == victim.priority] for victim in victims
    }
    return [(p, reclaim_worlds.lost_gpu_ms(by_priority[p])) for p in sorted(by_priority, reverse=True)], len(victims)


@given(SEEDS)
def test_a_set_is_found_exactly_when_there_is_one_and_it_costs_least(seed: int) -> None:
    """Rules 9, 10, 14: gangs that cross a guarantee only when nothing else frees enough."""
    for world in _worlds(seed):
        found = reclaim_worlds.find(world)
        if reclaim_worlds.starts(world, ()):
            assert found is None
            continue
        for crossing in (False, True):
            sets = list(reclaim_worlds.all_sets(world, crossing=crossing))
            if sets:
                break
        assert (found is not None) == bool(sets)
        if found is not None:
            event(f"victims: {len(found.victims)}, crossing: {crossing}")
            assert reclaim_worlds.in_turn(world, _victims(world, found), crossing=crossing)
            if not crossing:
                assert _harm(_victims(world, found)) == min(_harm(each) for each in sets)


@given(SEEDS)
def test_with_many_candidates_the_set_is_legal_enough_and_irreducible_too(seed: int) -> None:
    """Rules 10, 14, for the greedy search: it may miss a set on a crowded node, never take a wrong one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reclaim, "COMPLETE", 0)
        for world, _, victims in _answered(seed):
            assert reclaim_worlds.in_turn(world, victims, crossing=True)
            assert reclaim_worlds.starts(world, victims)
            assert reclaim_worlds.still_open(world, victims)
            assert reclaim_worlds.all_needed(world, victims)


@given(SEEDS)
def test_an_owner_always_gets_its_guarantee_back_from_teams_that_have_none(seed: int) -> None:
    """Rule 9: whichever system the borrowers use, on as many nodes as it asks, out of dozens of holdings."""
    world = reclaim_worlds.lent_out(random.Random(seed))
    found = reclaim_worlds.find(world)
    if found is None:
        assert reclaim_worlds.starts(world, ())
        return
    victims = _victims(world, found)
    assert reclaim_worlds.in_turn(world, victims, crossing=False)
    assert reclaim_worlds.starts(world, victims)
    assert reclaim_worlds.all_needed(world, victims)


@given(SEEDS)
def test_it_starts_on_its_nodes_once_they_have_gone_and_none_can_be_given_back(seed: int) -> None:
    """Rule 14."""
    for world, found, victims in _answered(seed):
        workload = world.workload
        stays = [each for each in world.holdings if each not in victims and not each.leaving]
        nodes = {node.name: node for node in reclaim_worlds.supplied(world.nodes, stays)}
        assert len(found.placement) == workload.nodes
        assert set(found.placement.values()) == {workload.gpus_per_node}
        assert workload.within_nodes is None or found.placement.keys() <= workload.within_nodes
        assert all(nodes[name].room(workload.system) >= workload.gpus_per_node for name in found.placement)
        free = Balances(world.tree, reclaim_worlds.used(stays)).available(workload.team, FLAVOR)
        assert workload.gpus <= free
        assert reclaim_worlds.all_needed(world, victims)


@given(SEEDS)
def test_no_team_within_its_guarantee_loses_anything_whatever_its_weight(seed: int) -> None:
    """Rule 10: also of weight 0. The victim's team held more than its guarantee when it was chosen."""
    for world, _, victims in _answered(seed):
        stays = [holding for holding in world.holdings if not holding.leaving]
        tree, workload = world.tree, world.workload
        for victim in victims:
            team = victim.grant.team
            if team != workload.team and team in tree:
                balances = Balances(tree, reclaim_worlds.used(stays))
                assert balances.borrowed(team, FLAVOR) > 0 or balances.used(team, FLAVOR) > tree.share(team, FLAVOR).own
            stays.remove(victim)


@given(SEEDS)
def test_minimum_runtime_shields_and_grace_are_honoured(seed: int) -> None:
    """Rule 13."""
    for world, found, victims in _answered(seed):
        graces = []
        for victim, holding in zip(found.victims, victims, strict=True):
            terms = world.policy.of(holding.grant.team)
            ran_ms = NOW_MS - (NOW_MS if holding.grant.running_ms is None else holding.grant.running_ms)
            assert ran_ms >= terms.min_runtime_ms
            assert not holding.shield
            assert not holding.leaving
            assert victim.grace_ms == terms.grace_ms
            assert victim.lost_gpu_ms == holding.grant.gpus * ran_ms
            graces.append(victim.grace_ms)
        assert found.lapses_ms == NOW_MS + max(graces) + world.policy.earmark_margin_ms


@given(SEEDS, st.randoms(use_true_random=False), st.sampled_from([0, reclaim.COMPLETE]))
def test_the_order_of_the_input_changes_nothing(seed: int, rng: random.Random, complete: int) -> None:
    """Rule 14: deterministic."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reclaim, "COMPLETE", complete)
        for world in (*_worlds(seed), reclaim_worlds.lent_out(random.Random(seed))):
            shuffled = rng.sample(world.holdings, len(world.holdings))
            other = replace(
                world,
                specs=tuple(rng.sample(world.specs, len(world.specs))),
                nodes=tuple(rng.sample(world.nodes, len(world.nodes))),
            )
            assert reclaim_worlds.find(other, holdings=shuffled) == reclaim_worlds.find(world)


@given(SEEDS)
def test_what_is_given_is_not_changed_and_the_cheap_check_never_says_no_to_a_yes(seed: int) -> None:
    for world in _worlds(seed):
        held = [holding for holding in world.holdings if not holding.leaving]
        still = replace(world, holdings=tuple(held))
        balances = Balances(still.tree, reclaim_worlds.used(held))
        before = [(balances.used(t, FLAVOR), balances.available(t, FLAVOR)) for t in balances.tree.teams]
        nodes = {node.name: node for node in reclaim_worlds.supplied(still.nodes, held)}
        copies = dict(nodes)
        found = reclaim.find(
            still.workload, balances=balances, holdings=held, nodes=nodes, policy=still.policy, now_ms=NOW_MS
        )
        assert [(balances.used(t, FLAVOR), balances.available(t, FLAVOR)) for t in balances.tree.teams] == before
        assert nodes == copies
        assert found is None or reclaim.can_help(still.workload, balances, still.policy)


@given(SEEDS)
def test_nothing_is_reclaimed_where_the_platform_does_not_preempt(seed: int) -> None:
    for world in _worlds(seed):
        still = replace(world, policy=replace(world.policy, preempts=False))
        assert reclaim_worlds.find(still) is None


@given(SEEDS)
def test_the_potential_falls_with_every_reclaim(seed: int) -> None:
    """Rule 11, recomputed naively here: level by level, from the lists of what holds before and after."""
    for world, found, victims in _answered(seed):
        before = [holding for holding in world.holdings if not holding.leaving]
        charged = min(world.workload.gpus, sum(victim.grant.gpus for victim in victims))
        workload = world.workload
        start = Holding(
            Grant(workload.id, 1, workload.team, FLAVOR, workload.system, charged, GrantState.RESERVED),
            priority=workload.priority,
        )
        after = [*(each for each in before if each not in victims), start]
        assert found.potential_after < found.potential_before
        assert reclaim_worlds.potential(world, before, start.priority) == found.potential_before
        assert reclaim_worlds.potential(world, after, max(each.priority for each in (*before, start))) == (
            found.potential_after
        )


ROUNDS = 60  # a game of at most 10 workloads that did not come to rest by then is taken to go on for ever


@given(SEEDS)
def test_teams_that_preempt_and_requeue_without_end_come_to_rest(seed: int) -> None:
    """Rule 11: nothing ever ends by itself, victims want to start again at once, and may borrow what is idle."""
    rng = random.Random(seed)
    for _ in range(4):
        _play(reclaim_worlds.draw(rng, holdings=8), rng)


def _play(world: World, rng: random.Random) -> None:
    policy = Policy({team: replace(terms, min_runtime_ms=0) for team, terms in world.policy.preemption.items()})
    world = replace(world, policy=policy, holdings=tuple(replace(h, leaving=False) for h in world.holdings))
    waiting = [world.workload]
    for _ in range(ROUNDS):
        moved = False
        for workload in rng.sample(waiting, len(waiting)):
            turn = replace(world, workload=workload)
            placement, victims = _turn(turn)
            if placement is None:
                continue
            moved = True
            grant = Grant(
                workload.id,
                1,
                workload.team,
                FLAVOR,
                workload.system,
                workload.gpus,
                GrantState.RUNNING,
                placement,
                running_ms=NOW_MS - rng.randrange(1000),
            )
            stays = tuple(each for each in world.holdings if each not in victims)
            world = replace(world, holdings=(*stays, Holding(grant, workload.priority)))
            waiting.remove(workload)
            waiting += [reclaim_worlds.requeued(victim) for victim in victims]
        if not moved:
            return
    pytest.fail(f"still preempting after {ROUNDS} rounds")


def _turn(world: World) -> tuple[dict[NodeName, int] | None, list[Holding]]:
    """Start it where it fits, else reclaim; ({} is never a placement)."""
    workload = world.workload
    balances = Balances(world.tree, reclaim_worlds.used(world.holdings))
    nodes = supply.eligible(workload, reclaim_worlds.supplied(world.nodes, world.holdings))
    if workload.team in world.tree and workload.gpus <= balances.available(workload.team, FLAVOR):
        placement = supply.place(workload, nodes)
        if placement is not None:
            return dict(placement), []
    found = reclaim_worlds.find(world) if workload.team in world.tree else None
    return (None, []) if found is None else (dict(found.placement), _victims(world, found))
