"""Runs `sbridge simulate`: reads the files, runs each policy, writes the answer. Tells on stderr what is not used."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bridge.cli.faults import CliError, Exit
from bridge.cli.forms import Form
from bridge.cli.terminal import complain
from bridge.errors import InvalidInputError
from bridge.simulate import cases, comparison, eventlog, report, scenarios
from bridge.simulate.engine import Engine
from bridge.simulate.model import PolicyName, Reading, Scenario, Settings
from bridge.simulate.outcome import Outcome

SHOWN_FAULTS = 5


def run(
    files: scenarios.Files,
    settings: Settings,
    policies: Sequence[PolicyName],
    form: Form,
    to: Path | None,
    events: Path | None,
) -> None:
    """Do all of it; CliError with one sentence when it cannot be done."""
    if form is Form.HTML:
        _check_page(to)
    try:
        scenario, readings = scenarios.load(files, settings)
        _tell(readings)
        outcomes = _outcomes(scenario, tuple(dict.fromkeys(policies)), events)
        document = comparison.summary(scenario, readings, outcomes)
        text = report.page(scenario, document, outcomes) if form is Form.HTML else json.dumps(document, indent=2)
    except InvalidInputError as error:
        raise CliError(Exit.USAGE, str(error)) from error
    _write(text + "\n", to)


def _check_page(to: Path | None) -> None:
    """Refuse early what would fail, or fill a terminal with HTML, after minutes of work."""
    if to is None and sys.stdout.isatty():
        raise CliError(Exit.USAGE, "a page of HTML is no reading for a terminal: name a file with --to")
    try:
        report.check()
    except InvalidInputError as error:
        raise CliError(Exit.USAGE, str(error)) from error


def _tell(readings: Sequence[Reading]) -> None:
    """Say on stderr what is not used, and why."""
    for reading in readings:
        for fault in reading.faults[:SHOWN_FAULTS]:
            complain(fault)
        if reading.faults:
            complain(f"{reading.source}: {len(reading.faults)} of {reading.rows} rows are broken and not used")
        for reason, count in sorted(reading.skipped.items()):
            complain(f"{reading.source}: {count} of {reading.rows} rows left out: {reason}")
        for note in reading.notes:
            complain(note)


def _outcomes(scenario: Scenario, policies: Sequence[PolicyName], events: Path | None) -> list[Outcome]:
    outcomes = []
    with contextlib.ExitStack() as stack:
        log = None
        if events is not None:
            try:
                log = stack.enter_context(eventlog.EventLog(events.open("w", encoding="utf-8", newline="")))
            except OSError as error:
                raise CliError(Exit.USAGE, f"--events {events}: cannot be written: {error.strerror}") from error
        for policy in policies:
            case = cases.make(policy, scenario)
            engine = Engine(case, scenario.settings, None if log is None else log.of(case))
            with _progress(policy, len(case.work)) as progress:
                outcomes.append(engine.run(progress))
    return outcomes


@contextlib.contextmanager
def _progress(policy: PolicyName, jobs: int) -> Iterator[Callable[[int], None] | None]:
    """Show a bar on stderr, to a person only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(policy.value, total=jobs)
        yield lambda ended: bar.update(task, completed=ended)


def _write(text: str, to: Path | None) -> None:
    if to is None:
        sys.stdout.write(text)
        return
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(Exit.USAGE, f"--to {to}: cannot be written: {error.strerror}; choose another file") from error
