"""The plots of the report, as SVG. matplotlib is imported when the first one is drawn (extra `report`).

Drawn without a display, without dates inside and with fixed ids, so that the same run gives the same bytes.
"""

import importlib.util
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from bridge.errors import InvalidInputError
from bridge.simulate import figures, series
from bridge.simulate.outcome import Outcome
from bridge.simulate.series import Bins

WIDE: Final = 10.4  # inches; one panel across the page
COLOURS: Final = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7a5195", "#8c564b", "#b0b7bf",
)  # fmt: skip
"""Told apart by colour-blind people, too (after Okabe and Ito); the last one is for the rest."""
POLICY_COLOURS: Final = {"shared": "#0072b2", "static": "#d55e00", "split": "#cc79a7", "fifo": "#7f7f7f"}
SYSTEM_COLOURS: Final = {"slurm": "#56b4e9", "kubernetes": "#0b4f7d"}
USEFUL, LOST, IDLE, INK, GRID = "#009e73", "#d55e00", "#dfe3e8", "#1f2933", "#e4e7eb"
MOST_TEAMS: Final = len(COLOURS) - 1
LEAST_WAIT_S: Final = 1.0  # where a logarithmic axis of waits begins; shorter ones are drawn there
_TICKS: Final = ((1, "1 s"), (60, "1 min"), (3_600, "1 h"), (86_400, "1 d"), (864_000, "10 d"), (8_640_000, "100 d"))
_STYLE: Final[Any] = {
    "svg.hashsalt": "sbridge",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "text.color": INK,
    "xtick.color": "#52606d",
    "ytick.color": "#52606d",
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def check() -> None:
    """Raise InvalidInputError with the way out when matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidInputError(
            "--output html draws with matplotlib, which is not installed: install the extra `report` "
            "(slurm-kube-bridge[report]), or use --output json"
        )


def svg(rows: int, height: float, draw: Callable[..., None], *, columns: int = 1, share_y: bool = False) -> str:
    """Return one figure of rows x columns panels as an SVG element; `draw` gets the panels in order."""
    check()
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDE, height), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
        draw(*panels.flat)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    element = text[text.index("<svg") :]
    return re.sub(r'^<svg ([^>]*?)width="[^"]*" ', r"<svg \1", re.sub(r'height="[^"]*pt" ', "", element, count=1))


def use_by_team(outcomes: Sequence[Outcome], bins: Bins) -> str:
    """Draw use over time, stacked by team, one panel for each policy."""
    by_team = [series.held(outcome, bins, lambda job: str(job.team)) for outcome in outcomes]
    names = list(series.largest(by_team[0], MOST_TEAMS, "other teams"))

    def draw(*panels: Any) -> None:
        for panel, outcome, sums in zip(panels, outcomes, by_team, strict=True):
            own = [sums.get(name, [0.0] * bins.count) for name in names if name != "other teams"]
            rest = [values for name, values in sorted(sums.items()) if name not in names]
            if rest:
                own.append([sum(values) for values in zip(*rest, strict=True)])
            labels = names if len(own) == len(names) else names[: len(own)]
            colours = [*COLOURS[: len(labels)]]
            if labels[-1] == "other teams":
                colours[-1] = COLOURS[-1]
            panel.stackplot(_days(bins), own, labels=labels, colors=colours, linewidth=0)
            _fleet(panel, outcome, bins)
            panel.set_title(outcome.case.policy.value)
            panel.set_ylabel("GPUs held")
            _dates(panel, bins, named=panel is panels[-1])
        panels[0].legend(loc="upper left", ncols=5, fontsize=7.5)

    return svg(len(outcomes), 2.1 * len(outcomes) + 0.4, draw)


def use_by_system(outcomes: Sequence[Outcome], bins: Bins) -> str:
    """Draw use over time by system, with what of it was lost, one panel for each policy."""

    def draw(*panels: Any) -> None:
        for panel, outcome in zip(panels, outcomes, strict=True):
            sums = series.held(outcome, bins, lambda job: job.system.value)
            names = sorted(sums)
            colours = [SYSTEM_COLOURS[name] for name in names]
            panel.stackplot(_days(bins), [sums[name] for name in names], labels=names, colors=colours, linewidth=0)
            lost = series.lost(outcome, bins)
            if any(lost):
                panel.fill_between(_days(bins), lost, color=LOST, linewidth=0, label="lost to preemption")
            _fleet(panel, outcome, bins)
            panel.set_title(outcome.case.policy.value)
            panel.set_ylabel("GPUs held")
            panel.legend(loc="upper left", ncols=4, fontsize=7.5)
            _dates(panel, bins, named=panel is panels[-1])

    return svg(len(outcomes), 1.7 * len(outcomes) + 0.4, draw)


def waiting(outcomes: Sequence[Outcome], bins: Bins) -> str:
    """Draw the GPUs that waiting jobs asked for over time."""

    def draw(panel: Any) -> None:
        for outcome in outcomes:
            policy = outcome.case.policy.value
            asked = series.waiting(outcome, bins)
            panel.plot(_days(bins), asked, color=POLICY_COLOURS[policy], linewidth=1.1, label=policy)
        panel.set_ylabel("GPUs asked for")
        panel.set_ylim(bottom=0)
        panel.legend(loc="upper left", ncols=4, fontsize=8)
        _dates(panel, bins)

    return svg(1, 2.3, draw)


def use_against_guarantee(outcomes: Sequence[Outcome], bins: Bins, teams: Sequence[str]) -> str:
    """Draw one small panel for each team: what it held under each policy, and its guarantee."""
    by_team = [series.held(outcome, bins, lambda job: str(job.team)) for outcome in outcomes]
    columns = 3
    rows = -(-len(teams) // columns)

    def draw(*panels: Any) -> None:
        for panel, team in zip(panels, teams, strict=False):
            for outcome, sums in zip(outcomes, by_team, strict=True):
                policy = outcome.case.policy.value
                panel.plot(
                    _days(bins), sums.get(team, [0.0] * bins.count), color=POLICY_COLOURS[policy], linewidth=0.8,
                    label=policy,
                )  # fmt: skip
            guarantee = next((each for each in (o.case.guarantees.get(team) for o in outcomes) if each is not None), 0)  # type: ignore[call-overload]
            panel.axhline(guarantee, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), label="guarantee")
            panel.set_title(f"{team}: {guarantee} guaranteed")
            panel.set_ylim(bottom=0)
            _dates(panel, bins, most=3)
        for panel in panels[len(teams) :]:
            panel.set_visible(False)
        panels[0].legend(loc="upper right", fontsize=7)

    return svg(rows, 1.75 * rows + 0.2, draw, columns=columns)


def wait_curves(outcomes: Sequence[Outcome], comparable: frozenset[Any]) -> str:
    """Draw the share of jobs that waited at most so long: all, and each size class."""
    told = {
        outcome.case.policy.value: [wait for wait in figures.waits(outcome) if wait.job.id in comparable]
        for outcome in outcomes
    }
    groups: list[tuple[str, dict[str, list[int]]]] = [
        ("all jobs", {policy: sorted(wait.wait_ms for wait in waits) for policy, waits in told.items()})
    ]
    for *_, name in figures.SIZES:
        chosen = {policy: sorted(figures.by_size(waits)[name]) for policy, waits in told.items()}
        if any(chosen.values()):
            groups.append((f"{name} GPU{'s' if name != '1' else ''}", chosen))
    rows = -(-len(groups) // 3)

    def draw(*panels: Any) -> None:
        for panel, (title, waits) in zip(panels, groups, strict=False):
            for policy, values in waits.items():
                xs, ys = _curve(values)
                panel.step(xs, ys, where="post", color=POLICY_COLOURS[policy], linewidth=1.4, label=policy)
            count = max(len(values) for values in waits.values())
            panel.set_title(f"{title} ({count:,})")
            _wait_axis(panel, max(values[-1] for values in waits.values() if values))
            panel.set_ylim(0, 101)
        for panel in panels[len(groups) :]:
            panel.set_visible(False)
        panels[0].set_ylabel("% of jobs that waited at most")
        panels[0].legend(loc="lower right", fontsize=8)

    return svg(rows, 2.2 * rows + 0.2, draw, columns=3)


def wait_by_team(policies: Sequence[Mapping[str, Any]]) -> str:
    """Draw each team's p95 wait under each policy."""
    teams = [team for team, each in policies[0]["waits"]["by_team"].items() if each["jobs"]]
    teams.sort(key=lambda team: (-policies[0]["waits"]["by_team"][team]["jobs"], team))

    def draw(panel: Any) -> None:
        longest = 1.0
        for shift, policy in enumerate(policies):
            waits = [policy["waits"]["by_team"].get(team, {"p95_s": 0})["p95_s"] for team in teams]
            longest = max(longest, *waits)
            rows = [index + (shift - (len(policies) - 1) / 2) * 0.18 for index in range(len(teams))]
            name = policy["policy"]
            panel.scatter(
                [max(LEAST_WAIT_S, wait) for wait in waits],
                rows,
                s=34,
                color=POLICY_COLOURS[name],
                label=name,
                zorder=3,
            )
        for index, team in enumerate(teams):
            ends = [
                max(LEAST_WAIT_S, policy["waits"]["by_team"].get(team, {"p95_s": 0})["p95_s"]) for policy in policies
            ]
            panel.plot([min(ends), max(ends)], [index, index], color="#cbd2d9", linewidth=1.6, zorder=2)
        panel.set_yticks(range(len(teams)), teams)
        panel.invert_yaxis()
        panel.grid(visible=False, axis="y")
        _wait_axis(panel, round(longest * 1000))
        panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)

    return svg(1, 0.27 * len(teams) + 0.8, draw)


