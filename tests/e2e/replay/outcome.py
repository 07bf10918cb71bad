"""What must be true when everything has run: once each, and the ledger's GPU time is what the two systems say."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.e2e import kube, slurm
from tests.e2e.replay.trace import Work

TOLERANCE = 0.02

Key = tuple[str, str]  # team, system


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the result."""

    name: str
    objections: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether there is nothing to object to."""
        return not self.objections


def once(jobs: Sequence[Work], records: Sequence[slurm.Job], ran: Mapping[str, int]) -> Verdict:
    """Find one record of each job that completed without a restart, and one line of its script."""
    found: dict[str, list[slurm.Job]] = {}
    for record in records:
        found.setdefault(record.name, []).append(record)
    wrong = []
    for work in jobs:
        of_work = found.get(work.name, [])
        if len(of_work) != 1:
            wrong.append(f"job {work.name} has {len(of_work)} Slurm jobs")
            continue
        (record,) = of_work
        if (record.state, record.restarts) != ("COMPLETED", 0):
            wrong.append(f"job {work.name} is {record.state} with {record.restarts} restarts")
        if record.gpus != work.gpus:
            wrong.append(f"job {work.name} was allocated {record.gpus} GPUs, asked for {work.gpus}")
        if ran.get(work.name, 0) != 1:
            wrong.append(f"job {work.name} ran {ran.get(work.name, 0)} times")
    return Verdict(f"{len(jobs)} jobs ran exactly once", tuple(wrong))


def pods_once(pods: Sequence[Work], found: Sequence[Mapping[str, Any]]) -> Verdict:
    """Find each pod succeeded, in one container that started once."""
    by_name = {pod["metadata"]["name"]: pod for pod in found}
    wrong = []
    for work in pods:
        pod = by_name.get(work.name)
        if pod is None:
            wrong.append(f"pod {work.name} is gone")
            continue
        restarts = sum(each["restartCount"] for each in pod["status"].get("containerStatuses") or [])
        if (pod["status"]["phase"], restarts) != ("Succeeded", 0):
            wrong.append(f"pod {work.name} is {pod['status']['phase']} with {restarts} restarts")
    return Verdict(f"{len(pods)} pods ran exactly once", tuple(wrong))


def one_grant(expected: int, entries: Sequence[Mapping[str, Any]]) -> Verdict:
    """Find one grant for each workload in the journal, and its end."""
    steps: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry["workload"] and entry["step"] in ("reserve", "release", "void"):
            steps.setdefault(entry["workload"], Counter())[entry["step"]] += 1
    wrong = [
        f"{workload}: {dict(counts)}" for workload, counts in steps.items() if counts != {"reserve": 1, "release": 1}
    ]
    if len(steps) != expected:
        wrong.append(f"{len(steps)} workloads were granted, {expected} were submitted")
    return Verdict(f"{expected} workloads have one grant each in the ledger, and its end", tuple(wrong))


def job_gpu_ms(jobs: Sequence[Work], records: Sequence[slurm.Job]) -> Counter[Key]:
    """Sum AllocTRES over Slurm's own start and end times."""
    teams = {work.name: work.tenant.team for work in jobs}
    sums: Counter[Key] = Counter()
    for record in records:
        if record.name in teams and record.started_ms is not None and record.ended_ms is not None:
            sums[teams[record.name], "slurm"] += record.gpus * (record.ended_ms - record.started_ms)
    return sums


def pod_gpu_ms(pods: Sequence[Work], found: Sequence[Mapping[str, Any]]) -> Counter[Key]:
    """Sum devices over the container's start and end times, as the kubelet reports them."""
    teams = {work.name: work.tenant.team for work in pods}
    sums: Counter[Key] = Counter()
    for pod in found:
        name = pod["metadata"]["name"]
        statuses = pod["status"].get("containerStatuses") or []
        ends = [status["state"].get("terminated") for status in statuses]
        if name in teams and ends and all(ends):
            span_ms = max(_ms(end["finishedAt"]) for end in ends) - min(_ms(end["startedAt"]) for end in ends)
            sums[teams[name], "kubernetes"] += kube.gpus(dict(pod)) * span_ms
    return sums


def ledger_gpu_ms(usage: Mapping[str, Any]) -> Counter[Key]:
    """Read `sbridge usage --output json`."""
    sums: Counter[Key] = Counter()
    for row in usage["items"]:
        sums[row["team"], row["system"]] += row["gpu_ms"]
    return sums


def equal(ledger: Mapping[Key, int], seen: Mapping[Key, int]) -> Verdict:
    """Compare per team and system."""
    wrong = []
    for key in sorted(set(ledger) | set(seen)):
        mine, theirs = ledger.get(key, 0), seen.get(key, 0)
        if abs(mine - theirs) > TOLERANCE * theirs:
            wrong.append(f"{key[0]} in {key[1]}: ledger {mine / 1000:.1f} GPU·s, the system itself {theirs / 1000:.1f}")
    return Verdict(f"GPU time of the ledger is that of the systems within {TOLERANCE:.0%}", tuple(wrong))


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
