"""The integral against a sum over every millisecond, and against itself cut into pieces. Rules 8 and 17."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger import history
from bridge.ledger.history import Held
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import System

END = 60
MOMENTS = st.integers(0, END)
Key = tuple[str, System, str]


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
    )


HELD = st.lists(spans(), max_size=12)


def sums(held: list[Held], from_ms: int, to_ms: int) -> dict[Key, int]:
    return {(row.team, row.system, row.flavor): row.gpu_ms for row in history.usage(held, from_ms=from_ms, to_ms=to_ms)}


@given(HELD, MOMENTS, MOMENTS)
def test_usage_is_the_sum_over_every_millisecond(held: list[Held], one: int, other: int) -> None:
    from_ms, to_ms = min(one, other), max(one, other)
    expected: dict[Key, int] = {}
    for now_ms in range(from_ms, to_ms):
        for span in held:
            if span.from_ms <= now_ms and (span.to_ms is None or now_ms < span.to_ms):
                key = (span.team, span.system, span.flavor)
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
