"""Rows of the two traces as work for the sandbox: what is submitted, when, by whom, and for how long it runs. Pure.

Times are divided by one number per trace, so that the arrivals span `span_s`; what would then run shorter or longer
than the bounds runs for the bound. A virtual cluster belongs to a team: they are dealt out so that both are busy.
Pods of the openb trace name no tenant: odd and even ones are dealt out. A pod that asked for a part of a GPU gets a
whole one (amounts are whole devices); those of class BE go to the scarcer flavor.
"""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team of the sandbox with its one user."""

    team: str
    user: str


@dataclass(frozen=True, slots=True)
class Work:
    """One job or pod to submit."""

    name: str
    at_s: float
    run_s: int
    gpus: int
    tenant: Tenant
    product: str = ""  # a pod's GPU model


@dataclass(frozen=True, slots=True)
class Scale:
    """How a trace is shortened."""

    span_s: float
    shortest_s: int
    longest_s: int

    def run_s(self, trace_s: float, factor: float) -> int:
        """Shorten one duration."""
        return min(self.longest_s, max(self.shortest_s, round(trace_s / factor)))


TENANTS = (Tenant("vision", "alice"), Tenant("nlp", "bob"))
LARGEST = 8
PRODUCTS = {"BE": "A100"}


def read(path: Path) -> list[Row]:
    """Read a trace file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def jobs(rows: Sequence[Row], scale: Scale, prefix: str) -> list[Work]:
    """Turn Philly rows into Slurm jobs."""
    rows = sorted((row for row in rows if int(row["num_gpus"]) <= LARGEST), key=lambda row: row["timestamp"])
    times = [datetime.fromisoformat(row["timestamp"]).timestamp() for row in rows]
    factor = max(1.0, (times[-1] - times[0]) / scale.span_s)
    tenants = _tenants(rows, scale, factor)
    return [
        Work(
            name=f"{prefix}-j{index:02}",
            at_s=(time - times[0]) / factor,
            run_s=scale.run_s(float(row["duration"]), factor),
            gpus=int(row["num_gpus"]),
            tenant=tenants[row["cluster"]],
        )
        for index, (row, time) in enumerate(zip(rows, times, strict=True))
    ]


def pods(rows: Sequence[Row], scale: Scale, prefix: str) -> list[Work]:
    """Turn openb rows into pods."""
    rows = sorted((row for row in rows if int(row["num_gpu"]) > 0), key=lambda row: int(row["creation_time"]))
    times = [int(row["creation_time"]) for row in rows]
    factor = max(1.0, (times[-1] - times[0]) / scale.span_s)
    return [
        Work(
            name=f"{prefix}-p{index:02}",
            at_s=(time - times[0]) / factor,
            run_s=scale.run_s(int(row["deletion_time"]) - time, factor),
            gpus=int(row["num_gpu"]),
            tenant=TENANTS[index % len(TENANTS)],
            product=PRODUCTS.get(row["qos"], ""),
        )
        for index, (row, time) in enumerate(zip(rows, times, strict=True))
    ]


def _tenants(rows: Sequence[Row], scale: Scale, factor: float) -> dict[str, Tenant]:
    """Deal the virtual clusters out by what they will hold here: the largest first, each to the team with least."""
    demand: Counter[str] = Counter()
    for row in rows:
        demand[row["cluster"]] += scale.run_s(float(row["duration"]), factor) * int(row["num_gpus"])
    given = dict.fromkeys(TENANTS, 0)
    tenants = {}
    for cluster in sorted(demand, key=lambda cluster: (-demand[cluster], cluster)):
        tenants[cluster] = min(TENANTS, key=lambda tenant: given[tenant])
        given[tenants[cluster]] += demand[cluster]
    return tenants
