"""The numbers of a run. Pure: integers where something is counted, seconds and shares only where they are shown.

wait: from submission to end, less the run time. So the work that a preempted job had to do again, and its grace,
count as waiting, too. Comparisons between policies use the jobs that every policy could run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.simulate.model import Job
from bridge.simulate.outcome import Outcome
from bridge.workloads.model import System, WorkloadId

SIZES: Final = ((1, 1, "1"), (2, 7, "2-7"), (8, 8, "8"), (9, 32, "9-32"), (33, 10**9, "33+"))
"""Size classes of jobs: from and to how many GPUs."""

GANG: Final = 9
"""GPUs from which a job is a gang: with nodes of eight, on several of them."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One job's waiting time, and how long until it first started."""

    job: Job
    wait_ms: int
    first_start_ms: int  # since its submission
    preempted: int  # how often


def waits(outcome: Outcome) -> list[Wait]:
    """Return the wait of each job that ended, by submission."""
    first: dict[int, int] = {}
    ended: dict[int, int] = {}
    times: dict[int, int] = {}
    for each in outcome.stretches:
        first[each.job] = min(first.get(each.job, each.from_ms), each.from_ms)
        if each.preempted:
            times[each.job] = times.get(each.job, 0) + 1
        else:
            ended[each.job] = each.to_ms
    found = []
    for index in sorted(ended):
        job = outcome.case.work[index][0]
        wait_ms = ended[index] - job.submitted_ms - job.duration_ms
        found.append(Wait(job, wait_ms, first[index] - job.submitted_ms, times.get(index, 0)))
    return found


def by_team(told: Iterable[Wait], teams: Iterable[str]) -> dict[str, list[int]]:
    """Return the waits of each team, in milliseconds."""
    found: dict[str, list[int]] = {team: [] for team in teams}
    for wait in told:
        found.setdefault(wait.job.team, []).append(wait.wait_ms)
    return found


def by_size(told: Iterable[Wait]) -> dict[str, list[int]]:
    """Return the waits of each size class, in milliseconds."""
    found: dict[str, list[int]] = {name: [] for *_, name in SIZES}
    for wait in told:
        found[size_of(wait.job.gpus)].append(wait.wait_ms)
    return found


def size_of(gpus: int) -> str:
    """Return the name of a job's size class."""
    return next(name for least, most, name in SIZES if least <= gpus <= most)


def quantile(ordered: Sequence[int], percent: int) -> int:
    """Return the value that `percent` of 100 are not above (nearest rank); 0 of nothing."""
    if not ordered:
        return 0
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def spread(values: Iterable[int]) -> dict[str, Any]:
    """Return count, p50, p95, p99, max and mean of times in milliseconds, in seconds."""
    ordered = sorted(values)
    mean = sum(ordered) // len(ordered) if ordered else 0
    return {
        "jobs": len(ordered),
        "p50_s": _s(quantile(ordered, 50)),
        "p95_s": _s(quantile(ordered, 95)),
        "p99_s": _s(quantile(ordered, 99)),
        "max_s": _s(ordered[-1] if ordered else 0),
        "mean_s": _s(mean),
    }


def used(outcome: Outcome, from_ms: int, to_ms: int) -> dict[str, Any]:
    """Return the GPU time of a window: what was there, used, lost and idle. The three add up to what was there.

    Lost is what preempted jobs had to do again; of an attempt, the lost part is its end.
    """
    length_ms = max(0, to_ms - from_ms)
    available = outcome.case.gpus * length_ms
    held = lost = 0
    by_system = dict.fromkeys(System, 0)
    for each in outcome.stretches:
        workload = outcome.case.work[each.job][1]
        gpu_ms = workload.gpus * _overlap(each.from_ms, each.to_ms, from_ms, to_ms)
        held += gpu_ms
        by_system[workload.system] += gpu_ms
        lost += workload.gpus * _overlap(each.from_ms + each.kept_ms, each.to_ms, from_ms, to_ms)
    return {
        "from_ms": from_ms,
        "to_ms": to_ms,
        "available_gpu_h": _h(available),
        "useful_gpu_h": _h(held - lost),
        "lost_gpu_h": _h(lost),
        "idle_gpu_h": _h(available - held),
        "utilisation": round(held / available, 6) if available else 0.0,
        "useful_share": round((held - lost) / available, 6) if available else 0.0,
        "gpu_h_by_system": {system.value: _h(gpu_ms) for system, gpu_ms in by_system.items()},
    }


