"""Jobs of Slurm's accounting, as `sacct -P` prints them: columns by name, separated by `|`.

Used: JobID, Account, Submit, Start, End or Elapsed(Raw), AllocTRES or ReqTRES; where there are: NNodes, Timelimit.
Steps (`123.batch`) are parts of their job, and are left out.
"""

import re
from pathlib import Path
from typing import Final

from bridge.quota.model import TeamName
from bridge.simulate import fields, traces
from bridge.simulate.fields import Row
from bridge.simulate.model import Job, Reading
from bridge.workloads.model import System, WorkloadId

STEP: Final = "is a step of a job"
NEVER_RAN: Final = "never ran"
STILL_RUNS: Final = "had not ended"

_GPUS: Final = re.compile(r"(?:^|,)gres/gpu(?::[^=,]+)?=(\d+)")
_WHOLE_GPUS: Final = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_SPAN: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_NO_LIMIT: Final = ("", "UNLIMITED", "Partition_Limit", "INVALID")
_UNKNOWN: Final = ("", "Unknown", "None", "N/A")


def jobs(path: Path) -> Reading:
    """Read `sacct -P` with its header. Times without a zone are taken as they stand."""
    reading = Reading(str(path))
    for row in fields.table(path, required=("JobID", "Account", "Submit"), delimiter="|"):
        traces.add(reading, row, _job)
    seen: dict[WorkloadId, int] = {}
    for index, job in enumerate(reading.jobs):  # a requeued job is printed once for each of its runs (sacct -D)
        seen[job.id] = seen.get(job.id, 0) + 1
        if seen[job.id] > 1:
            again = WorkloadId(f"{job.id}~{seen[job.id]}")
            reading.jobs[index] = Job(
                again, job.team, job.system, job.gpus, job.submitted_ms, job.duration_ms, job.nodes, job.time_limit_s
            )  # fmt: skip
    return reading


def _job(row: Row) -> Job | str:
    name = row.text("JobID")
    if not name:
        raise row.wrong("JobID", "is empty; print the column with sacct -o JobID,...")
    if "." in name:
        return STEP
    gpus = _devices(row.text("AllocTRES")) or _devices(row.text("ReqTRES"))
    if not gpus:
        return traces.NO_GPU
    if row.text("Start") in _UNKNOWN and "Start" in row.values:
        return NEVER_RAN
    if row.text("End") in _UNKNOWN and "End" in row.values:
        return STILL_RUNS
    duration_ms = _elapsed_ms(row)
    if not duration_ms:
        return traces.NO_TIME
    team = row.text("Account")
    if not team:
        raise row.wrong("Account", "names no account; accounts are the teams")
    nodes = row.whole("NNodes") if row.text("NNodes") else 0
    return Job(
        WorkloadId(f"slurm/sacct/{name}"), TeamName(team), System.SLURM, gpus, row.moment_ms("Submit"), duration_ms,
        nodes=nodes if nodes and gpus % nodes == 0 else None,
        time_limit_s=_limit_s(row),
    )  # fmt: skip


def _devices(tres: str) -> int:
    """Return GPUs of a TRES list: gres/gpu when it is there, which counts every type, else the types' sum."""
    whole = _WHOLE_GPUS.search(tres)
    return int(whole.group(1)) if whole else sum(map(int, _GPUS.findall(tres)))


def _elapsed_ms(row: Row) -> int:
    if row.text("ElapsedRaw"):
        return row.seconds_ms("ElapsedRaw")
    if row.text("Elapsed"):
        return _span_s(row, "Elapsed") * 1000
    began, ended = row.moment_ms("Start"), row.moment_ms("End")
    if ended < began:
        raise row.wrong("End", f"is before Start={row.text('Start')}; correct one of them")
    return ended - began


def _limit_s(row: Row) -> int | None:
    if row.text("TimelimitRaw").isdigit():
        return int(row.text("TimelimitRaw")) * 60
    return None if row.text("Timelimit") in _NO_LIMIT else _span_s(row, "Timelimit")


def _span_s(row: Row, field: str) -> int:
    found = _SPAN.fullmatch(row.text(field))
    if found is None:
        raise row.wrong(field, "is no span; sacct prints [days-]hours:minutes:seconds")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
