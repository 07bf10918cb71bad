"""What every ledger store must do, whatever database is under it. One more store is one more parameter."""

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.clock import FakeClock
from bridge.errors import (
    BrokenInvariantError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StaleLeaderError,
)
from bridge.ledger import journal
from bridge.ledger.memory import MemoryLedger
from bridge.ledger.port import CapacityRow, Intent, Ledger, Usage
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import GrantState, System, WorkloadId
from tests.contract.ledger_sample import NODE, OTHER, T0, of_flavor, workload
from tests.postgresbox import PostgresBox

ON_NODE = {NODE: 4}
ROW = CapacityRow(
    NODE, FlavorName("h100"), total=8, worker=4, pods=2, unmanaged=0, idle=1, unavailable=1, cause="one lost"
)


@pytest.fixture(params=["memory", "sqlite-file", "sqlite-memory", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """Return an empty ledger that leads in epoch 1; it must still add up when the test is over."""
    if request.param == "postgresql":
        box: PostgresBox = request.getfixturevalue("postgres_box")
        url = box.url(f"ledger_{uuid.uuid4().hex[:12]}")
    else:
        url = "sqlite://" if request.param == "sqlite-memory" else f"sqlite:///{tmp_path / 'ledger.db'}"
    clock = FakeClock(T0)
    opened: Ledger = MemoryLedger(clock) if request.param == "memory" else journal.open_ledger(url, clock)
    opened.open_epoch(1, "one")
    yield opened
    assert opened.verify() == ()
    opened.close()


def gpu_ms(ledger: Ledger, from_ms: int, to_ms: int) -> dict[tuple[str, str, str], int]:
    """Return the usage of a window as a plain dictionary."""
    return {(row.team, row.system.value, row.flavor): row.gpu_ms for row in ledger.usage(from_ms=from_ms, to_ms=to_ms)}


# --- the life of a grant -------------------------------------------------------------------------------------


def test_a_grant_goes_from_reserved_over_running_to_released(ledger: Ledger) -> None:
    wanted = workload()
    reserved = ledger.reserve(wanted, ON_NODE, at_ms=T0)
    assert (reserved.state, reserved.attempt, reserved.gpus) == (GrantState.RESERVED, 1, 4)
    assert (reserved.user, reserved.name, reserved.submitted_ms) == ("alice", "train-a", T0)
    running = ledger.run(wanted.id, 1, gpus=4, placement=ON_NODE, at_ms=T0 + 10)
    assert (running.state, running.running_ms) == (GrantState.RUNNING, T0 + 10)
    assert list(ledger.grants()) == [running]
    released = ledger.release(wanted.id, 1, at_ms=T0 + 30, note="completed")
    assert (released.state, released.ended_ms, released.note) == (GrantState.RELEASED, T0 + 30, "completed")
    assert list(ledger.grants()) == []
    assert list(ledger.grants(holding=False)) == [released]
    assert [(e.step, e.gpus) for e in ledger.history(wanted.id)] == [("reserve", 4), ("run", 0), ("release", -4)]


def test_a_reservation_that_never_ran_is_voided(ledger: Ledger) -> None:
    ledger.reserve(workload(), ON_NODE, at_ms=T0)
    voided = ledger.void(workload().id, 1, at_ms=T0 + 5, note="not started")
    assert (voided.state, voided.holds, voided.note) == (GrantState.VOIDED, False, "not started")
    assert gpu_ms(ledger, 0, T0 + 100) == {}


def test_the_next_attempt_comes_only_when_the_last_one_no_longer_holds(ledger: Ledger) -> None:
    first = ledger.reserve(workload(), ON_NODE, at_ms=T0)
    assert ledger.reserve(workload(), {OTHER: 4}, at_ms=T0 + 1) == first
    ledger.run(first.workload, 1, gpus=4, placement=ON_NODE, at_ms=T0 + 2)
    assert ledger.reserve(workload(), {OTHER: 4}, at_ms=T0 + 3).attempt == 1
    ledger.release(first.workload, 1, at_ms=T0 + 4)
    second = ledger.reserve(workload(), {OTHER: 4}, at_ms=T0 + 5)
    assert (second.attempt, second.placement, second.state) == (2, {OTHER: 4}, GrantState.RESERVED)


def test_an_adopted_workload_is_charged_as_it_is_found(ledger: Ledger) -> None:
    adopted = ledger.adopt(workload(gpus=2), {NODE: 4, OTHER: 4}, at_ms=T0, note="found running")
    assert (adopted.state, adopted.gpus, adopted.running_ms) == (GrantState.RUNNING, 8, T0)
    assert ledger.adopt(workload(gpus=2), {NODE: 1}, at_ms=T0 + 9, note="again") == adopted
    assert gpu_ms(ledger, T0, T0 + 10) == {("vision", "slurm", "h100"): 80}


# --- once each -----------------------------------------------------------------------------------------------


def test_a_repeated_transfer_changes_nothing_and_returns_the_first_result(ledger: Ledger) -> None:
    wanted = workload().id
    ledger.reserve(workload(), ON_NODE, at_ms=T0)
    ran = ledger.run(wanted, 1, gpus=4, placement=ON_NODE, at_ms=T0 + 1)
    assert ledger.run(wanted, 1, gpus=8, placement={OTHER: 8}, at_ms=T0 + 2) == ran
    ended = ledger.release(wanted, 1, at_ms=T0 + 3)
    newest = ledger.last_seq()
    assert ledger.release(wanted, 1, at_ms=T0 + 9, note="again") == ended
    assert ledger.run(wanted, 1, gpus=4, placement=ON_NODE, at_ms=T0 + 1) == ended
    assert ledger.last_seq() == newest


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_a_start_charges_what_was_really_allocated(ledger: Ledger, gpus: int) -> None:
    ledger.reserve(workload(), ON_NODE, at_ms=T0)
    grant = ledger.run(workload().id, 1, gpus=gpus, placement={OTHER: gpus}, at_ms=T0)
    assert (grant.gpus, grant.placement) == (gpus, {OTHER: gpus})
    ledger.release(grant.workload, 1, at_ms=T0 + 1000)
    assert gpu_ms(ledger, T0, T0 + 2000) == {("vision", "slurm", "h100"): gpus * 1000}
    assert [entry.gpus for entry in ledger.history(grant.workload)] == [4, gpus - 4, -gpus]


def test_an_adjustment_counts_from_its_own_time_on(ledger: Ledger) -> None:
    wanted = workload().id
    ledger.reserve(workload(), ON_NODE, at_ms=T0)
    ledger.run(wanted, 1, gpus=4, placement=ON_NODE, at_ms=T0)
    ledger.adjust(wanted, 1, gpus=2, placement={NODE: 2}, at_ms=T0 + 100)
    ledger.adjust(wanted, 1, gpus=6, placement={NODE: 6}, at_ms=T0 + 150)
    newest = ledger.last_seq()
    assert ledger.adjust(wanted, 1, gpus=2, placement={NODE: 2}, at_ms=T0 + 100).gpus == 6  # a late repeat
    assert ledger.adjust(wanted, 1, gpus=6, placement={NODE: 6}, at_ms=T0 + 999).gpus == 6  # nothing to change
    assert ledger.last_seq() == newest
    ledger.release(wanted, 1, at_ms=T0 + 200)
    assert gpu_ms(ledger, T0, T0 + 500) == {("vision", "slurm", "h100"): 4 * 100 + 2 * 50 + 6 * 50}
    assert gpu_ms(ledger, T0 + 90, T0 + 110) == {("vision", "slurm", "h100"): 4 * 10 + 2 * 10}


def test_one_moment_cannot_record_two_adjustments(ledger: Ledger) -> None:
    ledger.adopt(workload(), ON_NODE, at_ms=T0, note="")
    ledger.adjust(workload().id, 1, gpus=2, placement={NODE: 2}, at_ms=T0 + 1)
    with pytest.raises(ConflictError, match=r"at_ms=1700000000001 already records gpus=2 .* not gpus=3"):
        ledger.adjust(workload().id, 1, gpus=3, placement={NODE: 3}, at_ms=T0 + 1)


def test_intents_are_recorded_and_settled_once(ledger: Ledger) -> None:
    intent = Intent("submit/job-1/1", "submit", WorkloadId("slurm/main/x"), T0, {"user": "alice"})
    assert ledger.intend(intent) == intent
    assert ledger.intend(replace(intent, at_ms=T0 + 5, detail={})) == intent
    assert list(ledger.intents()) == [intent]
    settled = ledger.settle(intent.id, outcome="job 7", at_ms=T0 + 9)
    assert (settled.outcome, settled.settled_ms) == ("job 7", T0 + 9)
    assert ledger.settle(intent.id, outcome="job 8", at_ms=T0 + 10) == settled
    assert list(ledger.intents()) == []
    assert list(ledger.intents(open_only=False)) == [settled]


def test_the_same_note_is_not_written_twice_in_a_row(ledger: Ledger) -> None:
    wanted = workload().id
    for text in ("waits", "waits", "runs", "waits"):
        ledger.note(wanted, text, at_ms=T0)
    assert [entry.detail["text"] for entry in ledger.history(wanted)] == ["waits", "runs", "waits"]


# --- refusals leave no trace ---------------------------------------------------------------------------------


def test_what_was_never_granted_cannot_move(ledger: Ledger) -> None:
    newest = ledger.last_seq()
    with pytest.raises(BrokenInvariantError, match="slurm/main/a attempt 1: the ledger never granted it"):
        ledger.release(workload().id, 1, at_ms=T0)
    ledger.reserve(workload(), ON_NODE, at_ms=T0)
    with pytest.raises(BrokenInvariantError, match="attempt 2: the ledger never granted it"):
        ledger.void(workload().id, 2, at_ms=T0, note="")
    assert ledger.last_seq() == newest + 1


def test_a_charge_cannot_be_given_back_by_another_door(ledger: Ledger) -> None:
    for key in ("voided", "running", "released"):
        ledger.reserve(workload(key), ON_NODE, at_ms=T0)
    ledger.void(workload("voided").id, 1, at_ms=T0, note="")
    ledger.run(workload("running").id, 1, gpus=4, placement=ON_NODE, at_ms=T0)
    ledger.release(workload("released").id, 1, at_ms=T0)
    newest = ledger.last_seq()
    with pytest.raises(BrokenInvariantError, match="it was voided"):
        ledger.release(workload("voided").id, 1, at_ms=T0)
    with pytest.raises(BrokenInvariantError, match="it is running; only a reservation can be voided"):
        ledger.void(workload("running").id, 1, at_ms=T0, note="")
    with pytest.raises(BrokenInvariantError, match="it is released; only a reservation can be voided"):
        ledger.void(workload("released").id, 1, at_ms=T0, note="")
    with pytest.raises(BrokenInvariantError, match="it is released, and never ran"):
        ledger.run(workload("released").id, 1, gpus=4, placement=ON_NODE, at_ms=T0)
    with pytest.raises(BrokenInvariantError, match="only what runs can change"):
        ledger.adjust(workload("released").id, 1, gpus=1, placement={NODE: 1}, at_ms=T0)
    assert ledger.last_seq() == newest


@pytest.mark.parametrize("gpus", [0, -4])
def test_an_adjustment_beyond_the_charge_is_refused_not_clamped(ledger: Ledger, gpus: int) -> None:
    ledger.adopt(workload(), ON_NODE, at_ms=T0, note="")
    with pytest.raises(BrokenInvariantError, match=f"gpus={gpus} cannot be charged; it holds 4"):
        ledger.adjust(workload().id, 1, gpus=gpus, placement={}, at_ms=T0)
    assert [grant.gpus for grant in ledger.grants()] == [4]


def test_a_placement_that_does_not_sum_to_the_request_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BrokenInvariantError, match="placement holds 3 GPUs, the workload asks for 4"):
        ledger.reserve(workload(), {NODE: 3}, at_ms=T0)
    with pytest.raises(BrokenInvariantError, match="node 'gpu-2' holds 0 GPUs"):
        ledger.reserve(workload(), {NODE: 4, OTHER: 0}, at_ms=T0)
    with pytest.raises(BrokenInvariantError, match="gpus=0; a grant holds at least one"):
        ledger.adopt(workload(), {}, at_ms=T0, note="")


def test_an_end_before_the_start_is_refused_and_one_at_the_start_is_fine(ledger: Ledger) -> None:
    ledger.adopt(workload(), ON_NODE, at_ms=T0, note="")
    with pytest.raises(InvalidInputError, match=f"at_ms={T0 - 1} is before since_ms={T0}"):
        ledger.release(workload().id, 1, at_ms=T0 - 1)
    with pytest.raises(InvalidInputError, match="give the real time"):
        ledger.adjust(workload().id, 1, gpus=2, placement={NODE: 2}, at_ms=T0 - 1)
    ledger.release(workload().id, 1, at_ms=T0)
    assert gpu_ms(ledger, 0, T0 + 100) == {}


def test_a_start_that_is_told_before_the_reservation_is_kept_as_told(ledger: Ledger) -> None:
    """Slurm tells whole seconds, so a start may look older than the grant."""
    ledger.reserve(workload(), ON_NODE, at_ms=T0 + 400)
    ledger.run(workload().id, 1, gpus=4, placement=ON_NODE, at_ms=T0)
    assert gpu_ms(ledger, T0, T0 + 1000) == {("vision", "slurm", "h100"): 4000}


def test_an_unknown_intent_cannot_be_settled(ledger: Ledger) -> None:
    with pytest.raises(NotFoundError, match="no intent 'cancel/x'"):
        ledger.settle("cancel/x", outcome="", at_ms=T0)


# --- capacity ------------------------------------------------------------------------------------------------


def test_only_changed_capacity_rows_are_written(ledger: Ledger) -> None:
    other = replace(ROW, node=OTHER, cause="")
    assert ledger.capacity([ROW, other], at_ms=T0) == 2
    assert ledger.capacity([ROW, other], at_ms=T0 + 1) == 0
    assert ledger.capacity([replace(ROW, idle=0, pods=3), other], at_ms=T0 + 2) == 1
    assert list(ledger.capacity_rows()) == [replace(ROW, idle=0, pods=3), other]


@pytest.mark.parametrize("wrong", [replace(ROW, idle=2), replace(ROW, idle=-1, pods=4), replace(ROW, total=9)])
def test_a_gpu_in_two_columns_or_none_is_refused(ledger: Ledger, wrong: CapacityRow) -> None:
    with pytest.raises(BrokenInvariantError, match=r"capacity of node gpu-1: .* do not sum to total="):
        ledger.capacity([replace(ROW, node=OTHER), wrong], at_ms=T0)
    assert list(ledger.capacity_rows()) == []


# --- usage ---------------------------------------------------------------------------------------------------


def test_usage_tells_teams_systems_and_flavors_apart(ledger: Ledger) -> None:
    ledger.adopt(workload("a"), ON_NODE, at_ms=T0, note="")
    ledger.adopt(workload("b", team="nlp", system=System.KUBERNETES), ON_NODE, at_ms=T0 + 5, note="")
    ledger.adopt(of_flavor(workload("c"), "a100"), ON_NODE, at_ms=T0 + 9, note="")
    ledger.reserve(workload("d"), ON_NODE, at_ms=T0)  # reserved is not running
    assert list(ledger.usage(from_ms=T0, to_ms=T0 + 10)) == [
        Usage(TeamName("nlp"), System.KUBERNETES, FlavorName("h100"), 4 * 5, "alice", T0),
        Usage(TeamName("vision"), System.SLURM, FlavorName("a100"), 4 * 1, "alice", T0),
        Usage(TeamName("vision"), System.SLURM, FlavorName("h100"), 4 * 10, "alice", T0),
    ]


def test_usage_tells_users_and_parts_of_a_window_apart(ledger: Ledger) -> None:
    ledger.adopt(workload("a"), ON_NODE, at_ms=T0, note="")
    ledger.adopt(replace(workload("b"), user="bob"), ON_NODE, at_ms=T0 + 6, note="")
    told = ledger.usage(from_ms=T0, to_ms=T0 + 10, cuts=[T0 + 4, T0 + 99])
    assert [(row.user, row.from_ms - T0, row.gpu_ms) for row in told] == [
        ("alice", 0, 4 * 4), ("alice", 4, 4 * 6), ("bob", 4, 4 * 4),
    ]  # fmt: skip


def test_the_past_is_what_ended_and_what_holds(ledger: Ledger) -> None:
    ledger.adopt(workload("a"), ON_NODE, at_ms=T0, note="")
    ledger.adjust(workload("a").id, 1, gpus=2, placement={NODE: 2}, at_ms=T0 + 5)
    ledger.reserve(workload("b"), {OTHER: 4}, at_ms=T0 + 6)
    past = ledger.past(from_ms=0)
    assert past.seq == ledger.last_seq()
    assert [(span.gpus, span.from_ms - T0, span.to_ms) for span in past.ended] == [(4, 0, T0 + 5)]
    assert sorted((grant.workload, grant.gpus) for grant in past.grants) == [
        (workload("a").id, 2), (workload("b").id, 4),
    ]  # fmt: skip
    assert past.since_ms == {(workload("a").id, 1): T0 + 5}
    assert list(ledger.past(from_ms=T0 + 5).ended) == []


def test_a_window_that_ends_before_it_begins_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidInputError, match="to_ms=1 is before from_ms=2"):
        ledger.usage(from_ms=2, to_ms=1)
    assert list(ledger.usage(from_ms=2, to_ms=2)) == []


