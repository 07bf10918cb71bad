"""Q7: no silent clamp: a release beyond the charge is refused and reported."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import BridgeError, BrokenInvariantError
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import NodeName, System, Workload, WorkloadId
from tests.property.oracle_platform import FLAVORS, Platform, flat, in_memory, on_disk

NODE = NodeName("n0")


def a_workload(gpus: int, team: str = "a") -> Workload:
    return Workload(WorkloadId("pod/1"), System.KUBERNETES, TeamName(team), FLAVORS[0], 1, gpus, 0)


@given(st.integers(0, 9), st.integers(1, 9), st.sampled_from(["a", "root"]))
def test_more_than_was_charged_to_this_very_team_is_refused_and_nothing_moves(
    charged: int, more: int, sibling: str
) -> None:
    """Q7: neither the team's own sum nor that of another in its tree pays for it."""
    tree = Tree.build(flat({"a": 8, "b": 8}))
    balances = Balances(tree, {})
    flavor = FlavorName(FLAVORS[0])
    balances.charge(TeamName(sibling), flavor, 5)
    balances.charge(TeamName("b"), flavor, charged)
    before = [(t, balances.total(t, flavor), balances.available(t, flavor)) for t in tree.teams]
    with pytest.raises(BrokenInvariantError, match=f"refund of {charged + more} .* charged {charged}"):
        balances.refund(TeamName("b"), flavor, charged + more)
    with pytest.raises(BrokenInvariantError):
        balances.refund(TeamName("b"), flavor, -more)
    with pytest.raises(BrokenInvariantError):
        balances.charge(TeamName("b"), flavor, -more)
    assert [(t, balances.total(t, flavor), balances.available(t, flavor)) for t in tree.teams] == before
    balances.refund(TeamName("b"), flavor, charged)
    assert balances.used(TeamName("b"), flavor) == 0


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("gpus", [1, 8])
def test_what_was_never_granted_or_was_voided_has_nothing_to_give_back(kind: str, gpus: int) -> None:
    """Q7: refused with a sentence, and no entry is left."""
    with on_disk() as make:
        ledger = make() if kind == "sqlite" else in_memory()()
        ledger.open_epoch(1, "one")
        w = a_workload(gpus)
        with pytest.raises(BridgeError, match=r"pod/1"):
            ledger.release(w.id, 1, at_ms=1)
        ledger.reserve(w, {NODE: gpus}, at_ms=1)
        ledger.void(w.id, 1, at_ms=2, note="never ran")
        seq = ledger.last_seq()
        with pytest.raises(BrokenInvariantError, match=r"pod/1"):
            ledger.release(w.id, 1, at_ms=3)
        with pytest.raises(BridgeError, match=r"pod/1"):
            ledger.release(w.id, 2, at_ms=3)
        assert ledger.last_seq() == seq
        assert list(ledger.verify()) == []


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_ran_cannot_be_voided_and_a_second_release_credits_nothing(kind: str) -> None:
    """Q7: voiding would take the time back that it ran."""
    with on_disk() as make:
        ledger = make() if kind == "sqlite" else in_memory()()
        ledger.open_epoch(1, "one")
        w = a_workload(4)
        ledger.reserve(w, {NODE: 4}, at_ms=1)
        ledger.run(w.id, 1, gpus=4, placement={NODE: 4}, at_ms=2)
        with pytest.raises(BrokenInvariantError, match=r"pod/1"):
            ledger.void(w.id, 1, at_ms=3, note="")
        ledger.release(w.id, 1, at_ms=5)
        before = ledger.last_seq(), list(ledger.usage(from_ms=0, to_ms=9))
        ledger.release(w.id, 1, at_ms=8)
        assert (ledger.last_seq(), list(ledger.usage(from_ms=0, to_ms=9))) == before
        assert [row.gpu_ms for row in ledger.usage(from_ms=0, to_ms=9)] == [12]


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32))
def test_a_release_gives_back_exactly_what_was_charged(seed: int) -> None:
    """Q7: after everything has ended, nothing is held and everything is free again."""
    platform = Platform(seed, in_memory())
    for _ in range(15):
        platform.step()
    for name in sorted(platform.running()):
        platform.end(name, again=False)
    assert list(platform.ledger.verify()) == []
    assert not platform.ledger.grants()
