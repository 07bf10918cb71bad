"""One workload explained, from one beat: what the pass that decided said of it, and who holds what it waits for. Pure.

Numbers are the decision's own (`Waiting.numbers`); what they leave out is left out here as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bridge.admission.model import Earmark
from bridge.api.views import Explain, Holder, Moment, Place, QueueRow, Reclaim, State, Victim
from bridge.controller import earmarks
from bridge.controller.cycle import Beat
from bridge.ledger.port import Entry
from bridge.quota.model import TeamName
from bridge.quota.tree import Tree
from bridge.workloads.model import Grant, System, WorkloadId
from bridge.workloads.reasons import Reason, Waiting

MOST_SHOWN: Final = 20
"""Workloads in the way that are named, the largest first."""

_HOLDING: Final = (State.GRANTED, State.RUNNING, State.ENDING)
_TOLD: Final = {
    "reserve": "granted",
    "run": "running",
    "adopt": "adopted",
    "release": "ended",
    "void": "grant withdrawn",
    "intent": "intent recorded",
    "settle": "intent settled",
}


def explain(
    beat: Beat, row: QueueRow, rows: Sequence[QueueRow], history: Sequence[Entry], grant: Grant | None
) -> Explain:
    """Explain the workload of `row`; `rows` are all of the queue, `history` its entries, `grant` its newest one."""
    why = beat.plan.waits.get(WorkloadId(row.id))
    numbers = dict(why.numbers) if why else {}
    scope = _scope(beat.world.settings.tree, why)
    known = [row for row in rows if row.state in _HOLDING]
    blocking = [each for each in known if each.flavor == row.flavor and each.id != row.id and each.team in scope]
    submitted = Moment(at_ms=row.submitted_ms, what="submitted", text=f"{row.gpus} {row.flavor} by {row.user}")
    return Explain(
        workload=row,
        attempt=max((entry.attempt or 0 for entry in history), default=0),
        numbers=numbers,
        binding=str(numbers.get("binding", "")),
        place=_place(numbers),
        earliest_ms=_whole(numbers, "earliest_ms"),
        earliest_unknown=str(numbers.get("earliest_unknown", "")),
        would_start=str(numbers.get("would_start", "")),
        could_fit=_could_fit(why),
        holders=_holders(blocking) if why else (),
        held_by=tuple(sorted(blocking, key=lambda each: (-each.gpus, each.id))[:MOST_SHOWN]) if why else (),
        reclaim=_reclaim(beat, WorkloadId(row.id)),
        preempted=_preempted(beat, row, grant),
        placement={str(node): gpus for node, gpus in grant.placement.items()} if grant else {},
        timeline=(submitted, *(moment(entry) for entry in history)),
    )


def moment(entry: Entry) -> Moment:
    """Tell a journal entry as a line of history."""
    return Moment(at_ms=entry.at_ms, what=_TOLD.get(entry.step, entry.step), text=_text(entry))


def _scope(tree: Tree, why: Waiting | None) -> frozenset[TeamName]:
    """Return the teams whose work is in the way: below the tree node that binds, or all when nodes are short."""
    binding = TeamName(str(why.numbers.get("binding", ""))) if why is not None else None
    if binding not in tree:
        return frozenset({*tree.teams})
    return frozenset(team for team in tree.teams if binding in tree.path(team))


def _holders(blocking: Iterable[QueueRow]) -> tuple[Holder, ...]:
    sums: dict[tuple[str, System, str], tuple[int, int]] = {}
    for row in blocking:
        key = (row.team, row.system, row.flavor)
        gpus, count = sums.get(key, (0, 0))
        sums[key] = (gpus + row.gpus, count + 1)
    return tuple(
        Holder(team=team, system=system, flavor=flavor, gpus=gpus, workloads=count)
        for (team, system, flavor), (gpus, count) in sorted(sums.items())
    )


def _place(numbers: Mapping[str, int | str]) -> Place | None:
    position, of = _whole(numbers, "position"), _whole(numbers, "queue")
    return None if position is None or of is None else Place(position=position, of=of)


def _whole(numbers: Mapping[str, int | str], name: str) -> int | None:
    value = numbers.get(name)
    return value if isinstance(value, int) else None


def _could_fit(why: Waiting | None) -> int | None:
    """Return the most GPUs that a request which is too large could have asked for, in its own shape if that can be."""
    if why is None:
        return None
    if why.reason is Reason.NEVER_FITS_QUOTA:
        return _whole(why.numbers, "ceiling")
    if why.reason is not Reason.NEVER_FITS_NODES:
        return None
    nodes, share = _whole(why.numbers, "nodes_large_enough"), _whole(why.numbers, "asks_gpus_per_node")
    return nodes * share if nodes and share else _whole(why.numbers, "largest")


def _reclaim(beat: Beat, workload: WorkloadId) -> Reclaim | None:
    for intent in earmarks.under_way(beat.world.intents.values()):
        if intent.workload == workload:
            return _told(earmarks.earmark_of(intent))
    return None


def _preempted(beat: Beat, row: QueueRow, grant: Grant | None) -> Reclaim | None:
    if grant is None or row.state not in _HOLDING:
        return None
    for intent in earmarks.under_way(beat.world.intents.values()):
        earmark = earmarks.earmark_of(intent)
        if any((v.workload, v.attempt) == (grant.workload, grant.attempt) for v in earmark.victims):
            return _told(earmark)
    return None


def _told(earmark: Earmark) -> Reclaim:
    sums: dict[str, tuple[int, int]] = {}
    for victim in earmark.victims:
        gpus, count = sums.get(victim.team, (0, 0))
        sums[victim.team] = (gpus + victim.gpus, count + 1)
    victims = tuple(Victim(team=team, gpus=gpus, workloads=count) for team, (gpus, count) in sorted(sums.items()))
    return Reclaim(
        team=earmark.team,
        gpus=earmark.gpus,
        since_ms=earmark.since_ms,
        until_ms=earmark.lapses_ms,
        victims=victims,
    )


def _text(entry: Entry) -> str:
    """Say where and how many, or why, or which intent came to what."""
    detail = entry.detail
    placement = detail.get("placement")
    if isinstance(placement, Mapping) and placement:
        where = ", ".join(f"{gpus} on {node}" for node, gpus in sorted(placement.items()))
        return f"{entry.flavor}: {where}"
    told = [str(detail[key]) for key in ("note", "text", "id", "outcome") if detail.get(key)]
    return ": ".join(told)
