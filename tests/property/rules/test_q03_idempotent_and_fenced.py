"""Q3: idempotent and fenced."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import BridgeError, StaleLeaderError
from bridge.ledger.port import CapacityRow, Intent, Ledger
from bridge.workloads.model import NodeName, System, Workload, WorkloadId
from tests.property.oracle_platform import FLAVORS, on_disk

NODE = NodeName("n0")
Act = Callable[[Ledger], object]


def a_workload(number: int, gpus: int) -> Workload:
    from bridge.quota.model import TeamName

    return Workload(WorkloadId(f"pod/{number}"), System.KUBERNETES, TeamName("a"), FLAVORS[0], 1, gpus, 0)


def acts_of(number: int, gpus: int, end: str) -> list[Act]:
    """Return the transfers of one life, in order."""
    w = a_workload(number, gpus)
    life: list[Act] = [
        lambda ledger: ledger.reserve(w, {NODE: gpus}, at_ms=1),
        lambda ledger: ledger.intend(Intent(f"cancel/{w.id}", "cancel", w.id, 1, {})),
    ]
    if end == "void":
        return [*life, lambda ledger: ledger.void(w.id, 1, at_ms=2, note="never ran")]
    life.append(lambda ledger: ledger.run(w.id, 1, gpus=gpus, placement={NODE: gpus}, at_ms=2))
    life.append(lambda ledger: ledger.adjust(w.id, 1, gpus=gpus + 1, placement={NODE: gpus + 1}, at_ms=3))
    if end == "release":
        life.append(lambda ledger: ledger.release(w.id, 1, at_ms=9))
        life.append(lambda ledger: ledger.settle(f"cancel/{w.id}", outcome="done", at_ms=9))
    return life


LIVES = st.lists(st.tuples(st.integers(1, 8), st.sampled_from(["void", "release", "stays"])), min_size=1, max_size=4)


def told(ledger: Ledger) -> tuple[object, ...]:
    grants = sorted(map(repr, ledger.grants(holding=False)))
    return ledger.last_seq(), grants, list(ledger.intents(open_only=False)), list(ledger.usage(from_ms=0, to_ms=99))


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(LIVES, st.integers(0, 99))
def test_every_transfer_again_in_any_order_changes_nothing(lives: list[tuple[int, str]], seed: int) -> None:
    """Q3: retries come late and out of order; a reserve of an attempt that ended would be a new one, so it is left."""
    with on_disk() as make:
        ledger = make()
        ledger.open_epoch(1, "one")
        done: list[tuple[Act, bool]] = []
        for number, (gpus, end) in enumerate(lives):
            for index, act in enumerate(acts_of(number, gpus, end)):
                first = act(ledger)
                assert act(ledger) == first
                done.append((act, index == 0 and end != "stays"))
        before = told(ledger)
        rng = random.Random(seed)
        again = [act for act, begins in done if not begins] * 2
        rng.shuffle(again)
        for act in again:
            act(ledger)
            assert told(ledger) == before
        assert list(ledger.verify()) == []


VERBS: list[Act] = [
    lambda ledger: ledger.reserve(a_workload(9, 1), {NODE: 1}, at_ms=5),
    lambda ledger: ledger.adopt(a_workload(9, 1), {NODE: 1}, at_ms=5, note=""),
    lambda ledger: ledger.run(WorkloadId("pod/0"), 1, gpus=1, placement={NODE: 1}, at_ms=5),
    lambda ledger: ledger.void(WorkloadId("pod/0"), 1, at_ms=5, note=""),
    lambda ledger: ledger.release(WorkloadId("pod/0"), 1, at_ms=5),
    lambda ledger: ledger.intend(Intent("cancel/x", "cancel", WorkloadId("pod/0"), 5, {})),
    lambda ledger: ledger.capacity([CapacityRow(NODE, FLAVORS[0], 1, 0, 0, 0, 1, 0)], at_ms=5),
    lambda ledger: ledger.note(WorkloadId("pod/0"), "late", at_ms=5),
]


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(st.permutations(range(len(VERBS))), st.integers(1, 3))
def test_a_stale_leader_writes_nothing_whatever_it_tries(order: list[int], later: int) -> None:
    """Q3: fenced in the database, so also a leader that was paused and knows nothing."""
    with on_disk() as make:
        stale = make()
        stale.open_epoch(1, "one")
        stale.reserve(a_workload(0, 1), {NODE: 1}, at_ms=1)
        leader = make()
        leader.open_epoch(1 + later, "two")
        before = told(leader)
        for index in order:
            with pytest.raises(StaleLeaderError):
                VERBS[index](stale)
        with pytest.raises(StaleLeaderError):
            stale.open_epoch(1, "one")
        with pytest.raises(BridgeError), stale.batch():
            stale.reserve(a_workload(9, 1), {NODE: 1}, at_ms=5)
        assert told(leader) == before
        leader.run(WorkloadId("pod/0"), 1, gpus=1, placement={NODE: 1}, at_ms=2)
        assert list(leader.verify()) == []
