"""An independent check of a simulation: everything from the event log and the trace's own rows, without the bridge.

Run by itself, it compares a summary with an event log: `python tests/unit/simulate_check.py JSON EVENTS JOBS.csv`.
"""

import csv
import json
import math
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Told:
    """One policy, as its events tell it. Times in milliseconds."""

    first: int = 0
    last_submit: int = 0
    last: int = 0
    refused: set[str] = field(default_factory=set)
    waits: dict[str, int] = field(default_factory=dict)  # of each job that ended
    team: dict[str, str] = field(default_factory=dict)
    held: list[tuple[int, int, int]] = field(default_factory=list)  # devices, from, to
    requeues: int = 0
    problems: list[str] = field(default_factory=list)


def replay(events: Path, durations: dict[str, int], nodes: dict[str, int]) -> dict[str, Told]:
    """Read an event log; `durations` in ms by workload, `nodes` with their devices."""
    told: dict[str, Told] = defaultdict(Told)
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    with events.open(newline="") as lines:
        for row in csv.DictReader(lines):
            rows[row["policy"]].append(row)
    for policy, its in rows.items():
        _replay(told[policy], its, durations, nodes)
    return dict(told)


def _replay(told: Told, rows: list[dict[str, str]], durations: dict[str, int], nodes: dict[str, int]) -> None:
    submitted: dict[str, int] = {}
    running: dict[str, tuple[int, dict[str, int]]] = {}
    free = dict(nodes)
    order = {"end": 0, "requeue": 0}  # what ends at a moment frees before what starts at it
    for row in sorted(rows, key=lambda row: (int(row["time_ms"]), order.get(row["event"], 1))):
        at, event, name = int(row["time_ms"]), row["event"], row["workload"]
        told.team[name] = row["team"]
        if event == "refuse":
            told.refused.add(name)
        elif event == "submit":
            submitted[name] = at
        elif event == "start":
            if name in running or name not in submitted or name in told.waits:
                told.problems.append(f"{name} starts at {at}, but waits for no start")
            running[name] = (at, _take(told, row, free))
        elif event in order:
            since, places = running.pop(name)
            for node, gpus in places.items():
                free[node] += gpus
            told.held.append((int(row["gpus"]), since, at))
            told.last = max(told.last, at)
            told.requeues += event == "requeue"
            if event == "end":
                told.waits[name] = at - submitted[name] - durations[name]
    told.first, told.last_submit = min(submitted.values(), default=0), max(submitted.values(), default=0)
    told.problems += [f"{name} never ended" for name in submitted.keys() - told.waits.keys()]


def _take(told: Told, row: dict[str, str], free: dict[str, int]) -> dict[str, int]:
    places = {node: int(gpus) for node, _, gpus in (part.partition("=") for part in row["nodes"].split(";"))}
    if sum(places.values()) != int(row["gpus"]):
        told.problems.append(f"{row['workload']} starts on {places}, it asks for {row['gpus']}")
    for node, gpus in places.items():
        free[node] -= gpus
        if free[node] < 0:
            told.problems.append(f"node {node} holds {-free[node]} devices too many at {row['time_ms']}")
    return places


def utilisation(told: Told, gpus: int, to: int) -> float:
    """Return the share of the fleet's time that was held from the first submission on."""
    used = sum(count * max(0, min(end, to) - since) for count, since, end in told.held)
    return used / (gpus * (to - told.first)) if to > told.first else 0.0


def rank(values: list[int], percent: int) -> float:
    """Return the nearest-rank percentile of milliseconds, in seconds."""
    return sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1] / 1000 if values else 0.0


def differences(document: dict[str, Any], told: dict[str, Told]) -> list[str]:
    """Return everything in which a summary and the events differ, and what is impossible in the events."""
    found = [f"{policy}: {problem}" for policy, its in told.items() for problem in its.problems]
    names = [policy["policy"] for policy in document["policies"]]
    everywhere = set.intersection(*(set(told[name].waits) if name in told else set() for name in names))
    for policy in document["policies"]:
        name, its = policy["policy"], told.get(policy["policy"], Told())
        pairs = [
            ("utilisation", policy["whole_run"]["utilisation"], utilisation(its, policy["gpus"], its.last)),
            ("arrivals", policy["arrivals"]["utilisation"], utilisation(its, policy["gpus"], its.last_submit)),
            ("refused", policy["jobs"]["refused"], len(its.refused)),
            ("ran", policy["jobs"]["ran"], len(its.waits)),
            ("victims", policy["preemptions"]["victims"], its.requeues),
        ]
        groups = {"all": policy["waits"]["all"]} | policy["waits"]["by_team"]
        for group, spread in groups.items():
            waits = [wait for job, wait in its.waits.items() if job in everywhere and group in ("all", its.team[job])]
            pairs.append((f"{group} jobs", spread["jobs"], len(waits)))
            pairs += [(f"{group} p{n}", spread[f"p{n}_s"], rank(waits, n)) for n in (50, 95, 99)]
            pairs.append((f"{group} max", spread["max_s"], rank(waits, 100)))
        found += [f"{name} {what}: {said} told, {is_} by events" for what, said, is_ in pairs if abs(said - is_) > 1e-3]
    return found


def durations_of(jobs: Path) -> dict[str, int]:
    """Return run times of a jobs table, in ms, by the names that the simulator gives them: their line numbers."""
    with jobs.open() as lines:
        head = next(lines).strip().split(",")
        rows = [(number, line.strip().split(",")) for number, line in enumerate(lines, 2) if line.strip()]
    return {f"slurm/jobs/{number}": round(float(row[head.index("duration")]) * 1000) for number, row in rows}


if __name__ == "__main__":
    document = json.loads(Path(sys.argv[1]).read_text())
    size, count = document["fleet"]["gpus"] // document["fleet"]["nodes"], document["fleet"]["nodes"]
    fleet = {f"node-{index + 1:0{len(str(count))}}": size for index in range(count)}
    wrong = differences(document, replay(Path(sys.argv[2]), durations_of(Path(sys.argv[3])), fleet))
    sys.stdout.write("\n".join(wrong[:50]) + "\n" if wrong else "the events say the same\n")
    sys.exit(bool(wrong))
