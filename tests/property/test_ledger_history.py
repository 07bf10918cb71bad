"""The integral against a sum over every millisecond, and against itself cut into pieces. Rules 8 and 17."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import InvalidInputError
from bridge.ledger import history
from bridge.ledger.port import Carried, Held, Usage
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import System

END = 60
MOMENTS = st.integers(0, END)
Key = tuple[str, System, str, str]


@st.composite
def spans(draw: st.DrawFn) -> Held:
    """Draw a span of one to eight GPUs that ends at or after its start, or runs on."""
    from_ms = draw(MOMENTS)
    return Held(
        team=TeamName(draw(st.sampled_from("vn"))),
        system=draw(st.sampled_from(System)),
        flavor=FlavorName(draw(st.sampled_from("ah"))),
        gpus=draw(st.integers(1, 8)),
        from_ms=from_ms,
        to_ms=draw(st.none() | st.integers(from_ms, END)),
        user=draw(st.sampled_from(["alice", "bob"])),
    )


HELD = st.lists(spans(), max_size=12)


def key_of(row: Usage) -> Key:
    return row.team, row.system, row.flavor, row.user


def sums(held: list[Held], from_ms: int, to_ms: int) -> dict[Key, int]:
    return {key_of(row): row.gpu_ms for row in history.usage(held, from_ms=from_ms, to_ms=to_ms)}


@given(HELD, MOMENTS, MOMENTS)
def test_usage_is_the_sum_over_every_millisecond(held: list[Held], one: int, other: int) -> None:
    from_ms, to_ms = min(one, other), max(one, other)
    expected: dict[Key, int] = {}
    for now_ms in range(from_ms, to_ms):
        for span in held:
            if span.from_ms <= now_ms and (span.to_ms is None or now_ms < span.to_ms):
                key = (span.team, span.system, span.flavor, span.user)
                expected[key] = expected.get(key, 0) + span.gpus
    assert sums(held, from_ms, to_ms) == expected


@given(HELD, st.lists(MOMENTS, min_size=2, max_size=30))
def test_usage_in_many_steps_is_usage_in_one(held: list[Held], cuts: list[int]) -> None:
    cuts.sort()
    total: dict[Key, int] = {}
    for from_ms, to_ms in pairwise(cuts):
        for key, gpu_ms in sums(held, from_ms, to_ms).items():
            total[key] = total.get(key, 0) + gpu_ms
    assert total == sums(held, cuts[0], cuts[-1])


@given(HELD, st.lists(MOMENTS, max_size=30), MOMENTS, MOMENTS)
def test_parts_told_at_once_are_the_windows_told_one_by_one(
    held: list[Held], cuts: list[int], one: int, other: int
) -> None:
    from_ms, to_ms = min(one, other), max(one, other)
    parts = sorted({from_ms, to_ms, *(cut for cut in cuts if from_ms < cut < to_ms)})
    expected = {
        (begin_ms, key): gpu_ms
        for begin_ms, end_ms in pairwise(parts)
        for key, gpu_ms in sums(held, begin_ms, end_ms).items()
    }
    told = history.usage(held, from_ms=from_ms, to_ms=to_ms, cuts=cuts)
    assert {(row.from_ms, key_of(row)): row.gpu_ms for row in told} == expected


@given(HELD, st.sets(st.integers(1, 5)), MOMENTS, MOMENTS)
def test_what_was_archived_by_the_day_counts_the_same_or_is_refused(
    held: list[Held], archived: set[int], one: int, other: int
) -> None:
    """Days of ten ms: those in `archived` are kept as sums only. A window of whole days tells the same sums."""
    from_ms, to_ms = min(one, other), max(one, other)
    carried = [
        Carried(row.team, row.system, row.flavor, row.gpu_ms, 10 * day, 10 * day + 10, row.user)
        for day in archived
        for row in history.usage(held, from_ms=10 * day, to_ms=10 * day + 10)
    ]
    rest = [
        Held(span.team, span.system, span.flavor, span.gpus, max(span.from_ms, 10 * day), end_ms, span.user)
        for span in held
        for day in range(7)
        if day not in archived
        for end_ms in [min(10 * day + 10, END if span.to_ms is None else span.to_ms)]
        if end_ms > max(span.from_ms, 10 * day)
    ]
    cut = [row for row in carried if row.from_ms < from_ms < row.to_ms or row.from_ms < to_ms < row.to_ms]
    if cut and from_ms < to_ms:
        with pytest.raises(InvalidInputError, match="begin and end the window at 00:00 UTC"):
            history.usage(rest, from_ms=from_ms, to_ms=to_ms, carried=carried)
        return
    told = history.usage(rest, from_ms=from_ms, to_ms=to_ms, carried=carried)
    assert {key_of(row): row.gpu_ms for row in told} == sums(held, from_ms, to_ms)
