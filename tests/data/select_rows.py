"""Choose the rows that the replay uses out of the two public traces, always the same ones.

    python tests/data/select_rows.py philly.csv openb_default.csv tests/data

Rows are copied as they are; only their order (by time) and number differ from the source.
"""

import argparse
import csv
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

JOBS = 60
PODS = 25
LARGEST = 8  # GPUs of one node of the sandbox
LARGEST_POD = 4
FROM = datetime(2017, 10, 1)  # noqa: DTZ001 - the trace has local wall-clock times; its first weeks are thin
SPAN_S = (3600, 9000)  # what 60 jobs take to arrive when the cluster is neither asleep nor flooded by one script

Row = dict[str, str]


def jobs(rows: Iterable[Row]) -> list[Row]:
    """Return the first 60 jobs in a row of at most 8 GPUs that are a mix: several teams, gangs, and no burst."""
    small = sorted((row for row in rows if int(row["num_gpus"]) <= LARGEST), key=lambda row: row["timestamp"])
    later = [row for row in small if datetime.fromisoformat(row["timestamp"]) >= FROM]
    return _first(later, JOBS, _is_mixed)


def pods(rows: Iterable[Row]) -> list[Row]:
    """Return the first 25 GPU pods in a row, of at most 4 GPUs, that ended and of which two ask for several GPUs."""
    ended = [row for row in rows if row["deletion_time"] and 0 < int(row["num_gpu"]) <= LARGEST_POD]
    ended.sort(key=lambda row: int(row["creation_time"]))
    return _first(ended, PODS, lambda window: sum(int(row["num_gpu"]) > 1 for row in window) > 1)


def _is_mixed(window: Sequence[Row]) -> bool:
    times = [datetime.fromisoformat(row["timestamp"]) for row in window]
    sizes = [int(row["num_gpus"]) for row in window]
    span_s = (times[-1] - times[0]).total_seconds()
    return (
        SPAN_S[0] <= span_s <= SPAN_S[1]
        and len({row["cluster"] for row in window}) >= 5
        and sum(size == LARGEST for size in sizes) >= 3
        and sum(1 < size < LARGEST for size in sizes) >= 6
    )


def _first(rows: Sequence[Row], count: int, wanted: Callable[[Sequence[Row]], bool]) -> list[Row]:
    for start in range(len(rows) - count + 1):
        window = rows[start : start + count]
        if wanted(window):
            return list(window)
    raise SystemExit(f"no {count} rows in a row are the mix that is wanted; is this the right file?")


def _read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Write philly_60.csv and openb_25.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("philly", type=Path)
    parser.add_argument("openb", type=Path)
    parser.add_argument("into", type=Path)
    arguments = parser.parse_args()
    _write(arguments.into / "philly_60.csv", jobs(_read(arguments.philly)))
    _write(arguments.into / "openb_25.csv", pods(_read(arguments.openb)))


if __name__ == "__main__":
    main()
