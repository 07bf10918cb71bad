"""Conditions for a status: the transition time moves only when the truth of a condition changes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bridge.crd.model import ConditionStatus

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fact:
    """What is seen now, before it is stamped."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""


def merged(present: Iterable[Object], facts: Iterable[Fact], *, generation: int, now_ms: int) -> list[Object]:
    """Return the conditions to write: `facts` only, sorted by type.

    A fact equal to what is present comes back byte for byte, so an unchanged world makes no write.
    """
    before = {condition["type"]: condition for condition in present}
    result = []
    for fact in sorted(facts, key=lambda fact: fact.type):
        old = before.get(fact.type, {})
        same = old.get("status") == fact.status.value and "lastTransitionTime" in old
        result.append(
            {
                "type": fact.type,
                "status": fact.status.value,
                "reason": fact.reason,
                "message": fact.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else stamp(now_ms),
            }
        )
    return result


def stamp(now_ms: int) -> str:
    """Format a time as metav1.Time does: whole seconds, UTC."""
    return datetime.fromtimestamp(now_ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
