"""When a waiting workload can start, who holds what it needs, and what would make it start now. Pure."""

from bridge.admission import explain
from bridge.admission.judgement import Verdict
from bridge.admission.model import Earmark
from bridge.admission.queues import Shape
from bridge.admission.section import Section
from bridge.workloads.model import Workload
from bridge.workloads.reasons import Reason

Numbers = dict[str, int | str]


def reclaiming(earmark: Earmark) -> Numbers:
    """Say when what is taken back is free at the latest."""
    grace_ms = max((victim.grace_ms for victim in earmark.victims), default=0)
    return {
        "earliest_unknown": f"its victims have {grace_ms // 1000} s of grace; it starts when they have ended",
        "would_start": "it starts when the work that it takes its guarantee back from has ended",
    }


def numbers(section: Section, workload: Workload, shape: Shape, verdict: Verdict) -> Numbers:
    """Return `earliest_ms` or `earliest_unknown`, `holders`, and `would_start`.

    An earliest start in the past: an end is overdue. Behind somebody, the earliest start is that of the one ahead.
    """
    found: Numbers = {"would_start": _would_start(section, workload, verdict)}
    ahead = verdict.behind
    earliest = section.earliest_ms(shape) if ahead is None else ahead.earliest_ms
    if earliest is not None:
        found["earliest_ms"] = earliest
    elif ahead is not None:
        found["earliest_unknown"] = f"it waits behind {_named(ahead.workload, workload)}, whose start is unknown"
    else:
        found["earliest_unknown"] = _why_unknown(section, shape, verdict)
    binding = section.balances.binding(shape.team, section.flavor, shape.gpus)
    root = section.tree.path(shape.team)[-1] if binding is None else binding.node
    if told := explain.holders(section.balances, root, section.flavor):
        found["holders"] = told
    return found


def _why_unknown(section: Section, shape: Shape, verdict: Verdict) -> str:
    if verdict.reason is Reason.GUARANTEE_ONLY:
        return "it depends on when work of its own team ends"
    outlooks = section.outlooks(shape)
    if verdict.reason is Reason.STARTING:
        return "nothing is in its way any more"
    if len(outlooks) < shape.nodes:
        return "it needs nodes that are out of service, or used by pods that the bridge does not manage"
    if not section.quota_ends(shape) or any(each.certainty > 1 for each in outlooks):
        return "serving pods without a deadline are in the way"
    return "work without a time limit is in the way"


def _would_start(section: Section, workload: Workload, verdict: Verdict) -> str:
    flavor, asks = section.flavor, workload.gpus
    match verdict.reason:
        case Reason.QUOTA:
            binding = section.balances.binding(workload.team, flavor, asks)
            short = 0 if binding is None else asks - binding.room
            where = workload.team if binding is None else binding.node
            return f"it starts when {short} {flavor} more are given back in {where}, or when it asks {short} fewer"
        case Reason.GUARANTEE_ONLY:
            own = section.tree.share(workload.team, flavor).own
            return f"it starts when team {workload.team} holds {own - asks} {flavor} or fewer, or if it is preemptible"
        case Reason.BEHIND_GANG if verdict.behind is not None:
            first = _named(verdict.behind.workload, workload)
            if verdict.behind.earliest_ms and not workload.endless:
                return f"it starts after {first}, or earlier if it surely ends before that starts"
            return f"it starts after {first}"
        case Reason.STARTING:
            return "there is room now: the next pass starts it"
        case _:
            nodes = "one node has" if workload.nodes == 1 else f"{workload.nodes} nodes have"
            return f"it starts when {nodes} {workload.gpus_per_node} free {flavor} each that no other work is kept for"


def _named(other: Workload, reader: Workload) -> str:
    name = explain.called(other, reader)
    return name if other.team == reader.team else f"{name} of team {other.team}"
