"""The event log: everything that happened, one line each, for checks that do not trust the figures here.

Columns: policy, time_ms, event, workload, team, gpus, nodes. Events: `submit`; `refuse` (it can never run under this
policy); `start` (on nodes, `name=devices` joined by `;`); `signal` (a victim is told to go); `requeue` (it went, and
waits again); `end`.
"""

import csv
from types import TracebackType
from typing import Self, TextIO

from bridge.simulate.cases import Case
from bridge.simulate.engine import Log
from bridge.workloads.model import Workload

COLUMNS = ("policy", "time_ms", "event", "workload", "team", "gpus", "nodes")


class EventLog:
    """Writes events as they happen."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._write = csv.writer(file, lineterminator="\n").writerow
        self._write(COLUMNS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def of(self, case: Case) -> Log:
        """Return what writes the events of one case; writes what that refuses at once.

        The team is the job's own, also where a policy knows no teams.
        """
        policy = case.policy.value
        teams = {workload.id: job.team for job, workload in case.work}
        for each in case.refused:
            job = each.job
            self._write((policy, job.submitted_ms, "refuse", job.id, job.team, job.gpus, ""))

        def write(at_ms: int, event: str, workload: Workload, nodes: str) -> None:
            self._write((policy, at_ms, event, workload.id, teams[workload.id], workload.gpus, nodes))

        return write