def of(outcome: Outcome, comparable: frozenset[WorkloadId]) -> dict[str, Any]:
    """Return everything about one policy. `comparable`: the jobs that every policy could run."""
    told = [wait for wait in waits(outcome) if wait.job.id in comparable]
    case = outcome.case
    teams = sorted({*case.guarantees, *(job.team for job, _ in case.work)})
    return {
        "policy": case.policy.value,
        "gpus": case.gpus,
        "guarantees": {team: case.guarantees.get(team, 0) for team in teams},
        "whole_run": used(outcome, outcome.first_ms, outcome.last_ms),
        "arrivals": used(outcome, outcome.first_ms, outcome.arrivals_end_ms),
        "makespan_s": _s(outcome.last_ms - outcome.first_ms),
        "jobs": {
            "ran": len({each.job for each in outcome.stretches if not each.preempted}),
            "refused": len(case.refused),
            "never_started": len(outcome.stranded),
        },
        "refused": _refused(outcome),
        "never_started": [{"workload": each.workload, "why": each.why} for each in outcome.stranded[:20]],
        "waits": {
            "all": spread(wait.wait_ms for wait in told),
            "first_start": spread(wait.first_start_ms for wait in told),
            "by_team": {team: spread(each) for team, each in by_team(told, teams).items()},
            "by_size": {size: spread(each) for size, each in by_size(told).items()},
        },
        "preemptions": _preemptions(outcome),
        "planner": {
            "passes": outcome.passes,
            "admissions": outcome.decisions,
            "ledger_entries": outcome.ledger_entries,
        },
        "notes": list(case.notes),
    }


def _refused(outcome: Outcome) -> list[dict[str, Any]]:
    """Return why jobs were refused, with how many and how much work that is."""
    groups: dict[str, list[Job]] = {}
    for each in outcome.case.refused:
        groups.setdefault(each.why, []).append(each.job)
    return [
        {"why": why, "jobs": len(jobs), "gpu_h": _h(sum(job.gpu_ms for job in jobs)), "first": jobs[0].id}
        for why, jobs in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    ]


def _preemptions(outcome: Outcome) -> dict[str, Any]:
    pairs: dict[tuple[str, str], list[int]] = {}
    for each in outcome.taken:
        sums = pairs.setdefault((each.for_team, each.from_team), [0, 0, 0])
        sums[0] += 1
        sums[1] += each.gpus
        sums[2] += each.lost_gpu_ms
    return {
        "reclaims": outcome.preemptions,
        "lapsed": outcome.lapsed,
        "victims": len(outcome.taken),
        "victim_gpus": sum(each.gpus for each in outcome.taken),
        "lost_gpu_h": _h(sum(each.lost_gpu_ms for each in outcome.taken)),
        "pairs": [
            {"for": pair[0], "from": pair[1], "victims": sums[0], "gpus": sums[1], "lost_gpu_h": _h(sums[2])}
            for pair, sums in sorted(pairs.items(), key=lambda entry: (-entry[1][2], entry[0]))
        ],
    }


def _overlap(from_ms: int, to_ms: int, window_from_ms: int, window_to_ms: int) -> int:
    return max(0, min(to_ms, window_to_ms) - max(from_ms, window_from_ms))


def _s(milliseconds: int) -> float:
    return round(milliseconds / 1000, 3)


def _h(gpu_ms: int) -> float:
    return round(gpu_ms / 3_600_000, 3)
