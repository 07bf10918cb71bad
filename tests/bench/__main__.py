"""`make bench`: figures of ledger and planner without a cluster.

    python -m tests.bench [--output json] [--only a,b,c] [--tenth]

 a   15,000 workloads of 30 teams in 5 groups, the shape of Kueue's published baseline
 b   50,000 workloads of 1,000 teams in 50 groups
 c   5,000 nodes, full, with 50,000 workloads waiting: cycles without a change, and with 100 changes each

A decision is one grant: decided by the desk, reserved in the ledger, later run and released. Each cycle's records are
one transaction of a SQLite file (WAL, synchronous=FULL). Every part runs at a quarter of its size and whole, each in
a process of its own. Figures depend on the machine and are judged by nobody but the reader; the exit code is 1 only
when an answer is wrong: a workload not granted exactly once per attempt, a node or a quota overdrawn, a ledger that
does not verify.
"""
# ruff: noqa: T201 -- it talks to a person in a terminal

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench import standing, throughput
from tests.bench.audit import WrongAnswerError
from tests.bench.figures import sync_ms
from tests.bench.fleets import fleet
from tests.bench.table import table

PARTS: Final = ("a", "b", "c")
QUARTER: Final = 4
SMALL: Final = 10
LONGEST_S: Final = 3_600
CYCLES: Final = 200


def main() -> int:
    """Measure each part in its own process, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, e.g. a,c")
    parser.add_argument("--tenth", action="store_true", help="a tenth of every size, for a quick look")
    parser.add_argument("--folder", type=Path, help="where the ledgers are written (default: a temporary folder)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        if given.part:
            return alone(given.part, given.share, Path(folder))
        parts = [part for part in given.only.split(",") if part]
        if unknown := set(parts) - set(PARTS):
            parser.error(f"--only {given.only}: no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
        return together(parts, given, Path(folder))


def together(parts: Sequence[str], given: argparse.Namespace, folder: Path) -> int:
    """Run every part at both sizes, one process after the other."""
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "disk_sync_ms": sync_ms(folder)}
    result: dict[str, Any] = {"machine": machine}
    whole = SMALL if given.tenth else 1
    for part in parts:
        result[part] = {}
        for name, share in (("quarter", whole * QUARTER), ("whole", whole)):
            print(f"part {part}, {name} ...", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "tests.bench", "--part", part, "--share", str(share)]
            command += ["--folder", str(folder)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=LONGEST_S)
            if done.returncode != 0:
                print(f"bench: part {part}, {name}: exit code {done.returncode}", file=sys.stderr)
                return 1
            result[part][name] = json.loads(done.stdout)
            print(done.stdout.strip(), file=sys.stderr, flush=True)  # an interrupted run has not been for nothing
    print(json.dumps(result, indent=2) if given.output == "json" else table(result))
    return 0


def alone(part: str, share: int, folder: Path) -> int:
    """Measure one part in this process and print its figures as JSON. `share`: 1 whole, 4 a quarter."""
    try:
        match part:
            case "a":
                figures = throughput.measure(fleet(groups=5, teams=6, per_team=500 // share, guarantee=20), folder)
            case "b":
                groups = max(1, 50 // share)
                figures = throughput.measure(fleet(groups=groups, teams=20, per_team=50, guarantee=20), folder)
            case _:
                figures = _standing(share, folder)
    except WrongAnswerError as error:
        print(f"bench: part {part}: WRONG: {error}", file=sys.stderr)
        return 1
    print(json.dumps(figures))
    return 0


def _standing(share: int, folder: Path) -> dict[str, Any]:
    groups = max(1, 50 // share)
    full = fleet(groups=groups, teams=20, per_team=100, guarantee=40, nodes=5_000 // share, ranked=False)
    return standing.measure(full, folder, waiting=50_000 // share, cycles=CYCLES)


if __name__ == "__main__":
    sys.exit(main())
