"""Views as tables for people: at most 100 columns where the names allow it, folded and never cut."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bridge.api.views import EntryView, Holder, NodeRow, QueueRow, QuotaRow, State
from bridge.cli import formats

STATE_STYLE = {
    State.WAITING: "yellow",
    State.REFUSED: "red",
    State.GRANTED: "cyan",
    State.RUNNING: "green",
    State.ENDING: "dim",
    State.ENDED: "dim",
}

UNTOLD = frozenset({"id", "submitted_ms"})
"""Details that repeat the row, or that `explain` tells better; JSON has them."""

EVERY_WORKER_HAS = "+DYNAMIC_NORM"
"""Slurm's flag of nodes that register themselves: true of every worker, so it tells nobody anything."""


def cell(text: object, style: str = "") -> Text:
    """Make a cell of plain text: what users typed is neither markup nor control sequence."""
    return Text(formats.printable(str(text)), style=style)


def grid(columns: Sequence[str], rows: Iterable[Sequence[Text]], *, fold: Sequence[str] = ()) -> Table:
    """Make a table. Columns that start with ">" are numbers; only those in `fold` may take several lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        name = column.removeprefix(">")
        justify = "right" if column.startswith(">") else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name not in fold)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    return table


def nodes(rows: Sequence[NodeRow]) -> RenderableType:
    """Show each node's GPUs by holder. WORKER is Slurm's, OUT is unavailable."""
    if not rows:
        return cell("no GPU nodes")
    columns = (
        "NODE", "FLAVOR", ">GPUS", ">WORKER", ">PODS", ">OTHER", ">FREE", ">OUT", "HELD BY", "SLURM NODE", "STATE",
    )  # fmt: skip
    table = grid(columns, (_node(row) for row in rows), fold=("HELD BY", "STATE"))
    causes = [
        cell(f"{row.node}: {'; '.join(dict.fromkeys(filter(None, (row.cause, row.slurm_reason))))}", "yellow")
        for row in rows
        if row.cause or row.slurm_reason
    ]
    return Group(table, *causes)


def _node(row: NodeRow) -> list[Text]:
    counts = [_count(value) for value in (row.total, row.worker, row.pods, row.unmanaged, row.idle)]
    out = _count(row.unavailable, "red")
    slurm_state = row.slurm_state.replace(EVERY_WORKER_HAS, "")
    state = cell(slurm_state or ("-" if row.ready else "NotReady"), "" if row.ready else "red")
    return [
        cell(row.node), cell(row.flavor), *counts, out, cell(_holders_of_node(row) or "-"),
        cell(row.slurm_node or "-"), state,
    ]  # fmt: skip


def holders(found: Iterable[Holder]) -> str:
    """Read as "vision 6 slurm, nlp 2 kubernetes"."""
    return ", ".join(f"{each.team} {each.gpus} {each.system}" for each in found)


def _holders_of_node(row: NodeRow) -> str:
    """Leave the system out where the columns say it already."""
    if len({each.system for each in row.holders}) > 1:
        return holders(row.holders)
    return ", ".join(f"{each.team} {each.gpus}" for each in row.holders)


def quota(rows: Sequence[QuotaRow]) -> RenderableType:
    """Show each team's quota and use, children under their parents."""
    if not rows:
        return cell("no teams")
    parents = {row.team: row.parent for row in rows}
    columns = (
        "TEAM", "FLAVOR", ">GUARANTEE", ">LIMIT", ">SLURM", ">PODS", ">TOTAL", ">BORROWED", ">AVAILABLE", ">WAITING",
    )  # fmt: skip
    return grid(columns, (_quota(row, _depth(row.team, parents)) for row in rows))


def _quota(row: QuotaRow, depth: int) -> list[Text]:
    limit = "-" if row.limit is None else row.limit
    return [
        cell("  " * depth + row.team), cell(row.flavor), cell(row.guarantee), cell(limit), _count(row.used_slurm),
        _count(row.used_kubernetes), _count(row.used_total), _count(row.borrowed, "yellow"),
        cell(row.available, "red" if row.available < 0 else ""), _count(row.pending, "yellow"),
    ]  # fmt: skip


def _depth(team: str, parents: dict[str, str | None]) -> int:
    depth, at = 0, parents.get(team)
    while at is not None and depth < len(parents):
        depth, at = depth + 1, parents.get(at)
    return depth


def queue(rows: Sequence[QueueRow]) -> RenderableType:
    """Show workloads in the order they came in, and say how many have no name because they are others'."""
    if not rows:
        return cell("no such work: nothing waits, runs or ends")
    columns = ("WORKLOAD", "TEAM", "USER", ">GPUS", "STATE", ">WAITED", "REASON")
    table = grid(columns, (_workload(row) for row in rows), fold=("WORKLOAD", "USER", "REASON"))
    hidden = sum(row.hidden for row in rows)
    if not hidden:
        return table
    return Group(table, cell(f"{hidden} of other teams: names are for their members and platform admins", "dim"))


def _workload(row: QueueRow) -> list[Text]:
    return [
        cell(called(row), "dim" if row.hidden else ""), cell(row.team), cell(formats.person(row.user)),
        cell(formats.request(row.gpus, row.nodes, row.flavor)), cell(row.state, STATE_STYLE[row.state]),
        cell(formats.span(row.waited_s)), cell(row.reason or ""),
    ]  # fmt: skip


def called(row: QueueRow) -> str:
    """Name it by what a person may type back, and by its name where that is not a part of it."""
    if row.hidden:
        return "(hidden)"
    where = row.where or row.id
    return where if not row.name or where.endswith(row.name) else f"{where} {row.name}"


def entries(rows: Sequence[EntryView], *, now_ms: int) -> RenderableType:
    """Show journal entries."""
    if not rows:
        return cell("no entries")
    columns = (">SEQ", "TIME", "STEP", "TEAM", ">GPUS", "WORKLOAD", "DETAIL")
    return grid(columns, (_entry(row, now_ms) for row in rows), fold=("WORKLOAD", "DETAIL"))


def _entry(row: EntryView, now_ms: int) -> list[Text]:
    change = f"{row.gpus:+} {row.flavor or ''}" if row.gpus else ""
    told = {key: value for key, value in row.detail.items() if key not in UNTOLD and value not in ("", None, {}, [])}
    detail = ", ".join(f"{key}={_plain(value)}" for key, value in told.items())
    attempt = f" #{row.attempt}" if row.attempt else ""
    workload = "(hidden)" if row.hidden else f"{row.workload or ''}{attempt}"
    return [
        cell(row.seq), cell(formats.moment(row.at_ms, now_ms=now_ms)), cell(row.step),
        cell(row.team or ""), cell(change), cell(workload), cell(detail),
    ]  # fmt: skip


def _count(value: int, style: str = "") -> Text:
    """Make a number; a zero steps back."""
    return cell(value, style) if value else cell("0", "dim")


def _plain(value: object) -> str:
    """Read nested detail without quotes: {"g1": 4} as g1:4."""
    if isinstance(value, dict):
        return " ".join(f"{key}:{_plain(inner)}" for key, inner in value.items())
    return str(value)