def gpu_time(policies: Sequence[Mapping[str, Any]], window: str) -> str:
    """Draw how the GPU time of a window was spent, one bar for each policy."""

    def draw(panel: Any) -> None:
        for row, policy in enumerate(policies):
            spent, left = policy[window], 0.0
            for part, colour in (("useful", USEFUL), ("lost", LOST), ("idle", IDLE)):
                share = 100 * spent[f"{part}_gpu_h"] / spent["available_gpu_h"] if spent["available_gpu_h"] else 0
                panel.barh(row, share, left=left, color=colour, height=0.62, label=part if row == 0 else None)
                if share > 4:  # noqa: PLR2004  # narrower than its text
                    white = part != "idle"
                    panel.text(
                        left + share / 2, row, f"{share:.1f}%", ha="center", va="center", fontsize=8,
                        color="white" if white else INK,
                    )  # fmt: skip
                left += share
        panel.set_yticks(range(len(policies)), [policy["policy"] for policy in policies])
        panel.invert_yaxis()
        panel.grid(visible=False)
        panel.set_xlim(0, 100)
        panel.set_xlabel("% of the fleet's GPU time")
        panel.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8)

    return svg(1, 0.42 * len(policies) + 1.0, draw)


def preemptions(outcome: Outcome, bins: Bins) -> str:
    """Draw victims over time, and the GPU-hours that had to be done again, by team."""
    lost: dict[str, dict[str, float]] = {"for": {}, "from": {}}
    for each in outcome.taken:
        lost["for"][each.for_team] = lost["for"].get(each.for_team, 0) + each.lost_gpu_ms / 3_600_000
        lost["from"][each.from_team] = lost["from"].get(each.from_team, 0) + each.lost_gpu_ms / 3_600_000

    def draw(*panels: Any) -> None:
        days = [(each.at_ms - bins.from_ms) / 86_400_000 for each in outcome.taken]
        weights = [each.gpus for each in outcome.taken]
        end = (bins.to_ms - bins.from_ms) / 86_400_000
        panels[0].hist(days, bins=80, range=(0, end), weights=weights, color=POLICY_COLOURS[outcome.case.policy.value])
        panels[0].set_title("GPUs taken back over time")
        _dates(panels[0], bins, most=3)
        teams = sorted({*lost["for"], *lost["from"]}, key=lambda team: (-lost["from"].get(team, 0), team))[:15]
        rows = range(len(teams))
        panels[1].barh(rows, [lost["from"].get(team, 0) for team in teams], color=LOST, label="lost by")
        panels[1].barh(rows, [-lost["for"].get(team, 0) for team in teams], color="#56b4e9", label="lost for")
        panels[1].set_yticks(rows, teams)
        panels[1].invert_yaxis()
        panels[1].axvline(0, color=INK, linewidth=0.8)
        panels[1].set_title("GPU-hours to do again, by team")
        panels[1].xaxis.set_major_formatter(lambda value, _at: f"{abs(value):,.0f}")
        panels[1].legend(loc="lower right", fontsize=8)

    return svg(1, 3.0, draw, columns=2)


