"""Whole answers for people: the status page, one workload explained. Built from tables and sentences."""

from rich.console import Group, RenderableType
from rich.text import Text

from bridge.api.views import Explain, NodeRow, QuotaRow, State, StatusView, SystemHealth, VerifyView
from bridge.cli import formats, tables
from bridge.cli.tables import cell


def status(view: StatusView, nodes: tuple[NodeRow, ...] | str, quota: tuple[QuotaRow, ...] | str) -> RenderableType:
    """Health first, then nodes and teams; a part that is not known is the sentence that says why."""
    return Group(
        *_health(view),
        cell(""),
        cell(f"nodes are not known: {nodes}", "red") if isinstance(nodes, str) else tables.nodes(nodes),
        cell(""),
        cell(f"quota is not known: {quota}", "red") if isinstance(quota, str) else tables.quota(quota),
    )


def _health(view: StatusView) -> list[RenderableType]:
    age = "none yet" if view.last_cycle_age_s is None else f"{formats.span(view.last_cycle_age_s)} ago"
    leader = view.leader or "nobody leads"
    lines: list[RenderableType] = [
        cell(f"bridge {view.version}: {leader}, epoch {view.epoch}"),
        cell(f"cycle {view.cycles}: {view.last_cycle_ms} ms, {age}; ledger at entry {view.ledger_seq}"),
    ]
    lines += [_system(each) for each in (view.kubernetes, *view.slurm)]
    lines += [cell(f"! {problem.about}: {problem.text}", "yellow") for problem in view.problems]
    return lines


def _system(health: SystemHealth) -> Text:
    seen = "never reached" if health.age_s is None else f"seen {formats.span(health.age_s)} ago"
    kind = "kubernetes" if health.name == "kubernetes" else f"slurm {health.name}"
    line = cell(f"{kind} {health.version} ".replace("  ", " "))
    line.append_text(cell("ok" if health.ok else "NOT OK", "green" if health.ok else "bold red"))
    line.append_text(cell(f", {seen}" + (f": {health.text}" if health.text else "")))
    return line


def explain(view: Explain, *, now_ms: int) -> RenderableType:
    """Say what it is, where it stands and why, who holds what it waits for, what happened when."""
    row = view.workload
    lines: list[RenderableType] = [
        cell(
            f"{tables.called(row)}: {formats.request(row.gpus, row.nodes, row.flavor)}, "
            f"team {row.team}, user {row.user}"
        ),
        cell(f"id {row.id}, system {row.system}, priority {row.priority}", "dim"),
        _standing(view, now_ms),
    ]
    if view.numbers or view.binding:
        shown = {key: value for key, value in view.numbers.items() if key != "binding"}
        numbers = ", ".join(f"{key} {value}" for key, value in shown.items())
        bound = f"bound by {view.binding}" if view.binding else ""
        lines.append(cell("  " + ": ".join(filter(None, (bound, numbers)))))
    if view.earliest_ms is not None:
        lines.append(cell(f"  not before {formats.moment(view.earliest_ms, now_ms=now_ms)}"))
    if view.holders:
        lines.append(cell(f"  held by {tables.holders(view.holders)}"))
    if view.placement:
        lines.append(cell("placement " + ", ".join(f"{node}: {gpus}" for node, gpus in view.placement.items())))
    if view.timeline:
        moments = (
            [cell(formats.moment(at.at_ms, now_ms=now_ms), "dim"), cell(at.what), cell(at.text)] for at in view.timeline
        )
        lines += [cell(""), tables.grid(("TIME", "WHAT", ""), moments, fold=("",))]
    return Group(*lines)


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


def verify(view: VerifyView) -> RenderableType:
    """Say that it is clean, or each difference."""
    if view.clean:
        return cell("clean: every balance, grant and capacity column equals what the entries add up to", "green")
    hint = [] if view.problems else [cell("what differs is told to platform admins")]
    return Group(
        cell(f"NOT CLEAN: {view.count} differences", "bold red"), *(cell(f"- {text}") for text in view.problems), *hint
    )
