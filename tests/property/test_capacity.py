"""The worker plan against a small Slurm and Kubernetes: no harm on the way, and rest at the end."""

import random

from hypothesis import given
from hypothesis import strategies as st

from bridge.capacity.columns import columns
from bridge.capacity.demand import demands
from bridge.capacity.plan import plan
from bridge.workloads.model import GrantState
from tests.property import worker_world

SEEDS = st.integers(0, 10**9)
WILD_STEPS = 25
QUIET_STEPS = 40


def _cycle(world: worker_world.World, *, lost: float = 0.0) -> int:
    """Run one cycle of the bridge and let time pass; each act is lost with probability `lost` (N8: killed there)."""
    actions = plan(world.views(), list(world.grants.values()), now_ms=world.now_ms)
    for action in actions:
        if world.rng.random() >= lost:
            world.apply(action)
    for view in world.views():
        row = columns(view, demands([view], world.grants.values())[view.name])
        assert row.total == row.worker + row.pods + row.unmanaged + row.idle + row.unavailable
        assert min(row.worker, row.pods, row.unmanaged, row.idle, row.unavailable) >= 0
    world.evolve()
    return len(actions)


def _wild(seed: int) -> worker_world.World:
    """Return a world after work, accidents, admins, restarts and lost acts; every act was checked to do no harm."""
    world = worker_world.new(random.Random(seed))
    for _ in range(WILD_STEPS):
        world.submit(world.rng.randint(0, 2))
        if world.rng.random() < 0.5:
            world.disturb()
        _cycle(world, lost=0.3)
    return world


@given(SEEDS)
def test_from_any_state_the_world_comes_to_rest_and_stays_there(seed: int) -> None:
    """N8, N15, and N2, N4, N5 in what `apply` refuses on the way."""
    world = _wild(seed)
    acts = [_cycle(world) for _ in range(QUIET_STEPS)]
    assert acts[-5:] == [0] * 5
    assert not [g for g in world.grants.values() if g.state is GrantState.RESERVED]
    for node in world.nodes.values():
        ours = node.record is not None and node.record.reason.startswith("bridge: ")
        assert not ours or (node.pod is not None and node.cordoned), "a drain of ours is left over"
        assert node.tainted == (node.record is not None and node.record.foreign)
        assert node.record is None or node.pod is not None or node.record.foreign, "a record without a worker is left"


@given(SEEDS)
def test_once_everything_is_healthy_every_grant_starts(seed: int) -> None:
    """Whatever went before: with all causes lifted, work that is admitted then runs, in both systems."""
    world = _wild(seed)
    for node in world.nodes.values():
        node.cordoned, node.allocatable = False, 8
        if node.record is not None and node.record.foreign:
            node.record.drain, node.record.reason = False, ""
    for _ in range(QUIET_STEPS):
        _cycle(world)
    world.submit(8)
    waiting = set(world.grants)
    assert waiting
    for _ in range(worker_world.PATIENCE):
        _cycle(world)
    assert waiting <= world.started