# --- batches -------------------------------------------------------------------------------------------------


def test_a_batch_is_all_or_nothing(ledger: Ledger) -> None:
    newest = ledger.last_seq()

    def doomed() -> None:
        with ledger.batch():
            ledger.reserve(workload("a"), ON_NODE, at_ms=T0)
            ledger.capacity([ROW], at_ms=T0)
            ledger.release(workload("never").id, 1, at_ms=T0)

    with pytest.raises(BrokenInvariantError):
        doomed()
    assert (ledger.last_seq(), list(ledger.grants()), list(ledger.capacity_rows())) == (newest, [], [])


def test_a_batch_sees_its_own_transfers(ledger: Ledger) -> None:
    wanted = workload().id
    with ledger.batch():
        first = ledger.reserve(workload(), ON_NODE, at_ms=T0)
        assert ledger.reserve(workload(), ON_NODE, at_ms=T0 + 1) == first
        ledger.run(wanted, 1, gpus=2, placement={NODE: 2}, at_ms=T0)
        ledger.adjust(wanted, 1, gpus=3, placement={NODE: 3}, at_ms=T0 + 10)
        assert ledger.adjust(wanted, 1, gpus=3, placement={NODE: 3}, at_ms=T0 + 10).gpus == 3
        ledger.release(wanted, 1, at_ms=T0 + 20)
        second = ledger.reserve(workload(), ON_NODE, at_ms=T0 + 30)
        ledger.void(wanted, 2, at_ms=T0 + 31, note="")
        third = ledger.reserve(workload(), ON_NODE, at_ms=T0 + 32)
        intent = ledger.intend(Intent("cancel/a", "cancel", wanted, T0, {}))
        assert ledger.settle(intent.id, outcome="done", at_ms=T0).outcome == "done"
        ledger.note(wanted, "x", at_ms=T0)
        ledger.note(wanted, "x", at_ms=T0)
        assert list(ledger.grants(holding=False)) == []  # nothing of it is committed yet
    assert (second.attempt, third.attempt) == (2, 3)
    assert list(ledger.grants()) == [third]
    assert gpu_ms(ledger, T0, T0 + 100) == {("vision", "slurm", "h100"): 2 * 10 + 3 * 10}
    assert [entry.step for entry in ledger.history(wanted)].count("note") == 1


