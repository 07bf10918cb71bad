"""Prometheus text format (0.0.4) from the views. Sums only, no names of people or workloads. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

from bridge.api.views import ACTIVE, NodeRow, QueueRow, QuotaRow, StatusView
from bridge.workloads.reasons import Reason

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]


def render(status: StatusView, nodes: Iterable[NodeRow], quota: Iterable[QuotaRow], queue: Iterable[QueueRow]) -> str:
    """Write every family, each with its help and type."""
    nodes, quota, queue = tuple(nodes), tuple(quota), [row for row in queue if row.state in ACTIVE]
    workloads: Counter[tuple[str, str, str]] = Counter()
    gpus: Counter[tuple[str, str, str]] = Counter()
    for row in queue:
        key = (row.team, str(row.state), str(row.reason or ""))
        workloads[key] += 1
        gpus[key] += row.gpus
    families: tuple[tuple[str, str, str, list[Sample]], ...] = (
        ("cycles_total", "counter", "Cycles since the start.", [({}, status.cycles)]),
        ("cycle_seconds", "gauge", "Duration of the last cycle.", [({}, status.last_cycle_ms / 1000)]),
        ("leader", "gauge", "1 when this process leads.", [({}, status.leading)]),
        ("epoch", "gauge", "Epoch of the leader.", [({}, status.epoch)]),
        ("problems", "gauge", "Things a person should look at.", [({}, len(status.problems))]),
        ("system_up", "gauge", "1 when the system can be read.", _health(status)),
        ("ledger_seq", "counter", "Newest journal entry.", [({}, status.ledger_seq)]),
        ("queue_workloads", "gauge", "Workloads that are not over.", _queue(workloads)),
        ("queue_gpus", "gauge", "GPUs that they ask for or hold.", _queue(gpus)),
        ("waiting", "gauge", "Workloads that have not started, by the reason that they are told.", _waiting(queue)),
        ("node_gpus", "gauge", "GPUs of a node, each in one column.", _nodes(nodes)),
        ("quota_used_gpus", "gauge", "GPUs that the team itself holds.", _used(quota)),
        ("quota_guarantee_gpus", "gauge", "Guarantee of the team.", _guarantee(quota)),
        ("quota_limit_gpus", "gauge", "Limit of the team's subtree, where it has one.", _limit(quota)),
    )
    return "".join(_family(*family) for family in families)


def _health(status: StatusView) -> list[Sample]:
    found: list[Sample] = [({"system": "kubernetes", "name": status.kubernetes.name}, status.kubernetes.ok)]
    return found + [({"system": "slurm", "name": each.name}, each.ok) for each in status.slurm]


def _queue(counts: Mapping[tuple[str, str, str], int]) -> list[Sample]:
    return [
        ({"team": team, "state": state, "reason": reason}, value)
        for (team, state, reason), value in sorted(counts.items())
    ]


def _waiting(queue: Iterable[QueueRow]) -> list[Sample]:
    """Count by reason; every reason is there, so that a rise from nothing shows."""
    counts = Counter(row.reason for row in queue)
    return [({"reason": reason.value}, counts[reason]) for reason in Reason]


def _nodes(nodes: Iterable[NodeRow]) -> list[Sample]:
    columns = ("worker", "pods", "unmanaged", "idle", "unavailable")
    return [
        ({"node": row.node, "flavor": row.flavor, "column": column}, getattr(row, column))
        for row in nodes
        for column in columns
    ]


def _used(quota: Iterable[QuotaRow]) -> list[Sample]:
    found: list[Sample] = []
    for row in quota:
        found.append(({"team": row.team, "flavor": row.flavor, "system": "slurm"}, row.used_slurm))
        found.append(({"team": row.team, "flavor": row.flavor, "system": "kubernetes"}, row.used_kubernetes))
    return found


def _guarantee(quota: Iterable[QuotaRow]) -> list[Sample]:
    return [({"team": row.team, "flavor": row.flavor}, row.guarantee) for row in quota]


def _limit(quota: Iterable[QuotaRow]) -> list[Sample]:
    return [({"team": row.team, "flavor": row.flavor}, row.limit) for row in quota if row.limit is not None]


def _family(suffix: str, kind: str, help_: str, samples: Iterable[Sample]) -> str:
    name = f"slurmbridge_{suffix}"
    lines = [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value + 0!r}" for labels, value in samples]  # True + 0 is 1
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
