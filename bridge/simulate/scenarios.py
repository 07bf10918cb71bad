"""From files to one scenario. Nothing is dropped without a word: see Reading, and the notes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bridge.errors import InvalidInputError
from bridge.simulate import accounting, fleet, teams, traces
from bridge.simulate.model import Job, Node, Reading, Scenario, Settings

RELATIVE_BELOW_MS: Final = 1_000_000_000_000
"""Times below (September 2001) count from a trace's own start, not from 1970."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where everything is read from."""

    jobs: Sequence[Path] = ()
    pods: Sequence[Path] = ()
    sacct: Sequence[Path] = ()
    teams: Path | None = None
    nodes: Path | None = None
    gpus: int | None = None
    node_gpus: int = fleet.NODE_GPUS
    flavor: str | None = None


def load(files: Files, settings: Settings) -> tuple[Scenario, tuple[Reading, ...]]:
    """Read everything; InvalidInputError where nothing can be run."""
    if not (files.jobs or files.pods or files.sacct):
        raise InvalidInputError("no demand: give --jobs, --pods or --sacct")
    if (files.nodes is None) == (files.gpus is None):
        raise InvalidInputError("give the fleet by either --gpus N or --nodes FILE")
    readings = (
        *_read(files.jobs, traces.jobs),
        *_read(files.pods, traces.pods),
        *_read(files.sacct, accounting.jobs),
    )
    _align(readings)
    found = [job for reading in readings for job in reading.jobs]
    if not found:
        named = ", ".join(reading.source for reading in readings)
        fault = next((fault for reading in readings for fault in reading.faults), "")
        raise InvalidInputError(f"{named}: no row can be used{f'; the first is broken: {fault}' if fault else ''}")
    nodes = fleet.read(files.nodes) if files.nodes else fleet.equal(files.gpus or 0, files.node_gpus)
    return _scenario(found, nodes, files, settings), readings


def _read(paths: Iterable[Path], reader: Callable[[Path], Reading]) -> list[Reading]:
    return [reader(path) for path in paths]


def _align(readings: Sequence[Reading]) -> None:
    """Put files whose times count from their own start beside those with real times: both begin together."""
    starts = {reading.source: min(job.submitted_ms for job in reading.jobs) for reading in readings if reading.jobs}
    real = [start for start in starts.values() if start >= RELATIVE_BELOW_MS]
    for reading in readings if real else ():
        start = starts.get(reading.source, RELATIVE_BELOW_MS)
        if start < RELATIVE_BELOW_MS:
            shift = min(real) - start
            reading.jobs = [replace(job, submitted_ms=job.submitted_ms + shift) for job in reading.jobs]
            reading.notes.append(
                f"{reading.source}: its times are no dates: its first submission is set on the others'"
            )


def _scenario(found: list[Job], nodes: tuple[Node, ...], files: Files, settings: Settings) -> Scenario:
    known = teams.by_demand(found, nodes) if files.teams is None else teams.read(files.teams, files.flavor)
    jobs = sorted(map(known.rename, found), key=lambda job: (job.submitted_ms, job.id))
    twice = _repeated(jobs)
    if twice:
        raise InvalidInputError(f"{twice} is there twice: give each file once")
    return Scenario(tuple(jobs), nodes, known.terms, settings, teams_given=files.teams is not None)


def _repeated(jobs: Iterable[Job]) -> str:
    seen: set[str] = set()
    for job in jobs:
        if job.id in seen:
            return job.id
        seen.add(job.id)
    return ""
