"""Earmarks as the ledger keeps them: intents of kind `preempt`, one for each try of a workload. Pure.

A try ends as `started` (the workload was granted), `gone` (nobody asks any more), or `lapsed: ...` (not in time).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from bridge.admission.model import Earmark, Victim
from bridge.ledger.port import Intent
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import NodeName, WorkloadId

KIND: Final = "preempt"
SIGNAL_KIND: Final = "signal"
STARTED: Final = "started"
GONE: Final = "gone"
LAPSED: Final = "lapsed"

FIRST_PAUSE_MS: Final = 30_000
"""After a try that lapsed, the next one waits this long; after each further one in a row, twice as long as before."""

LONGEST_PAUSE_MS: Final = 3_600_000


def intent_of(earmark: Earmark, number: int) -> Intent:
    """Return the record of an earmark; `number` counts the workload's tries from 1."""
    detail = {
        "team": earmark.team,
        "flavor": earmark.flavor,
        "placement": dict(earmark.placement),
        "victims": [asdict(victim) for victim in earmark.victims],
        "lapses_ms": earmark.lapses_ms,
    }
    return Intent(f"{KIND}/{earmark.workload}/{number:06d}", KIND, earmark.workload, earmark.since_ms, detail)


def earmark_of(intent: Intent) -> Earmark:
    """Read a record back."""
    detail: Mapping[str, Any] = intent.detail
    return Earmark(
        workload=intent.workload,
        team=TeamName(detail["team"]),
        flavor=FlavorName(detail["flavor"]),
        placement={NodeName(node): int(gpus) for node, gpus in detail["placement"].items()},
        victims=tuple(_victim(told) for told in detail["victims"]),
        since_ms=intent.at_ms,
        lapses_ms=int(detail["lapses_ms"]),
    )


def tries(intents: Iterable[Intent]) -> dict[WorkloadId, list[Intent]]:
    """Return every workload's tries, oldest first."""
    found: dict[WorkloadId, list[Intent]] = {}
    for intent in sorted((i for i in intents if i.kind == KIND), key=lambda i: i.id):
        found.setdefault(intent.workload, []).append(intent)
    return found


def under_way(intents: Iterable[Intent]) -> Iterator[Intent]:
    """Yield the tries that are not over, in the order of their ids."""
    yield from sorted((i for i in intents if i.kind == KIND and i.settled_ms is None), key=lambda i: i.id)


def signal_id(intent: Intent, victim: Victim) -> str:
    """Name the record of the signal that a victim gets in this try: its settling is when the grace began."""
    return f"{SIGNAL_KIND}/{intent.id}/{victim.workload}"


def pause_ends_ms(earlier: list[Intent]) -> int:
    """Return when a workload with these tries may have another one; 0: at once."""
    in_a_row = 0
    for intent in reversed(earlier):
        if not intent.outcome.startswith(LAPSED):
            break
        in_a_row += 1
    if not in_a_row:
        return 0
    pause_ms = min(FIRST_PAUSE_MS << min(in_a_row - 1, 20), LONGEST_PAUSE_MS)
    return (earlier[-1].settled_ms or 0) + pause_ms


def why(earmark: Earmark, victim: Victim) -> str:
    """Say to a victim's owner why it makes way."""
    if victim.team == earmark.team:
        return f"preempted: work of higher priority in team {earmark.team} takes its place"
    return f"preempted: team {earmark.team} takes back its guarantee ({earmark.gpus} {earmark.flavor})"


def reasons(intents: Iterable[Intent]) -> dict[tuple[WorkloadId, int], str]:
    """Return why each attempt that is a victim of a try under way makes way."""
    found: dict[tuple[WorkloadId, int], str] = {}
    for intent in under_way(intents):
        earmark = earmark_of(intent)
        for victim in earmark.victims:
            found[victim.workload, victim.attempt] = why(earmark, victim)
    return found


def _victim(told: Mapping[str, Any]) -> Victim:
    return Victim(
        workload=WorkloadId(told["workload"]),
        attempt=int(told["attempt"]),
        team=TeamName(told["team"]),
        gpus=int(told["gpus"]),
        grace_ms=int(told["grace_ms"]),
        lost_gpu_ms=int(told["lost_gpu_ms"]),
    )
