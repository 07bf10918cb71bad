"""Jobs and pods of public trace formats. A broken row is told and counted, and the others are used."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from bridge.errors import InvalidInputError
from bridge.quota.model import TeamName
from bridge.simulate import fields
from bridge.simulate.fields import Row
from bridge.simulate.model import Job, Reading
from bridge.workloads.model import System, WorkloadId

SERVING: Final = TeamName("serving")
"""Whose pods are, where the table does not say."""

NO_GPU: Final = "asks for no GPU"
NO_TIME: Final = "ran for no time"
UNTIL_END: Final = "has no end"
_SHARES: Final = 1000  # gpu_milli of a whole GPU

Reader = Callable[[Row], Job | str]
"""From a row to a job, or to the reason why it is left out; InvalidInputError for a broken one."""


def jobs(path: Path) -> Reading:
    """Read `timestamp,duration,num_gpus,cluster`: submission, run time in seconds, GPUs, and whose it is."""
    reading = Reading(str(path))
    for row in fields.table(path, required=("timestamp", "duration", "num_gpus", "cluster")):
        add(reading, row, _job)
    return reading


def pods(path: Path) -> Reading:
    """Read pods: `name, num_gpu, creation_time, deletion_time`; and where there are, gpu_milli, gpu_spec, team.

    A pod runs as long as from scheduled_time (else creation_time) to deletion_time.
    """
    reading = Reading(str(path))
    shares = 0
    for row in fields.table(path, required=("name", "num_gpu", "creation_time", "deletion_time")):
        add(reading, row, _pod)
        milli = row.text("gpu_milli")
        shares += milli.isdigit() and 0 < int(milli) < _SHARES
    if shares:
        reading.notes.append(f"{path}: {shares} pods ask for a part of a GPU; each is counted as a whole one")
    return reading


def add(reading: Reading, row: Row, reader: Reader) -> None:
    """Put a row where it belongs: used, left out, or broken."""
    reading.rows += 1
    try:
        row.check()
        found = reader(row)
    except InvalidInputError as error:
        reading.faults.append(str(error))
        return
    if isinstance(found, str):
        reading.skipped[found] += 1
    else:
        reading.jobs.append(found)


def _job(row: Row) -> Job | str:
    gpus, duration_ms = row.whole("num_gpus"), row.seconds_ms("duration")
    team = row.text("cluster")
    if not team:
        raise row.wrong("cluster", "names no team; give the virtual cluster that the job belongs to")
    submitted_ms = row.moment_ms("timestamp")
    if not gpus or not duration_ms:
        return NO_TIME if gpus else NO_GPU
    return Job(
        WorkloadId(f"slurm/jobs/{row.line}"), TeamName(team), System.SLURM, gpus, submitted_ms, duration_ms
    )  # fmt: skip


def _pod(row: Row) -> Job | str:
    gpus, name = row.whole("num_gpu"), row.text("name")
    if not name:
        raise row.wrong("name", "is empty; give the pod's name")
    if not gpus:
        return NO_GPU
    created_ms = row.moment_ms("creation_time")
    began = "scheduled_time" if row.text("scheduled_time") else "creation_time"
    if not row.text("deletion_time"):
        return UNTIL_END
    duration_ms = row.moment_ms("deletion_time") - row.moment_ms(began)
    if duration_ms < 0:
        raise row.wrong("deletion_time", f"is before {began}={row.text(began)}; correct one of them")
    if not duration_ms:
        return NO_TIME
    team = row.first("team", "cluster", "namespace") or SERVING
    models = frozenset(filter(None, (model.strip() for model in row.text("gpu_spec").split("|"))))
    return Job(
        WorkloadId(f"pod/{name}"), TeamName(team), System.KUBERNETES, gpus, created_ms, duration_ms, nodes=1,
        models=models,
    )  # fmt: skip
