"""`sbridge usage`: hours for people, and rows for a spreadsheet or a bill with the exact milliseconds. Pure."""

import csv as files
import io
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Group, RenderableType

from bridge.api.views import UsageRow, UsageView
from bridge.cli import formats, tables
from bridge.cli.tables import cell

_TIMED = ("day", "month")


def usage(view: UsageView) -> RenderableType:
    """Show GPU-hours, with the sum."""
    window = f"{formats.day(view.from_ms)} to {formats.day(view.to_ms)} UTC"
    if not view.items:
        return cell(f"nothing was held by your teams from {window}")
    columns = [*view.by] or ["team", "system", "flavor"]
    lines = [
        [*(cell(_told(row, column)) for column in columns), cell(formats.gpu_hours(row.gpu_ms))] for row in view.items
    ]
    total = formats.gpu_hours(sum(row.gpu_ms for row in view.items))
    last = [cell("all", "bold"), *(cell("") for _ in columns[1:]), cell(total, "bold")]
    grid = tables.grid((*(column.upper() for column in columns), ">GPU-HOURS"), [*lines, last])
    return Group(grid, cell(f"from {window}", "dim"))


def csv(view: UsageView) -> str:
    """Return one line per row: begin and end (UTC), the columns asked for, exact GPU-milliseconds, GPU-hours."""
    out = io.StringIO()
    writer = files.writer(out, lineterminator="\n")
    columns = [column for column in view.by if column not in _TIMED]
    writer.writerow(["from", "to", *columns, "gpu_ms", "gpu_hours"])
    for row in view.items:
        writer.writerow([*_window(row, view), *(_told(row, each) for each in columns), row.gpu_ms, _hours(row.gpu_ms)])
    return out.getvalue()


def _window(row: UsageRow, view: UsageView) -> Iterator[str]:
    for own_ms, whole_ms in ((row.from_ms, view.from_ms), (row.to_ms, view.to_ms)):
        yield formats.utc(whole_ms if own_ms is None else own_ms)


def _told(row: UsageRow, column: str) -> str:
    if column in _TIMED:
        at = datetime.fromtimestamp((row.from_ms or 0) / 1000, UTC)
        return f"{at:%Y-%m-%d}" if column == "day" else f"{at:%Y-%m}"
    value = getattr(row, column)
    return "" if value is None else str(value)


def _hours(gpu_ms: int) -> str:
    """Six decimals, by integers: no amount is too large for them."""
    micro = (gpu_ms * 1_000_000 + formats.GPU_MS_PER_HOUR // 2) // formats.GPU_MS_PER_HOUR
    return f"{micro // 1_000_000}.{micro % 1_000_000:06}"
