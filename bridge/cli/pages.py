"""Whole answers for people: the status page, the proof of the ledger. Built from tables and sentences."""

from rich.console import Group, RenderableType
from rich.text import Text

from bridge.api.views import NodeRow, QuotaRow, StatusView, SystemHealth, VerifyView
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


def verify(view: VerifyView) -> RenderableType:
    """Say that it is clean, or each difference."""
    if view.clean:
        return cell("clean: every balance, grant and capacity column equals what the entries add up to", "green")
    hint = [] if view.problems else [cell("what differs is told to platform admins")]
    return Group(
        cell(f"NOT CLEAN: {view.count} differences", "bold red"), *(cell(f"- {text}") for text in view.problems), *hint
    )
