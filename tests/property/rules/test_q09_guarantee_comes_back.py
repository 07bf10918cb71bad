"""Q9: a guarantee is back within grace and termination, whichever system the borrower uses. The whole controller."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.slurm.model import GraceSignal
from tests.property.controlled import GRACE_MS, borrowed, comes_back

SIZES = st.lists(st.sampled_from([1, 2, 4, 8]), max_size=4)
SIGNALS = st.sampled_from([None, GraceSignal(10, batch=True), GraceSignal(12)])


@settings(max_examples=8, deadline=None)
@given(SIZES, SIZES, SIGNALS, st.sampled_from(["job", "pod"]), st.integers(1, 8))
def test_what_was_lent_comes_back_for_a_job_and_for_a_pod(
    jobs: list[int], pods: list[int], signal: GraceSignal | None, way: str, asks: int
) -> None:
    """Of the fleet, jobs and pods of bravo hold what they can; alpha asks for up to its guarantee."""
    platform, held = borrowed(jobs, pods, signal)
    took_ms = comes_back(platform, way, asks)
    assert took_ms <= (GRACE_MS if signal else 0) + MOVE_MS
    lost = held - platform.held().get("bravo", 0)
    assert not lost or held - lost >= 4 or held - lost + max([*jobs, *pods]) > 4, "no further than one gang below"
    platform.ledger.close()


MOVE_MS = 6_000  # a victim is told, ends, and its node changes systems, at 0.2 s for each step
