"""Three teams under the whole controller in memory: what properties of reclaim do to them, and what they measure."""

from typing import Final

from bridge.slurm.model import GraceSignal
from tests.unit.platform_of_three import Three

GRACE_MS: Final = 30_000  # what a team has that says nothing
MOST_CYCLES: Final = 60
FLEET: Final = 16


def borrowed(jobs: list[int], pods: list[int], signal: GraceSignal | None) -> tuple[Three, int]:
    """Let bravo hold what fits of these jobs and pods; return the platform at rest and what bravo holds."""
    platform = Three()
    for size in jobs:
        platform.job("bravo", size, signal=signal)
    for index, size in enumerate(pods):
        platform.pod("bravo", f"p{index}", size)
    platform.run(16)
    platform.clock.advance(60_000)
    platform.run(2)
    held = platform.held().get("bravo", 0)
    assert held <= FLEET
    return platform, held


def comes_back(platform: Three, way: str, asks: int) -> int:
    """Let alpha ask by sbatch or with a pod; return the milliseconds to its start."""
    asked_ms = platform.clock.now_ms()
    job, waited = 0, False
    if way == "job":
        job = platform.job("alpha", asks)
    else:
        platform.pod("alpha", "asking", asks)
    for _ in range(MOST_CYCLES):
        if platform.runs(job) if job else platform.serves("alpha", "asking"):
            assert not platform.ledger.verify()
            return platform.clock.now_ms() - asked_ms
        platform.run(1)
        platform.settle()
        if platform.slurm.signals and not waited:
            platform.clock.advance(GRACE_MS - 200)  # nothing happens in a grace, and it need not be cycled through
            waited = True
    raise AssertionError(f"alpha's {asks} are not back: {platform.held()}, {platform.tries()}")


def hold_one(platform: Three, signal: GraceSignal | None) -> int:
    """Let bravo borrow a whole node with one job; charlie is within its guarantee on the other. Return bravo's job."""
    borrowing = platform.job("bravo", 8, signal=signal)
    platform.until(lambda: platform.runs(borrowing))
    within = platform.job("charlie", 4)
    platform.until(lambda: platform.runs(within))
    return borrowing
