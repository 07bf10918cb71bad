"""Q8: exact integers."""

from hypothesis import given
from hypothesis import strategies as st

from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree
from bridge.workloads.model import NodeName, System, Workload, WorkloadId
from tests.property.oracle_platform import FLAVORS, in_memory

HUGE = st.integers(2**52, 2**60)
SPANS = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**12), st.integers(1, 10**10)), max_size=6)


@given(HUGE, st.lists(st.integers(1, 2**50), max_size=8))
def test_sums_are_exact_where_floating_point_would_lose_a_device(guarantee: int, moves: list[int]) -> None:
    """Q8: amounts far above 2^53, charged and given back one by one, come back to the very number."""
    flavor = FlavorName("h100")
    up = TeamSpec(TeamName("up"), None, 1, {flavor: Quota(guarantee)})
    down = TeamSpec(TeamName("down"), up.name, 1, {flavor: Quota(guarantee - 1)})
    balances = Balances(Tree.build([up, down]), {})
    held = 0
    for gpus in moves:
        balances.charge(down.name, flavor, gpus)
        held += gpus
        assert balances.available(down.name, flavor) == guarantee - held
        assert balances.total(up.name, flavor) == held
        assert type(balances.available(down.name, flavor)) is int
    for gpus in moves:
        balances.refund(down.name, flavor, gpus)
    assert balances.available(down.name, flavor) == guarantee


@given(SPANS, st.integers(0, 10**12), st.integers(0, 10**12))
def test_use_is_the_exact_integral_in_gpu_milliseconds(
    spans: list[tuple[int, int, int]], cut: int, length: int
) -> None:
    """Q8: to the millisecond, at any amount; a single device for a single millisecond is never rounded away."""
    ledger = in_memory()()
    ledger.open_epoch(1, "one")
    until = cut + length
    expected = 0
    for number, (gpus, start, ran) in enumerate(spans):
        w = Workload(WorkloadId(f"pod/{number}"), System.KUBERNETES, TeamName("a"), FLAVORS[0], 1, gpus, 0)
        ledger.reserve(w, {NodeName("n0"): gpus}, at_ms=start)
        ledger.run(w.id, 1, gpus=gpus, placement={NodeName("n0"): gpus}, at_ms=start)
        ledger.release(w.id, 1, at_ms=start + ran)
        expected += gpus * max(0, min(start + ran, until) - max(start, cut))
    used = [row.gpu_ms for row in ledger.usage(from_ms=cut, to_ms=until)]
    assert sum(used) == expected
    assert all(type(gpu_ms) is int for gpu_ms in used)
    whole = sum(row.gpu_ms for row in ledger.usage(from_ms=0, to_ms=2**50))
    assert whole == sum(gpus * ran for gpus, _, ran in spans)
    assert list(ledger.verify()) == []


@given(st.integers(1, 8), st.integers(1, 10**6))
def test_one_device_for_one_millisecond_counts(gpus: int, start: int) -> None:
    """Q8: of a flavor, team and system of its own it is a row of its own."""
    ledger = in_memory()()
    ledger.open_epoch(1, "one")
    w = Workload(WorkloadId("slurm/main/1"), System.SLURM, TeamName("a"), FLAVORS[0], 1, gpus, 0)
    ledger.reserve(w, {NodeName("n0"): gpus}, at_ms=start)
    ledger.run(w.id, 1, gpus=gpus, placement={NodeName("n0"): gpus}, at_ms=start)
    ledger.release(w.id, 1, at_ms=start + 1)
    assert [(row.gpu_ms, row.system) for row in ledger.usage(from_ms=0, to_ms=2**50)] == [(gpus, System.SLURM)]
