"""The report: one HTML page that needs nothing else. Its text and tables are made from the JSON summary."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from typing import Any, Final

from bridge.simulate import comparison, plots
from bridge.simulate.model import Scenario
from bridge.simulate.outcome import Outcome
from bridge.simulate.series import Bins

BINS: Final = 360
MEANS: Final = {
    "shared": "one pool; guarantees, borrowing, reclaim across both systems (the bridge)",
    "static": "each team its own whole nodes: its guarantee is its limit",
    "split": "Slurm and Kubernetes each own fixed nodes; within each, as shared",
    "fifo": "one pool, one queue, no teams",
}
_MOST_PANELS: Final = 30

check = plots.check


def page(scenario: Scenario, document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> str:
    """Return the page. InvalidInputError when matplotlib is missing."""
    policies: list[dict[str, Any]] = document["policies"]
    first = outcomes[0]
    bins = Bins(first.first_ms, max(first.arrivals_end_ms, first.first_ms + 1), BINS)
    teams = [team for team, each in policies[0]["waits"]["by_team"].items() if each["jobs"]]
    comparable = comparison.comparable(outcomes)
    sections = [
        _section("Side by side", _tiles(policies) + _table(policies)),
        _section("No team worse off?", _verdict(document["against_static"])),
        _section(
            "Use over time, by team",
            "<p>Mean GPUs held in each of "
            f"{BINS} equal steps, while jobs arrive. The dotted line is the fleet.</p>"
            + plots.use_by_team(outcomes, bins),
        ),
        _section("Use over time, by system", plots.use_by_system(outcomes, bins)),
        _section("What waits over time", plots.waiting(outcomes, bins)),
        _section("Teams against their guarantees", plots.use_against_guarantee(outcomes, bins, teams[:_MOST_PANELS])),
        _section(
            "How long work waits",
            f"<p>{_WAIT_MEANS} The {document['compared_jobs']:,} jobs that every policy could run.</p>"
            + plots.wait_curves(outcomes, comparable)
            + "<h3>p95 wait of each team</h3>"
            + plots.wait_by_team(policies),
        ),
        _section(
            "Where the GPU time goes",
            "<h3>while jobs arrive</h3>"
            + plots.gpu_time(policies, "arrivals")
            + "<h3>until the last job has ended</h3>"
            + plots.gpu_time(policies, "whole_run"),
        ),
        _section("Preemptions, and what they cost", _preemptions(outcomes, policies, bins)),
        _section("Waits in numbers", _wait_tables(policies)),
        _section("What went in, and what did not", _inputs(document, scenario, policies)),
    ]
    style = resources.files("bridge.simulate").joinpath("report.css").read_text(encoding="utf-8")
    title = f"{' against '.join(each['policy'] for each in policies)} on {document['fleet']['gpus']:,} GPUs"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>sbridge simulate: {escape(title)}</title><style>{style}</style></head><body>"
        f"<header><h1>{escape(title)}</h1>{_lead(document, first)}</header><main>{''.join(sections)}</main>"
        "</body></html>"
    )


_WAIT_MEANS: Final = (
    "A wait is the time from submission to end, less the run time: work that a preempted job does again counts as "
    "waiting, too."
)


def _lead(document: Mapping[str, Any], first: Outcome) -> str:
    days = (first.arrivals_end_ms - first.first_ms) / 86_400_000
    began = datetime.fromtimestamp(first.first_ms / 1000, UTC)
    dated = f", from {began:%d %B %Y}" if began.year > 1970 else ""  # noqa: PLR2004  # a trace without dates
    teams = len(document["policies"][0]["waits"]["by_team"])
    return (
        f"<p>{document['jobs']:,} jobs of {teams} teams over {days:,.0f} days{dated}, on "
        f"{document['fleet']['nodes']:,} nodes. "
        "Made by <code>sbridge simulate</code>: the planner and the ledger rules of the bridge, on a virtual "
        "clock.</p>"
    )


def _tiles(policies: Sequence[Mapping[str, Any]]) -> str:
    cells = []
    for each in policies:
        waits, used = each["waits"]["all"], each["arrivals"]
        cells.append(
            f'<div class="tile {escape(each["policy"])}"><h3>{escape(each["policy"])}</h3>'
            f'<p class="means">{escape(MEANS[each["policy"]])}</p><dl>'
            f"<div><dt>of the fleet's time used</dt><dd>{100 * used['utilisation']:.1f}%</dd></div>"
            f"<div><dt>p95 wait</dt><dd>{_span(waits['p95_s'])}</dd></div>"
            f"<div><dt>mean wait</dt><dd>{_span(waits['mean_s'])}</dd></div>"
            f"<div><dt>lost to preemption</dt><dd>{each['preemptions']['lost_gpu_h']:,.0f} GPU-h</dd></div>"
            "</dl></div>"
        )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _table(policies: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        ("GPU time used while jobs arrive", [f"{100 * each['arrivals']['utilisation']:.1f}%" for each in policies]),
        ("… of that useful", [f"{100 * each['arrivals']['useful_share']:.1f}%" for each in policies]),
        ("idle while jobs arrive, GPU-h", [f"{each['arrivals']['idle_gpu_h']:,.0f}" for each in policies]),
        ("lost to preemption, GPU-h", [f"{each['preemptions']['lost_gpu_h']:,.0f}" for each in policies]),
        ("all work done after", [_span(each["makespan_s"]) for each in policies]),
        *(
            (f"wait {name}", [_span(each["waits"]["all"][f"{name}_s"]) for each in policies])
            for name in ("p50", "p95", "p99", "max", "mean")
        ),
        ("first start p95", [_span(each["waits"]["first_start"]["p95_s"]) for each in policies]),
        (
            "reclaims / victims",
            [f"{p['preemptions']['reclaims']:,} / {p['preemptions']['victims']:,}" for p in policies],
        ),
        ("jobs refused: can never run", [f"{each['jobs']['refused']:,}" for each in policies]),
        ("jobs never started", [f"{each['jobs']['never_started']:,}" for each in policies]),
    ]
    return _grid(["", *(each["policy"] for each in policies)], [[name, *cells] for name, cells in rows])


def _verdict(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "<p>Compared when both <code>shared</code> and <code>static</code> are run.</p>"
    gangs, worst = found["gangs"], found["worst"]
    failing = [each for each in found["teams"] if not each["holds"]]
    told = (
        f"It holds for all {len(found['teams'])} teams."
        if found["holds"]
        else f"It does not hold for {len(failing)} of {len(found['teams'])} teams: "
        + ", ".join(f"{each['team']} (worse by {_span(each['worse_by_s'])})" for each in failing)
        + "."
    )
    if worst is not None:
        by_s = worst["worse_by_s"]
        change = f"{_span(abs(by_s))} {'worse' if by_s > 0 else 'better'}" if by_s else "neither better nor worse"
        told += f" The team that gains least, {worst['team']}, is {change}."
    rows = [
        [
            each["team"],
            f"{each['jobs']:,}",
            _span(each["shared_p95_s"]),
            _span(each["static_p95_s"]),
            ("+" if each["worse_by_s"] > 0 else "\N{MINUS SIGN}" if each["worse_by_s"] else "")
            + _span(abs(each["worse_by_s"])),
            "yes" if each["holds"] else "NO",
        ]
        for each in sorted(found["teams"], key=lambda each: -each["jobs"])
    ]
    return (
        f'<div class="verdict {"holds" if found["holds"] else "fails"}"><p><q>{escape(found["statement"])}</q></p>'
        f"<p><strong>{escape(told)}</strong></p></div>"
        f"<p>One gang's run time is the mean over the {gangs['jobs']:,} gangs of {gangs['least_gpus']} GPUs and more "
        f"in the trace, {_span(found['bound_s'])} (p50 {_span(gangs['p50_s'])}, p95 {_span(gangs['p95_s'])}).</p>"
        + _grid(["team", "jobs", "p95 shared", "p95 static", "shared \N{MINUS SIGN} static", "holds"], rows)
    )


def _preemptions(outcomes: Sequence[Outcome], policies: Sequence[Mapping[str, Any]], bins: Bins) -> str:
    parts = []
    for outcome, policy in zip(outcomes, policies, strict=True):
        told = policy["preemptions"]
        if not outcome.taken:
            parts.append(f"<p><strong>{escape(policy['policy'])}</strong>: nothing was taken back.</p>")
            continue
        share = 100 * told["lost_gpu_h"] / max(1e-9, policy["whole_run"]["useful_gpu_h"])
        parts.append(
            f"<p><strong>{escape(policy['policy'])}</strong>: {told['reclaims']:,} workloads got back what their team "
            f"is guaranteed, from {told['victims']:,} victims with {told['victim_gpus']:,} GPUs in all. "
            f"{told['lost_gpu_h']:,.1f} GPU-hours had to be done again, {share:.2f}% of all useful work. "
            f"{told['lapsed']} earmarks lapsed.</p>{plots.preemptions(outcome, bins)}"
        )
        rows = [
            [each["for"], each["from"], f"{each['victims']:,}", f"{each['gpus']:,}", f"{each['lost_gpu_h']:,.1f}"]
            for each in told["pairs"][:12]
        ]
        parts.append(_grid(["for team", "from team", "victims", "GPUs", "GPU-h to do again"], rows, words=2))
    return "".join(parts)


def _wait_tables(policies: Sequence[Mapping[str, Any]]) -> str:
    columns = ("p50_s", "p95_s", "p99_s", "max_s")
    parts = []
    for title, group in (("by team", "by_team"), ("by size in GPUs", "by_size")):
        names = [name for name, each in policies[0]["waits"][group].items() if each["jobs"]]
        head = [title, "jobs", *(f"{each['policy']} {c.removesuffix('_s')}" for each in policies for c in columns)]
        rows = []
        for name in names:
            row = [name, f"{policies[0]['waits'][group][name]['jobs']:,}"]
            for policy in policies:
                found = policy["waits"][group].get(name, {})
                row += [_span(found.get(column, 0)) for column in columns]
            rows.append(row)
        parts.append(f'<div class="wide">{_grid(head, rows)}</div>')
    return "".join(parts)


def _inputs(document: Mapping[str, Any], scenario: Scenario, policies: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for each in document["input"]:
        left = "".join(f"; {count:,} left out: {escape(why)}" for why, count in each["left_out"].items())
        broken = f"; {each['broken']:,} broken" if each["broken"] else ""
        items.append(
            f"<li><code>{escape(each['file'])}</code>: {each['rows']:,} rows, {each['jobs']:,} used{left}{broken}"
        )
        items += [f"<li>{escape(text)}" for text in (*each["notes"], *each["faults"])]
    for policy in policies:
        items += [
            f"<li>{escape(policy['policy'])} refuses {each['jobs']:,} jobs ({each['gpu_h']:,.0f} GPU-h): "
            f"{escape(each['why'])}, e.g. <code>{escape(each['first'])}</code>"
            for each in policy["refused"]
        ]
        items += [
            f"<li>{escape(policy['policy'])} never starts <code>{escape(each['workload'])}</code>: "
            f"{escape(each['why'])}"
            for each in policy["never_started"]
        ]
        items += [f"<li>{escape(note)}" for note in policy["notes"]]
    settings = ", ".join(f"{name} = {value:g}" for name, value in document["settings"].items())
    guarantees = ", ".join(f"{team} {gpus}" for team, gpus in policies[0]["guarantees"].items())
    items.append(f"<li>teams: {escape(document['teams'])}. Guarantees: {escape(guarantees)}")
    items.append(f"<li>settings: {escape(settings)}")
    items.append(
        "<li>not simulated: the seconds in which workers and pods start, failures, and people who would have submitted "
        "something else"
    )
    models = sorted({node.model for node in scenario.nodes if node.model})
    if models:
        items.append(f"<li>kinds of nodes: {escape(', '.join(models))}")
    return f"<ul>{''.join(items)}</ul>"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Return a table; its first `words` columns are words, the others numbers."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{'' if index < words else ' class=n'}>{escape(cell)}</{tag}>" for index, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _span(seconds: float) -> str:
    """Return a span in at most two units."""
    for unit_s, unit, below_s, below in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= unit_s:
            return f"{int(seconds // unit_s)}{unit} {int(seconds % unit_s // below_s)}{below}"
    return f"{seconds:.0f}s"
