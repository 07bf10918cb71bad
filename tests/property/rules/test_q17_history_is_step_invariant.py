"""Q17: history is step-invariant."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger.decay import Keeper, decayed
from bridge.ledger.port import Held, Ledger
from bridge.quota.model import TeamName
from bridge.workloads.model import NodeName, System, Workload, WorkloadId
from tests.property.oracle_platform import FLAVORS, in_memory

END = 10_000
LIVES = st.lists(
    st.tuples(st.integers(0, END), st.integers(1, END), st.integers(1, 8), st.sampled_from(["a", "b"]), st.booleans()),
    max_size=6,
)
CUTS = st.lists(st.integers(0, 2 * END), max_size=12)
HALF_LIFE_MS = 3_000


def lived(lives: list[tuple[int, int, int, str, bool]]) -> Ledger:
    """Record lives (start, length, devices, team, whether it runs still)."""
    ledger = in_memory()()
    ledger.open_epoch(1, "one")
    for number, (start, length, gpus, team, runs) in enumerate(lives):
        w = Workload(WorkloadId(f"pod/{number}"), System.KUBERNETES, TeamName(team), FLAVORS[0], 1, gpus, 0)
        ledger.reserve(w, {NodeName("n0"): gpus}, at_ms=start)
        ledger.run(w.id, 1, gpus=gpus, placement={NodeName("n0"): gpus}, at_ms=start)
        if not runs:
            ledger.release(w.id, 1, at_ms=start + length)
    return ledger


@given(LIVES, CUTS)
def test_the_sum_over_any_windows_is_the_sum_over_the_whole(
    lives: list[tuple[int, int, int, str, bool]], cuts: list[int]
) -> None:
    """Q17: in one step or a thousand, the same integer, for each team; and it is the sum over the milliseconds."""
    ledger = lived(lives)
    edges = sorted({0, 2 * END, *cuts})
    sums: dict[str, int] = {}
    for first, then in itertools.pairwise(edges):
        for row in ledger.usage(from_ms=first, to_ms=then):
            sums[row.team] = sums.get(row.team, 0) + row.gpu_ms
    assert sums == {row.team: row.gpu_ms for row in ledger.usage(from_ms=0, to_ms=2 * END)}
    expected: dict[str, int] = {}
    for start, length, gpus, team, runs in lives:
        expected[team] = expected.get(team, 0) + gpus * ((2 * END - start) if runs else length)
    assert sums == expected


def spans(lives: list[tuple[int, int, int, str, bool]]) -> list[Held]:
    return [
        Held(TeamName(team), System.KUBERNETES, FLAVORS[0], gpus, start, None if runs else start + length)
        for start, length, gpus, team, runs in lives
    ]


def cut(held: list[Held], cuts: list[int]) -> list[Held]:
    """Return the same time in pieces."""
    pieces = []
    for span in held:
        inside = [at for at in sorted(set(cuts)) if at > span.from_ms and (span.to_ms is None or at < span.to_ms)]
        edges = [span.from_ms, *inside, span.to_ms]
        for first, then in itertools.pairwise(edges):
            assert first is not None
            pieces.append(Held(span.team, span.system, span.flavor, span.gpus, first, then))
    return pieces


@given(LIVES, CUTS)
def test_decayed_use_is_the_same_in_one_step_or_many_and_whenever_it_is_learnt(
    lives: list[tuple[int, int, int, str, bool]], cuts: list[int]
) -> None:
    """Q17: the closed form: spans cut anywhere, folded as they end or long after (an outage of the bridge)."""
    now = 2 * END
    whole = decayed(spans(lives), now, HALF_LIFE_MS)
    pieces = cut(spans(lives), cuts)
    in_pieces = decayed(pieces, now, HALF_LIFE_MS)
    late, prompt = Keeper(HALF_LIFE_MS), Keeper(HALF_LIFE_MS)
    ended = [span for span in pieces if span.to_ms is not None]
    late.fold(sorted(ended, key=lambda span: -(span.to_ms or 0)))
    for span in sorted(ended, key=lambda span: span.to_ms or 0):
        prompt.fold([span])
        prompt.history(span.to_ms or 0)
    still = [span for span in pieces if span.to_ms is None]
    for other in (in_pieces, late.history(now, still), prompt.history(now, still)):
        assert other.keys() == whole.keys()
        assert all(math.isclose(other[key], whole[key], rel_tol=1e-9) for key in whole)


@given(st.integers(1, 64), st.integers(1, 10**9), st.integers(1, 10**9))
def test_one_half_life_later_it_counts_half_and_a_tiny_use_counts_something(
    gpus: int, from_ms: int, half_life_ms: int
) -> None:
    """Q17: never rounded to zero, never above what was held."""
    span = Held(TeamName("a"), System.SLURM, FLAVORS[0], gpus, from_ms, from_ms + 1)
    now = from_ms + 1
    (first,) = decayed([span], now, half_life_ms).values()
    (later,) = decayed([span], now + half_life_ms, half_life_ms).values()
    assert 0.0 < later < first <= gpus
    assert math.isclose(later * 2, first, rel_tol=1e-9)
