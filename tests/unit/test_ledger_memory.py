"""The ledger in memory beyond the contract that it shares: its proof notices what was changed behind its back."""

from dataclasses import replace

import pytest

from bridge.clock import FakeClock
from bridge.errors import StaleLeaderError
from bridge.ledger.memory import MemoryLedger
from tests.contract.ledger_sample import NODE, T0, workload


@pytest.fixture
def ledger() -> MemoryLedger:
    found = MemoryLedger(FakeClock(T0))
    found.open_epoch(1, "one")
    found.reserve(workload("a"), {NODE: 4}, at_ms=T0)
    found.run(workload("a").id, 1, gpus=4, placement={NODE: 4}, at_ms=T0)
    found.adopt(workload("b", team="nlp"), {NODE: 2}, at_ms=T0, note="")
    assert found.verify() == ()
    return found


def test_a_changed_balance_grant_or_span_is_found(ledger: MemoryLedger) -> None:
    kept = ledger._kept
    owner, key, seq = next(iter(kept.balances)), (workload("a").id, 1), next(iter(kept.spans))
    for table, name, wrong in (
        (kept.balances, owner, 5),
        (kept.grants, key, replace(kept.grants[key], gpus=3)),
        (kept.spans, seq, replace(kept.spans[seq], from_ms=T0 - 1)),
    ):
        right = table[name]  # type: ignore[index]  # each key belongs to its own table
        table[name] = wrong  # type: ignore[index,assignment]
        assert len(ledger.verify()) == 1
        table[name] = right  # type: ignore[index,assignment]
    assert ledger.verify() == ()


def test_an_entry_that_is_gone_is_found(ledger: MemoryLedger) -> None:
    del ledger._kept.entries[f"reserve/1/{workload('a').id}"]
    told = [problem.text for problem in ledger.verify()]
    assert "entry 3 follows entry 1: 1 are missing" in told
    assert any("which was never granted" in text for text in told)


def test_nothing_is_written_without_an_epoch() -> None:
    ledger = MemoryLedger(FakeClock(T0))
    with pytest.raises(StaleLeaderError, match="no epoch is open"):
        ledger.reserve(workload("a"), {NODE: 4}, at_ms=T0)
    assert ledger.last_seq() == 0
