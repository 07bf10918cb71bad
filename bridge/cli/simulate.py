"""The options of `sbridge simulate`. What it does is in bridge.cli.rehearsal, which is imported when it is used."""

from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.forms import Form
from bridge.simulate.model import PolicyName, Settings

MINUTE_MS, DAY_MS = 60_000, 86_400_000


def simulate(
    jobs: Annotated[
        list[Path] | None, typer.Option("--jobs", help="CSV of jobs: timestamp,duration,num_gpus,cluster")
    ] = None,
    pods: Annotated[
        list[Path] | None, typer.Option("--pods", help="CSV of pods: name,num_gpu,creation_time,deletion_time,...")
    ] = None,
    sacct: Annotated[
        list[Path] | None, typer.Option("--sacct", help="what `sacct -P` printed, with its header")
    ] = None,
    teams: Annotated[
        Path | None,
        typer.Option(help="YAML of Teams: as kubectl prints them, or short; without it, one per name in the trace"),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of the fleet, in equal nodes")] = None,
    node_gpus: Annotated[int, typer.Option("--node-gpus", min=1, help="GPUs of each such node")] = 8,
    nodes: Annotated[Path | None, typer.Option(help="CSV or YAML of the fleet's nodes, instead of --gpus")] = None,
    policy: Annotated[
        list[PolicyName] | None, typer.Option("--policy", "-p", help="give several to compare; default: shared, static")
    ] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="json, or one self-contained html page")] = Form.JSON,
    to: Annotated[Path | None, typer.Option("--to", help="write the output to this file")] = None,
    events: Annotated[Path | None, typer.Option(help="write every event to this CSV file")] = None,
    flavor: Annotated[str | None, typer.Option(help="which flavor's quotas count, when teams have several")] = None,
    checkpoint_minutes: Annotated[
        float, typer.Option("--checkpoint-minutes", min=0, help="a preempted job loses what it did since; 0: all")
    ] = 0,
    grace_seconds: Annotated[
        float, typer.Option("--grace-seconds", min=0, help="between a victim's signal and its end")
    ] = 30,
    min_runtime_minutes: Annotated[
        float, typer.Option("--min-runtime-minutes", min=0, help="no work is taken back before it ran this long")
    ] = 0,
    half_life_days: Annotated[
        float, typer.Option("--half-life-days", min=0, max=3650, help="of the past use that fair share counts; 0: none")
    ] = 7,
    limit_factor: Annotated[
        float, typer.Option("--limit-factor", min=0, max=1000, help="guess time limits: so many times the run time")
    ] = 0,
    seed: Annotated[int, typer.Option(help="of what is drawn at random (guessed time limits)")] = 0,
) -> None:
    """Rehearse policies on a trace: who waits how long, what is lost, what stays idle. Asks no bridge."""
    from bridge.cli import rehearsal
    from bridge.simulate import scenarios

    settings = Settings(
        checkpoint_ms=round(checkpoint_minutes * MINUTE_MS),
        grace_ms=round(grace_seconds * 1000),
        min_runtime_ms=round(min_runtime_minutes * MINUTE_MS),
        half_life_ms=round(half_life_days * DAY_MS),
        limit_factor=limit_factor,
        seed=seed,
    )
    files = scenarios.Files(jobs or (), pods or (), sacct or (), teams, nodes, gpus, node_gpus, flavor)
    rehearsal.run(files, settings, tuple(policy or (PolicyName.SHARED, PolicyName.STATIC)), output, to, events)
