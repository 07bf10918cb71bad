"""What must hold once work is over: seen in the scripts' own lines, in Slurm's records and in the ledger."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from bridge.ledger.port import Entry
from bridge.slurm import comment
from bridge.workloads import slurmjobs
from bridge.workloads.model import Grant, WorkloadId
from tests.integration import steps
from tests.integration.bridgebox import BridgeBox
from tests.integration.setting import CLUSTER
from tests.integration.steps import Work


def check_scripts(box: BridgeBox, work: Work) -> None:
    """Each script ran as often as it had to."""
    assert {name: len(box.runs(name)) for name in work.scripts} == work.scripts


def check_intervals(work: Work, entries: Sequence[Entry]) -> None:
    """Each workload was charged for as many whole intervals as it had runs."""
    runs, releases = (Counter(e.workload for e in entries if e.step == step) for step in ("run", "release"))
    assert sorted(runs.values()) == work.intervals
    assert runs == releases
    check_nothing_adopted(entries)


def check_nothing_adopted(entries: Sequence[Entry]) -> None:
    """Nothing was found running without the grant that it must have had."""
    assert [e.workload for e in entries if e.step == "adopt"] == []


def check_slurm(box: BridgeBox, work: Work, grants: Sequence[Grant]) -> None:
    """One Slurm job for each key, and the ledger's last interval of each is Slurm's own."""
    ids_of_key: dict[str, set[str]] = {}
    last = {grant.workload: grant for grant in sorted(grants, key=lambda g: g.attempt)}
    for record in steps.of_work(box, work):
        ids_of_key.setdefault(key_of(record), set()).add(record.get("ArrayJobId", record["JobId"]))
        grant = last[workload_of(record)]
        assert (grant.running_ms, grant.ended_ms) == (ms(record["StartTime"]), ms(record["EndTime"]))
    assert [len(ids) for ids in ids_of_key.values()] == [1] * (len(work.job_ids) + len(work.job_uids))


def key_of(record: dict[str, str]) -> str:
    """Return the key in front of a record's AdminComment."""
    return comment.parse(record["AdminComment"])[0]


def workload_of(record: dict[str, str]) -> WorkloadId:
    """Return the workload that a record is."""
    task = record.get("ArrayTaskId")
    return slurmjobs.workload_id(CLUSTER, key_of(record), None if task is None else int(task))


def ms(stamp: str) -> int:
    """Return scontrol's time (the containers' clock is UTC) in milliseconds."""
    return int(datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() * 1000)
