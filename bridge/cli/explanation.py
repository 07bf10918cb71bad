"""One workload explained for people: where it stands and why, what is in its way, what happened when. Pure."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from bridge.api.views import Explain, QueueRow, Reclaim, State
from bridge.cli import formats, tables
from bridge.cli.tables import cell

_TOLD_APART = ("binding", "position", "queue", "earliest_ms", "earliest_unknown", "would_start", "holders", "behind")
"""Numbers that have a line of their own."""

_SHOWN = 5
"""Workloads in the way that are named; --output json has more of them."""


def page(view: Explain, *, now_ms: int) -> RenderableType:
    """Say what it is, where it stands and why, who holds what it waits for, when it can start, what happened."""
    row = view.workload
    asks = formats.request(row.gpus, row.nodes, row.flavor)
    lines: list[RenderableType] = [
        cell(f"{tables.called(row)}: {asks}, team {row.team}, user {row.user}"),
        cell(f"id {row.id}, system {row.system}, priority {row.priority}", "dim"),
        _standing(view, now_ms),
    ]
    lines += [cell(f"  {label:<10} {text}") for label, text in _facts(view, now_ms)]
    if view.placement:
        lines.append(cell("placement " + ", ".join(f"{node}: {gpus}" for node, gpus in view.placement.items())))
    if view.timeline:
        moments = (
            [cell(formats.moment(at.at_ms, now_ms=now_ms), "dim"), cell(at.what), cell(at.text)] for at in view.timeline
        )
        lines += [cell(""), tables.grid(("TIME", "WHAT", ""), moments, fold=("",))]
    return Group(*lines)


def _facts(view: Explain, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield (label, sentence) of what is known, in the order in which one asks."""
    row = view.workload
    if view.place is not None:
        where = f"team {row.team}'s queue" + (f" for {row.flavor}" if row.flavor else "")
        yield "place", f"{formats.ordinal(view.place.position)} of {view.place.of} in {where}"
    shown = {key: value for key, value in view.numbers.items() if key not in _TOLD_APART and value != ""}
    numbers = ", ".join(f"{key} {value}" for key, value in shown.items())
    if view.binding:
        yield "bound by", ": ".join(filter(None, (view.binding, numbers)))
    elif numbers:
        yield "numbers", numbers
    if view.could_fit is not None:
        yield "could fit", f"at most {view.could_fit} {row.flavor}"
    if view.holders:
        yield "held by", tables.holders(view.holders)
    for each in view.held_by[:_SHOWN]:
        yield "", _holding(each, now_ms)
    if view.reclaim is not None:
        yield "reclaim", f"GPUs are being taken back from {_victims(view.reclaim)}, {_until(view.reclaim, now_ms)}"
    if view.preempted is not None:
        taker = view.preempted.team
        yield "preempted", f"it makes way: team {taker} takes back its guarantee, {_until(view.preempted, now_ms)}"
    yield from _start(view, now_ms)


def _start(view: Explain, now_ms: int) -> Iterator[tuple[str, str]]:
    if view.earliest_ms is not None:
        at = formats.moment(view.earliest_ms, now_ms=now_ms)
        late = view.earliest_ms < now_ms
        yield "earliest", f"an end is overdue since {at}" if late else f"not before {at}"
    elif view.earliest_unknown:
        yield "earliest", f"not known: {view.earliest_unknown}"
    if view.would_start:
        yield "to start", view.would_start


def _holding(row: QueueRow, now_ms: int) -> str:
    since = "" if row.started_ms is None else f", for {formats.span((now_ms - row.started_ms) / 1000)}"
    asks = formats.request(row.gpus, row.nodes, row.flavor)
    return f"{tables.called(row)}: {asks}, team {row.team}, {formats.person(row.user)}, {row.state}{since}"


def _victims(reclaim: Reclaim) -> str:
    return ", ".join(f"team {each.team} ({each.gpus} GPUs)" for each in reclaim.victims) or "nobody"


def _until(reclaim: Reclaim, now_ms: int) -> str:
    return f"until {formats.moment(reclaim.until_ms, now_ms=now_ms)} at the latest"


def _standing(view: Explain, now_ms: int) -> Text:
    """Read as "waiting for 1h06m: QuotaExceeded: team vision holds 10 ..." or "running for 4m10s, waited 1.2s"."""
    row = view.workload
    line = cell("").append_text(
        cell(row.state, tables.STATE_STYLE[row.state])
    )  # a Text's own style is all of its line's
    if row.state in (State.WAITING, State.REFUSED, State.GRANTED):
        said = ": ".join(filter(None, (row.reason and str(row.reason), row.text)))
        return line.append_text(cell(f" for {formats.span(row.waited_s)}" + (f": {said}" if said else "")))
    if row.started_ms is not None:
        end_ms = row.ended_ms if row.ended_ms is not None else now_ms
        line.append_text(cell(f", ran {formats.span((end_ms - row.started_ms) / 1000)}"))
    waited = f", waited {formats.span(row.waited_s)}, attempt {view.attempt}"
    return line.append_text(cell(waited + (f": {row.text}" if row.text else "")))
