"""sbridge, also installed as kubectl-bridge. Clients and tables are imported by the command that needs them.

Exit codes: 0 ok · 1 the bridge refused, or a problem was found · 2 bad usage · 3 not authenticated or not allowed ·
4 no workload matches, or several do · 5 the bridge cannot be reached, or cannot know now.
"""

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

import typer

from bridge.cli.faults import CliError, Exit
from bridge.cli.output import Output, Report
from bridge.cli.simulate import simulate

if TYPE_CHECKING:
    from bridge.cli.client import Client

P = ParamSpec("P")
R = TypeVar("R")

app = typer.Typer(
    help="Slurm and Kubernetes as one platform: who holds which GPU, who waits, and why.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
ledger = typer.Typer(help="The ledger: its journal, and the proof that it adds up.", no_args_is_help=True)
app.add_typer(ledger, name="ledger")

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table for people, json for machines")]
Workload = Annotated[
    str, typer.Argument(help="JobId (123, 123_4), pod/NS/NAME, job/NS/NAME, a workload's id or its name")
]


def sentences(command: Callable[P, R]) -> Callable[P, R]:
    """End a command that failed with its one sentence on stderr and its exit code."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except CliError as error:
            typer.echo(f"sbridge: {error.sentence}", err=True)
            raise typer.Exit(error.code) from error

    return wrapped


def client() -> "Client":
    """Connect as the environment says."""
    from bridge.cli import client as api
    from bridge.cli import login

    return api.Client(login.connect(os.environ))


@app.command()
@sentences
def status(output: OutputOption = Output.TABLE) -> None:
    """Show health, nodes with their holders, and teams."""
    from bridge.cli import overview

    overview.show(client(), output)


@app.command()
@sentences
def queue(
    output: OutputOption = Output.TABLE,
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", help="waiting, refused, granted, running, ending, ended")
    ] = None,
    team: Annotated[str | None, typer.Option("--team", "-t", help="only this team's")] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="also work that is over")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="redraw until interrupted")] = False,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="seconds between two looks of --watch")] = 2.0,
) -> None:
    """Show who waits (by age), runs and ends."""
    from bridge.api.views import State
    from bridge.cli import tables, terminal

    known = [str(each) for each in State]
    if unknown := [each for each in state or () if each not in known]:
        raise CliError(Exit.USAGE, f"--state={unknown[0]!r} is no state: choose from {', '.join(known)}")

    if watch and output is Output.JSON:
        raise CliError(Exit.USAGE, "--watch draws a table: leave out --output json, or --watch")
    bridge, states = client(), known if all_ else (state or ())
    if watch:
        terminal.watch(lambda: tables.queue(bridge.queue(states=states, team=team).view.items), interval)
        return
    answer = bridge.queue(states=states, team=team)
    terminal.show(output, answer.document, lambda: tables.queue(answer.view.items))


@app.command()
@sentences
def quota(output: OutputOption = Output.TABLE) -> None:
    """Show each team's guarantee, limit and use in both systems."""
    from bridge.cli import tables, terminal

    answer = client().quota()
    terminal.show(output, answer.document, lambda: tables.quota(answer.view.items))


@app.command()
@sentences
def explain(workload: Workload, output: OutputOption = Output.TABLE) -> None:
    """Say what happened to a workload, and why it waits."""
    from bridge.cli import explanation, terminal

    answer = client().explain(workload)
    terminal.show(output, answer.document, lambda: explanation.page(answer.view, now_ms=_now_ms()))


@app.command()
@sentences
def cancel(
    workloads: Annotated[list[str], typer.Argument(metavar="WORKLOAD...", help="as for explain")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Cancel workloads; repeated until their end is confirmed."""
    from bridge.cli import tables, terminal

    bridge, code = client(), Exit.OK
    for workload in workloads:
        try:
            answer = bridge.cancel(workload)
        except CliError as error:
            terminal.complain(error.sentence)
            code = code or error.code
            continue
        view = answer.view
        said = f"cancel of {workload} is {view.state}" + (f": {view.text}" if view.text else "")
        terminal.show(output, answer.document, functools.partial(tables.cell, said))
    raise typer.Exit(code)


@app.command()
@sentences
def usage(
    from_: Annotated[
        str,
        typer.Option("--from", help="a day (2026-12-01), a time, an age (7d or -7d, 24h, 90m), today, or month"),
    ] = "month",
    to: Annotated[str, typer.Option("--to", help="likewise, or now")] = "now",
    by: Annotated[
        str, typer.Option("--by", help="team, user, system, flavor, and day or month (UTC), with commas")
    ] = "team,system,flavor",
    output: Annotated[
        Report, typer.Option("--output", "-o", help="table for people; csv and json have the exact milliseconds")
    ] = Report.TABLE,
) -> None:
    """Show the GPU-hours held while running: your teams', or everybody's for an admin. By default, of this month."""
    from bridge.cli import reports, terminal

    answer = client().usage(start=from_, end=to, by=by)
    if output is Report.CSV:
        sys.stdout.write(reports.csv(answer.view))
        return
    terminal.show(Output(output), answer.document, lambda: reports.usage(answer.view))


@app.command()
@sentences
def version(
    client_only: Annotated[bool, typer.Option("--client", help="do not ask the bridge")] = False,
) -> None:
    """Show the versions of this command and of the bridge."""
    import importlib.metadata

    try:
        own = importlib.metadata.version("slurm-kube-bridge")
    except importlib.metadata.PackageNotFoundError:
        own = "(not installed as a package)"
    typer.echo(f"sbridge {own}")
    if not client_only:
        typer.echo(f"bridge {client().status().view.version}")


@ledger.command("log")
@sentences
def ledger_log(
    after: Annotated[int | None, typer.Option(min=0, help="entries after this one, oldest first")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="at most this many")] = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show journal entries; without --after, the newest."""
    from bridge.cli import tables, terminal

    bridge = client()
    start = after if after is not None else max(0, bridge.status().view.ledger_seq - limit)
    answer = bridge.entries(after=start, limit=limit)
    terminal.show(output, answer.document, lambda: tables.entries(answer.view.items, now_ms=_now_ms()))


@ledger.command("verify")
@sentences
def ledger_verify(output: OutputOption = Output.TABLE) -> None:
    """Recompute every balance and grant from entry 1; exit code 1 when something differs."""
    from bridge.cli import pages, terminal

    answer = client().verify()
    terminal.show(output, answer.document, lambda: pages.verify(answer.view))
    raise typer.Exit(Exit.OK if answer.view.clean else Exit.REFUSED)


app.command()(sentences(simulate))


def run() -> None:
    """Entry of both commands; kubectl finds the second by its name."""
    called = Path(sys.argv[0]).name
    app(prog_name="kubectl bridge" if called.startswith("kubectl-") else "sbridge")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    run()
