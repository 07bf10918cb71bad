"""May this workload start now, and if not, what stands in its way? Pure.

The one procedure behind every decision: a pass asks it for each workload in turn, and an explanation asks it again
at the state that the pass left behind. Within a pass quota and nodes only shrink and keepers are only added, so what
is blocked stays blocked.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bridge.admission.ahead import Ahead, Kept
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
    kept: Kept,
    now_ms: int,
    trials: Trials | None = None,
) -> Verdict:
    """Judge a workload against those who keep and come before it in the order. Changes nothing.

    With `trials`, which save a pass most of the work, the verdict does not say which of several keepers it is behind.
    """
    own = section.marked(workload.id)
    if own is None:
        return _judge(section, workload, shape, kept, now_ms, trials)
    section.lift(workload.id)
    try:
        if _has_room(section, shape, own.placement) and _admits(section, shape):
            within = section.balances.within(shape.team, section.flavor, shape.gpus)
            if shape.preemptible or within:
                return Verdict(Reason.STARTING, within, own.placement)
        verdict = _judge(section, workload, shape, Kept(kept.keepers), now_ms, None)  # more room than others see
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
    kept: Kept,
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
    ahead, until_ms = kept.ahead(limit_ms(workload), now_ms, within=within)
    verdict = _beside(section, shape, ahead, available, trials, within=within)
    if verdict.placement is not None:
        return verdict
    limited = not shape.endless and section.queues[shape.team].groups[shape].limited
    bound_ms = ahead.bound_ms(now_ms) if verdict.behind is not None and limited else None
    return verdict._replace(passes_ms=until_ms, bound_ms=bound_ms)


def _beside(
    section: Section, shape: Shape, ahead: Ahead, available: int, trials: Trials | None, *, within: bool
) -> Verdict:
    """Judge what quota admits beside all that is kept for those ahead."""
    racks, share, closed = section.racks, shape.share, ahead.closed
    placement = racks.place(share, shape.nodes, NOWHERE, shape.within_nodes)
    if placement is None:
        return Verdict(Reason.CAPACITY, within, closed=closed)
    behind = _short_of_quota(section, shape, ahead, available, trials)
    if behind is None and closed and not closed.isdisjoint(placement):
        hindered, free = placement, None
        if shape.within_nodes is not None or shape.nodes < ahead.full.get(share, shape.nodes + 1):
            free = racks.place(share, shape.nodes, closed, shape.within_nodes)
        if free is not None:
            placement = free
        else:
            behind = next(each for each in ahead.keepers if each.nodes & hindered.keys())
            if shape.within_nodes is None:
                ahead.full[share] = min(shape.nodes, ahead.full.get(share, shape.nodes))
    if behind is None:
        return Verdict(Reason.STARTING, within, placement)
    return Verdict(Reason.BEHIND_GANG, within, None, behind, closed)


def _short_of_quota(
    section: Section, shape: Shape, ahead: Ahead, available: int, trials: Trials | None
) -> Keeper | None:
    """Return the keeper whose quota this workload would need."""
    spare = available - shape.gpus  # whatever is charged, `available` falls by no more than that
    if spare >= ahead.gpus:
        return None
    root = section.tree.path(shape.team)[-1]
    near = [each for each in ahead.keepers if each.root == root]
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
