"""The long run: many random platforms, every decision compared with the naive rules. `make test-property-long`.

Prints the seed, the count and what was decided, and ends with 1 at the first mismatch, with the seed and the step
that show it again.
"""

import argparse
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from bridge.workloads.reasons import Reason
from tests.property import oracle
from tests.property.oracle_platform import Platform, Shape, in_memory, on_disk

CHUNK = 20  # platforms that one process lives through before it reports
STEPS = 60
ON_DISK = 50  # one platform in so many keeps its ledger in a real SQLite file
SHAPES = (
    Shape(),
    Shape(teams=10, nodes=6),
    Shape(teams=4, nodes=2, endless=0),
    Shape(teams=12, nodes=4, preempts=1, endless=0.05),
    Shape(teams=6, nodes=3, limits=False, preempts=1),
)


@dataclass
class Chunk:
    """What one process did since its last report."""

    tally: oracle.Tally = field(default_factory=oracle.Tally)
    platforms: int = 0
    mismatch: str = ""


def live(seed: int, tally: oracle.Tally) -> str:
    """Live through one platform; return a mismatch, or nothing."""
    shape = SHAPES[seed % len(SHAPES)]
    if seed % ON_DISK == 0:
        with on_disk() as make:
            return _steps(seed, Platform(seed, make, shape, tally=tally), STEPS // 3)
    return _steps(seed, Platform(seed, in_memory(), shape, tally=tally), STEPS)


def _steps(seed: int, platform: Platform, steps: int) -> str:
    for step in range(steps):
        try:
            platform.step()
        except AssertionError as error:
            return f"seed {seed}, step {step}: {error}"
    problems = list(platform.ledger.verify())
    return f"seed {seed}: the ledger does not verify: {problems}" if problems else ""


def chunk(first: int) -> Chunk:
    """Live through a chunk of platforms."""
    made = Chunk()
    for seed in range(first, first + CHUNK):
        made.mismatch = live(seed, made.tally)
        made.platforms += 1
        if made.mismatch:
            break
    return made


def _chunks(seed: int) -> Iterator[int]:
    while True:
        yield seed
        seed += CHUNK


def say(line: str) -> None:
    """Show a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run until enough decisions were compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=300_000, help="compare at least so many")
    parser.add_argument("--seed", type=int, default=None, help="the first platform's; drawn when not given")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    seed = random.randrange(10**9) if asked.seed is None else asked.seed
    started, shown = time.monotonic(), 0.0
    whole, platforms, reasons = oracle.Tally(), 0, Counter[Reason]()
    say(f"seed {seed}")
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for done in pool.imap_unordered(chunk, _bounded(seed, asked.decisions)):
            platforms += done.platforms
            whole.decisions += done.tally.decisions
            whole.open += done.tally.open
            whole.admitted += done.tally.admitted
            whole.preemptions += done.tally.preemptions
            reasons.update(done.tally.reasons)
            passed = time.monotonic() - started
            if done.mismatch:
                say(f"MISMATCH after {whole.decisions} decisions: {done.mismatch}")
                return 1
            if passed - shown > 10:
                shown = passed
                say(f"{passed:6.0f} s {whole.decisions:9,} of {asked.decisions:,}")
            if whole.decisions >= asked.decisions:
                break
    say(
        f"{whole.decisions:,} decisions on {platforms:,} platforms agree with the oracle ({whole.admitted:,} starts, "
        f"{whole.preemptions:,} preemptions); {whole.open:,} more hang on a free choice; seed {seed}, {passed:.0f} s"
    )
    say(", ".join(f"{reason.value} {count:,}" for reason, count in sorted(reasons.items())))
    return 0


def _bounded(seed: int, decisions: int) -> Iterator[int]:
    """Yield chunks far beyond what is needed; the pool takes them faster than it lives through them."""
    chunks = _chunks(seed)
    for _ in range(decisions // CHUNK + 10):
        yield next(chunks)


if __name__ == "__main__":
    sys.exit(main())
