"""Q9: a guarantee is reclaimed within grace and termination, whichever system the borrower uses. The decision alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.model import Policy, Preemption
from bridge.quota.model import TeamName
from bridge.workloads.model import System
from bridge.workloads.reasons import Reason
from tests.property import oracle
from tests.property.oracle_platform import Platform, eights, flat, in_memory

SYSTEMS = st.sampled_from(list(System))
GRACE_MS = 30_000
BORROWERS = st.lists(st.tuples(st.sampled_from(["b", "c"]), SYSTEMS, st.sampled_from([1, 2, 4, 8])), max_size=12)


def lent_out(borrowers: list[tuple[str, System, int]]) -> Platform:
    """Let b and c, guaranteed nothing, hold what they can of a's 16."""
    policy = Policy({TeamName(t): Preemption(grace_ms=GRACE_MS) for t in "abc"})
    platform = Platform(1, in_memory(), specs=flat({"a": 16, "b": 0, "c": 0}), nodes=eights(2), policy=policy)
    for team, system, gpus in borrowers:
        platform.ask(team, gpus, system=system, endless=system is System.KUBERNETES)
    platform.pass_and_record_all()
    platform.now_ms += 60_000
    return platform


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(BORROWERS, SYSTEMS, st.sampled_from([(1, 8), (2, 8), (2, 4), (1, 4), (1, 1)]))
def test_the_owner_runs_as_soon_as_the_victims_ended(
    borrowers: list[tuple[str, System, int]], system: System, shape: tuple[int, int]
) -> None:
    """Q9: one decision names victims enough; when they have had their grace and ended, the owner starts at once."""
    platform = lent_out(borrowers)
    nodes, gpus = shape
    asked = platform.ask("a", gpus, nodes=nodes, system=system)
    first = platform.pass_and_record_all()
    if asked.id not in platform.running():
        assert [mark.workload for mark in first.preemptions] == [asked.id], "the guarantee is not asked back"
        mark = first.preemptions[0]
        assert first.waiting[asked.id].reason is Reason.RECLAIMING
        assert mark.lapses_ms >= platform.now_ms + GRACE_MS
        platform.now_ms += GRACE_MS
        for victim in mark.victims:
            platform.end(victim.workload, again=True)
        told = platform.pass_and_record_all()
        assert asked.id in {placed.workload.id for placed in told.admitted}
    assert platform.held()[TeamName("a")] == nodes * gpus


@pytest.mark.parametrize("borrower", list(System))
@pytest.mark.parametrize("owner", list(System))
def test_from_each_system_to_each_system(owner: System, borrower: System) -> None:
    """Q9: all sixteen devices are lent out; a whole node of them comes back."""
    platform = lent_out([("b", borrower, 8), ("c", borrower, 8)])
    assert sum(platform.held().values()) == 16
    asked = platform.ask("a", 8, system=owner)
    platform.rest()
    assert asked.id in platform.running()


@settings(max_examples=settings().max_examples // 6, deadline=None)
@given(BORROWERS, st.lists(st.tuples(SYSTEMS, st.sampled_from([1, 2, 4])), min_size=1, max_size=6))
def test_at_rest_nobody_of_the_owner_waits_for_a_borrower(
    borrowers: list[tuple[str, System, int]], asks: list[tuple[System, int]]
) -> None:
    """Q9: asked for in pieces and from both systems, all comes back that its own team's work leaves room for."""
    platform = lent_out(borrowers)
    asked = [platform.ask("a", gpus, system=system) for system, gpus in asks]
    platform.rest()
    grants = [g for g in platform.ledger.grants() if g.team == "a"]
    ours = [oracle.Piece(g.workload, g.team, g.system, g.gpus, g.placement, None, endless=False) for g in grants]
    for w in asked:
        if w.id not in platform.running():
            alone = [node for node in platform.nodes.values() if oracle.node_has_room(node, w, ours)]
            assert not alone or sum(piece.gpus for piece in ours) + w.gpus > 16, f"{w.id} waits for others"


def test_without_preemption_the_guarantee_is_waited_for() -> None:
    """Q9, the switch: nothing is taken back, the owner is the next to start."""
    platform = lent_out([("b", System.SLURM, 8), ("c", System.SLURM, 8)])
    platform.policy = Policy(preempts=False)
    platform.desk = platform.fresh()
    asked = platform.ask("a", 8)
    other = platform.ask("b", 1)
    assert platform.pass_and_record_all().preemptions == ()
    platform.end(min(platform.running()), again=False)
    platform.pass_and_record_all()
    assert asked.id in platform.running()
    assert other.id not in platform.running()