def _days(bins: Bins) -> list[float]:
    return [(start - bins.from_ms) / 86_400_000 for start in bins.starts_ms()]


def _fleet(panel: Any, outcome: Outcome, bins: Bins) -> None:
    panel.axhline(outcome.case.gpus, color=INK, linewidth=0.9, linestyle=(0, (1, 1.5)))
    days = (bins.to_ms - bins.from_ms) / 86_400_000
    panel.text(days, outcome.case.gpus, f" {outcome.case.gpus}", va="center", fontsize=7.5)
    panel.set_ylim(0, outcome.case.gpus * 1.32)


def _dates(panel: Any, bins: Bins, most: int = 8, *, named: bool = True) -> None:
    """Mark days since the start; name them by dates, or by numbers where the trace has no dates."""
    days = (bins.to_ms - bins.from_ms) / 86_400_000
    step = max(1, math.ceil(days / most))
    at = list(range(0, int(days) + 1, step))
    began = datetime.fromtimestamp(bins.from_ms / 1000, UTC)
    dated = bins.from_ms > 365 * 86_400_000
    labels = [
        f"{datetime.fromtimestamp(bins.from_ms / 1000 + day * 86_400, UTC):%d %b}" if dated else f"day {day}"
        for day in at
    ]
    if dated:
        labels[0] = f"{began:%d %b %Y}"
    panel.set_xticks(at, labels if named else [""] * len(at))
    panel.set_xlim(0, days)


def _curve(values: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return at most some hundred points of a distribution, in seconds and per cent."""
    if not values:
        return [], []
    step = max(1, len(values) // 400)
    chosen = [*range(0, len(values), step), len(values) - 1]
    xs = [max(LEAST_WAIT_S, values[index] / 1000) for index in chosen]
    return xs, [100 * (index + 1) / len(values) for index in chosen]


def _wait_axis(panel: Any, longest_ms: int) -> None:
    most_s = max(120.0, longest_ms / 1000 * 1.5)
    panel.set_xscale("log")
    panel.set_xlim(LEAST_WAIT_S * 0.9, most_s)
    ticks = [(seconds, label) for seconds, label in _TICKS if seconds <= most_s]
    panel.set_xticks([seconds for seconds, _ in ticks], [label if s > 1 else "≤ 1 s" for s, label in ticks])
    panel.minorticks_off()