def test_an_ended_attempt_and_the_next_one_fit_into_one_batch(ledger: Ledger) -> None:
    ledger.reserve(workload(), ON_NODE, at_ms=T0)
    with ledger.batch():
        ledger.void(workload().id, 1, at_ms=T0, note="")
        ledger.reserve(workload(), ON_NODE, at_ms=T0)
    assert [grant.attempt for grant in ledger.grants()] == [2]


def test_another_thread_waits_for_the_batch_and_reads_only_what_is_committed(ledger: Ledger) -> None:
    """The API answers while the cycle writes."""
    inside, seen = threading.Event(), []

    def api() -> None:
        assert inside.wait(10)
        ledger.intend(Intent("cancel/a", "cancel", workload().id, T0, {}))
        seen.append([grant.workload for grant in ledger.grants()])

    thread = threading.Thread(target=api)
    thread.start()
    with ledger.batch():
        ledger.reserve(workload("a"), ON_NODE, at_ms=T0)
        inside.set()
        ledger.reserve(workload("b"), ON_NODE, at_ms=T0)
    thread.join(10)
    assert seen == [[workload("a").id, workload("b").id]]
    assert [entry.step for entry in ledger.log()] == ["epoch", "reserve", "reserve", "intent"]


def test_threads_that_write_at_once_lose_nothing(ledger: Ledger) -> None:
    def work(name: str) -> None:
        for index in range(20):
            ledger.reserve(workload(f"{name}{index}"), ON_NODE, at_ms=T0)
            ledger.grants()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ledger.grants()) == 80
    assert ledger.last_seq() == 81


