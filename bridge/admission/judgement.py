"""May this workload start now, and if not, what stands in its way? Pure.

The one procedure behind every decision: a pass asks it for each workload in turn, and an explanation asks it again
at the state that the pass left behind. Within a pass quota and nodes only shrink and keepers are only added, so what
is blocked stays blocked.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bridge.admission.keeping import Keeper, Trials
from bridge.admission.queues import Shape, limit_ms
from bridge.admission.racks import NOWHERE
from bridge.admission.section import Section
from bridge.admission.supply import Placement
from bridge.workloads.model import NodeName, Workload
from bridge.workloads.reasons import Reason


class Verdict(NamedTuple):
    """The answer for one workload. Without a placement, `reason` says what blocks it."""

    reason: Reason
    within: bool  # its start would leave its team within its own guarantee
    placement: Placement | None = None
    behind: Keeper | None = None  # for whom what it needs is kept
    closed: frozenset[NodeName] = NOWHERE  # nodes kept for others
    bound_ms: int | None = None  # a workload of this shape could still pass with a time limit of at most this
    passes_ms: int | None = None  # until then it ends before somebody's earliest start


def judge(
    section: Section,
    workload: Workload,
    shape: Shape,
    keepers: Sequence[Keeper],
    now_ms: int,
    trials: Trials | None = None,
) -> Verdict:
    """Judge a workload against those who keep and come before it in the order. Changes nothing.

    With `trials`, which save a pass most of the work, the verdict does not say which of several keepers it is behind.
    """
    own = section.marked(workload.id)
    if own is None:
        return _judge(section, workload, shape, keepers, now_ms, trials)
    section.lift(workload.id)
    try:
        if _has_room(section, shape, own.placement) and _admits(section, shape):
            within = section.balances.within(shape.team, section.flavor, shape.gpus)
            if shape.preemptible or within:
                return Verdict(Reason.STARTING, within, own.placement)
        verdict = _judge(section, workload, shape, keepers, now_ms, None)
        return verdict if verdict.placement is not None else verdict._replace(reason=Reason.RECLAIMING)
    finally:
        section.lower(workload.id)


def _has_room(section: Section, shape: Shape, placement: Placement) -> bool:
    """Return whether exactly what was earmarked is free."""
    asks, allowed = shape.gpus_per_node, shape.within_nodes
    return len(placement) == shape.nodes and all(
        gpus == asks and (allowed is None or name in allowed) and section.racks.room(name, shape.system) >= asks
        for name, gpus in placement.items()
    )


def _admits(section: Section, shape: Shape) -> bool:
    return shape.gpus <= section.balances.available(shape.team, section.flavor)


def _judge(
    section: Section,
    workload: Workload,
    shape: Shape,
    keepers: Sequence[Keeper],
    now_ms: int,
    trials: Trials | None,
) -> Verdict:
    balances = section.balances
    within = balances.within(shape.team, section.flavor, shape.gpus)
    if not shape.preemptible and not within:
        return Verdict(Reason.GUARANTEE_ONLY, within)
    available = balances.available(shape.team, section.flavor)
    if shape.gpus > available:
        return Verdict(Reason.QUOTA, within)
    limit = limit_ms(workload)
    kept = [each for each in keepers if each.binds(within=within)]
    ahead = [each for each in kept if not each.passed_by(limit, now_ms)] if limit is not None else kept
    verdict = _beside(section, shape, ahead, available, trials, within=within)
    if verdict.placement is None and len(ahead) < len(kept):
        passed = [
            each.earliest_ms - (limit or 0) for each in kept if each not in ahead and each.earliest_ms is not None
        ]
        verdict = verdict._replace(passes_ms=min(passed))
    if verdict.behind is not None:
        verdict = verdict._replace(bound_ms=_bound_ms(section, shape, ahead, now_ms))
    return verdict


def _beside(
    section: Section, shape: Shape, ahead: Sequence[Keeper], available: int, trials: Trials | None, *, within: bool
) -> Verdict:
    """Judge what quota admits beside all that is kept for those ahead."""
    closed = frozenset[NodeName]().union(*(each.nodes for each in ahead)) if ahead else NOWHERE
    placement = section.racks.place(shape.share, shape.nodes, NOWHERE, shape.within_nodes)
    if placement is None:
        return Verdict(Reason.CAPACITY, within, closed=closed)
    behind = _short_of_quota(section, shape, ahead, available, trials)
    if behind is None and closed:
        beside = section.racks.place(shape.share, shape.nodes, closed, shape.within_nodes)
        if beside is None:
            behind = next(each for each in ahead if each.nodes & placement.keys())
        else:
            placement = beside
    if behind is None:
        return Verdict(Reason.STARTING, within, placement)
    return Verdict(Reason.BEHIND_GANG, within, None, behind, closed)


def _short_of_quota(
    section: Section, shape: Shape, ahead: Sequence[Keeper], available: int, trials: Trials | None
) -> Keeper | None:
    """Return the keeper whose quota this workload would need."""
    spare = available - shape.gpus  # whatever is charged, `available` falls by no more than that
    if spare >= sum(each.gpus for each in ahead):
        return None
    root = section.tree.path(shape.team)[-1]
    near = [each for each in ahead if each.root == root]
    own = [each for each in near if each.shape.team == shape.team]
    if trials is not None and spare < sum(each.gpus for each in own):
        return own[-1]  # what is charged to the team itself, `available` falls by exactly that
    if spare >= sum(each.gpus for each in near):
        return None
    if trials is not None:
        return None if trials.available(near, shape.team) >= shape.gpus else near[-1]
    return _first_short(section, shape, near)


def _first_short(section: Section, shape: Shape, ahead: Sequence[Keeper]) -> Keeper | None:
    """Charge one keeper after the other until too little is left."""
    charged: list[Keeper] = []
    try:
        for each in ahead:
            section.balances.charge(each.shape.team, section.flavor, each.gpus)
            charged.append(each)
            if shape.gpus > section.balances.available(shape.team, section.flavor):
                return each
    finally:
        for each in charged:
            section.balances.refund(each.shape.team, section.flavor, each.gpus)
    return None


def _bound_ms(section: Section, shape: Shape, ahead: Sequence[Keeper], now_ms: int) -> int | None:
    """Return the longest time limit with which work of this shape would pass at least one keeper more."""
    if shape.endless or not section.queues[shape.team].groups[shape].limited:
        return None
    spans = [each.earliest_ms - now_ms for each in ahead if each.earliest_ms is not None]
    return max((span for span in spans if span > 0), default=None)
