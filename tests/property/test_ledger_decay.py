"""Decayed use against a sum over many small steps, and against itself cut, joined and learnt late. Rule 17."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.clock import FakeClock
from bridge.errors import InvalidInputError
from bridge.ledger import decay
from bridge.ledger.decay import Keeper, decayed
from bridge.ledger.fairshare import FairShare
from bridge.ledger.memory import MemoryLedger
from bridge.ledger.port import Carried, Held
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import NodeName, System, Workload, WorkloadId

DAY = 86_400_000
WEEK = 7 * DAY
NOW = 100 * DAY
MOMENTS = st.integers(0, NOW)
HALF_LIVES = st.integers(decay.SHORTEST_MS, decay.LONGEST_MS)
V, H = TeamName("v"), FlavorName("h100")
Averages = Mapping[tuple[TeamName, FlavorName], float]


def held(gpus: int, from_ms: int, to_ms: int | None, team: str = "v") -> Held:
    return Held(TeamName(team), System.SLURM, H, gpus, from_ms, to_ms)


@st.composite
def spans(draw: st.DrawFn) -> Held:
    """Draw a span that ends at or after its start, or runs on."""
    from_ms = draw(MOMENTS)
    to_ms = draw(st.none() | st.integers(from_ms, NOW))
    return held(draw(st.integers(1, 512)), from_ms, to_ms, draw(st.sampled_from("vn")))


HELD = st.lists(spans(), max_size=12)


def same(one: Averages, other: Averages) -> bool:
    """Equal to 1e-9 of the value; below the smallest normal number a float has no such precision."""
    return all(
        math.isclose(one.get(key, 0.0), other.get(key, 0.0), rel_tol=1e-9, abs_tol=1e-300) for key in {*one, *other}
    )


@settings(max_examples=30)
@given(HELD, HALF_LIVES)
def test_it_is_the_integral_of_what_was_held_weighed_by_age(held_spans: list[Held], half_life_ms: int) -> None:
    """Against the midpoint rule over 2,000 steps, as far back as it can be seen."""
    for span in held_spans[:2]:
        end_ms = NOW if span.to_ms is None else span.to_ms
        begin_ms = max(span.from_ms, end_ms - 45 * half_life_ms)
        steps = 2_000
        step = (end_ms - begin_ms) / steps
        density = math.log(2) / half_life_ms
        total = sum(
            density * 2 ** (-(NOW - (begin_ms + (at + 0.5) * step)) / half_life_ms) * step for at in range(steps)
        )
        told = decayed([span], NOW, half_life_ms).get((span.team, H), 0.0)
        assert told == pytest.approx(span.gpus * total, rel=1e-3, abs=1e-12)


@given(spans(), st.lists(MOMENTS, max_size=20), HALF_LIVES)
def test_a_span_cut_into_pieces_counts_as_the_whole(span: Held, cuts: list[int], half_life_ms: int) -> None:
    end_ms = NOW if span.to_ms is None else span.to_ms
    moments = [span.from_ms, *sorted(cut for cut in cuts if span.from_ms < cut < end_ms)]
    pieces = [
        replace(span, from_ms=begin_ms, to_ms=after_ms)
        for begin_ms, after_ms in zip(moments, [*moments[1:], span.to_ms], strict=True)
    ]
    assert same(decayed(pieces, NOW, half_life_ms), decayed([span], NOW, half_life_ms))


@given(st.integers(1, 100), st.integers(0, 10), HALF_LIVES)
def test_half_of_what_is_past_is_left_after_a_half_life(gpus: int, halvings: int, half_life_ms: int) -> None:
    span = held(gpus, 0, half_life_ms)
    at_end = decayed([span], half_life_ms, half_life_ms)[V, H]
    assert at_end == pytest.approx(gpus / 2)  # half of the way to the average of one who holds for ever
    later = decayed([span], half_life_ms * (1 + halvings), half_life_ms)[V, H]
    assert later == pytest.approx(at_end / 2**halvings)


@given(st.integers(1, 10_000), HALF_LIVES)
def test_who_holds_for_ever_has_an_average_of_what_he_holds(gpus: int, half_life_ms: int) -> None:
    assert decayed([held(gpus, -60 * half_life_ms, None)], 0, half_life_ms)[V, H] == pytest.approx(gpus)


@given(HELD, HALF_LIVES, st.randoms(use_true_random=False))
def test_folding_as_spans_end_gives_the_closed_form_whatever_the_order(
    held_spans: list[Held], half_life_ms: int, random: object
) -> None:
    """An outage of the bridge is an order too: what ended during it is folded late."""
    keeper = Keeper(half_life_ms)
    ended = [span for span in held_spans if span.to_ms is not None]
    random.shuffle(ended)  # type: ignore[attr-defined]
    for span in ended:
        keeper.fold([span])
        keeper.history(NOW)  # asking changes nothing
    still = [span for span in held_spans if span.to_ms is None]
    assert same(keeper.history(NOW, still), decayed(held_spans, NOW, half_life_ms))


def test_a_millisecond_of_use_every_day_adds_up() -> None:
    keeper = Keeper(WEEK)
    for day in range(3_650):
        keeper.fold([held(1, day * DAY, day * DAY + 1)])
    now_ms = 3_650 * DAY
    steady = keeper.history(now_ms)[V, H]
    expected = decayed([held(1, day * DAY, day * DAY + 1) for day in range(3_650)], now_ms, WEEK)[V, H]
    assert steady == pytest.approx(expected, rel=1e-9)
    assert steady == pytest.approx(1 / DAY, rel=0.06)  # one millisecond a day, seen up to a day after it


def test_a_day_that_is_archived_counts_as_if_held_evenly() -> None:
    keeper = Keeper(WEEK)
    keeper.carry([Carried(V, System.SLURM, H, 4 * DAY, 0, DAY)])
    assert same(keeper.history(NOW), decayed([held(4, 0, DAY)], NOW, WEEK))


def test_what_still_runs_cannot_be_folded() -> None:
    with pytest.raises(ValueError, match="has not ended"):
        Keeper(WEEK).fold([held(1, 0, None)])


@pytest.mark.parametrize(("text", "ms"), [("7d", WEEK), ("36h", 129_600_000), ("1m", 60_000), (" 365d ", 365 * DAY)])
def test_half_lives_that_are_read(text: str, ms: int) -> None:
    assert decay.half_life(text) == ms


@pytest.mark.parametrize("text", ["", "0", "0d", "-7d", "7", "7w", "1.5d", "inf", "nan", "366d", "59s", "999999999d"])
def test_half_lives_that_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"half-life .* from 1m to 365d"):
        decay.half_life(text)


# --- the ledger, followed ------------------------------------------------------------------------------------

NODE = NodeName("g1")


def workload(name: str, team: str, gpus: int) -> Workload:
    return Workload(
        id=WorkloadId(name), team=TeamName(team), flavor=H, system=System.SLURM, nodes=1, gpus_per_node=gpus,
        submitted_ms=0, user="alice", name=name,
    )  # fmt: skip


@settings(max_examples=40)
@given(st.data())
def test_following_the_entries_knows_what_the_ledger_kept(data: st.DataObject) -> None:
    """Any steps of any attempts, recorded late or not, with looks in between; one follower begins in the middle."""
    ledger = MemoryLedger(FakeClock(0))
    ledger.open_epoch(1, "one")
    first, second = FairShare(ledger, DAY), FairShare(ledger, DAY)
    live: dict[str, tuple[int, int, int | None]] = {}  # attempt, since when, running since
    now_ms = 0
    for number in range(data.draw(st.integers(0, 14))):
        now_ms += data.draw(st.integers(1, DAY))
        name = data.draw(st.sampled_from("abc"))
        gpus = data.draw(st.integers(1, 8))
        if name not in live:
            ask = workload(name, data.draw(st.sampled_from(["v", "n"])), gpus)
            if data.draw(st.booleans()):
                live[name] = (ledger.reserve(ask, {NODE: gpus}, at_ms=now_ms).attempt, now_ms, None)
            else:
                grant = ledger.adopt(ask, {NODE: gpus}, at_ms=now_ms, note="")
                live[name] = (grant.attempt, now_ms, now_ms)
            continue
        attempt, since_ms, running_ms = live[name]
        at_ms = data.draw(st.integers(since_ms + 1, now_ms))  # learnt late: its own time lies back
        identity = WorkloadId(name)
        if running_ms is None and data.draw(st.booleans()):
            ledger.void(identity, attempt, at_ms=at_ms, note="late")
            del live[name]
        elif running_ms is None:
            ledger.run(identity, attempt, gpus=gpus, placement={NODE: gpus}, at_ms=at_ms)
            live[name] = (attempt, at_ms, at_ms)
        elif data.draw(st.booleans()):
            ledger.adjust(identity, attempt, gpus=gpus, placement={NODE: gpus}, at_ms=at_ms)
            live[name] = (attempt, at_ms, running_ms)
        else:
            ledger.release(identity, attempt, at_ms=at_ms)
            del live[name]
        if number % 3 == 0:
            first.history(now_ms)
        if number > 6:  # the second one begins somewhere in the middle
            second.history(now_ms)
    now_ms += 1
    past = ledger.past(from_ms=0)
    running = [
        Held(g.team, g.system, g.flavor, g.gpus, past.since_ms[g.workload, g.attempt], None)
        for g in past.grants
        if (g.workload, g.attempt) in past.since_ms
    ]
    expected = decayed([*past.ended, *running], now_ms, DAY)
    assert same(first.history(now_ms), expected)
    assert same(second.history(now_ms), expected)


def test_a_sample_is_the_same_object_until_it_is_due() -> None:
    ledger = MemoryLedger(FakeClock(0))
    ledger.open_epoch(1, "one")
    ledger.adopt(workload("a", "v", 4), {NODE: 4}, at_ms=0, note="")
    share = FairShare(ledger, WEEK)
    sampled = share.sample(WEEK)
    assert sampled[V, H] == pytest.approx(2.0)
    assert share.sample(WEEK + share.period_ms - 1) is sampled
    assert share.sample(WEEK + share.period_ms) is not sampled