# --- leadership ----------------------------------------------------------------------------------------------


def test_the_same_holder_may_open_its_epoch_again(ledger: Ledger) -> None:
    newest = ledger.last_seq()
    ledger.open_epoch(1, "one")
    assert ledger.last_seq() == newest
    ledger.open_epoch(2, "one")
    ledger.reserve(workload(), ON_NODE, at_ms=T0)
    assert [entry.epoch for entry in ledger.log()] == [1, 2, 2]


@pytest.mark.parametrize(("epoch", "holder"), [(1, "two"), (2, "two"), (1, "one")])
def test_an_epoch_not_above_the_recorded_one_is_refused(ledger: Ledger, epoch: int, holder: str) -> None:
    ledger.open_epoch(2, "one")
    with pytest.raises(StaleLeaderError, match=f"epoch {epoch} of {holder} is not above epoch 2 of one"):
        ledger.open_epoch(epoch, holder)


def test_entries_come_in_pages(ledger: Ledger) -> None:
    for key in "abc":
        ledger.reserve(workload(key), ON_NODE, at_ms=T0)
    assert [entry.seq for entry in ledger.log(after_seq=1, limit=2)] == [2, 3]
    assert [entry.seq for entry in ledger.log(after_seq=3)] == [4]
    with pytest.raises(InvalidInputError, match="limit=0"):
        ledger.log(limit=0)
