"""The witness of `make replay` objects to what it should object to: a check that cannot fail proves nothing."""

from typing import Any

from tests.e2e import slurm
from tests.e2e.replay import outcome, trace, witness

GROUND = witness.Ground(
    devices={"g1": 8},
    flavors={"g1": "h100"},
    limits={("vision", "h100"): 6},
    parents={"vision": "org", "nlp": "org", "org": None},
    accounts={"vision": "vision", "nlp": "nlp"},
    namespaces={"vision": "vision"},
)
RECORD = (
    "JobId=7 JobName=r-j00 UserId=alice(2001) GroupId=alice(2001) Priority=1 Nice=0 Account=vision QOS=(null) "
    "JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "StartTime=2026-12-01T12:00:00 EndTime=2026-12-01T12:00:10 NodeList=h100-g1 BatchHost=h100-g1 "
    "ReqTRES=cpu=1,mem=64M,node=1,billing=1 AllocTRES=cpu=1,mem=64M,node=1,billing=1 "
    "JOB_GRES=gpu:h100:4 Nodes=h100-g1 CPU_IDs=0 Mem=64 GRES=gpu:h100:4(IDX:0-3) "
    "AdminComment=sb:abc | Starting: granted 4 h100 on g1:4 Comment=x StdErr=/dev/null"
)


def job(**changes: str) -> slurm.Job:
    line = RECORD
    for field, value in changes.items():
        before = line.index(f"{field}=") + len(field) + 1
        line = line[:before] + value + line[line.index(" ", before) :]
    return slurm.parse(line)


def pod(
    gpus: int, *, name: str = "p", worker: bool = False, namespace: str = "vision", **status: Any
) -> dict[str, Any]:
    labels = {"slurmbridge.dev/component": "worker"} if worker else {}
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "g1", "containers": [container]},
        "status": {"phase": "Running", **status},
    }


WORKER = pod(8, name="h100-g1", worker=True, namespace="slurm")


def test_a_record_of_scontrol_is_read_as_it_stands() -> None:
    seen = job()
    assert (seen.id, seen.user, seen.account, seen.nodes, seen.gpus) == (
        "7", "alice", "vision", "h100-g1", 4,
    )  # fmt: skip
    assert seen.admin_comment == "sb:abc | Starting: granted 4 h100 on g1:4"
    assert seen.ended_ms is not None
    assert seen.started_ms is not None
    assert seen.ended_ms - seen.started_ms == 10_000


def test_what_fits_is_not_objected_to() -> None:
    assert witness.judge(GROUND, [job()], [WORKER, pod(2)]).violations == ()


def test_a_node_with_more_held_than_it_has_is_objected_to() -> None:
    sample = witness.judge(GROUND, [job(Account="nlp")], [WORKER, pod(5)])
    assert sample.violations == ("node g1: Slurm and pods hold 9 of 8 devices",)


def test_a_team_above_its_limit_in_both_systems_together_is_objected_to() -> None:
    sample = witness.judge(GROUND, [job()], [WORKER, pod(3)])
    assert sample.violations == ("team vision holds 7 h100, its limit is 6",)
    assert sample.held["org", "h100"] == 7


def test_a_job_on_a_worker_that_is_gone_or_too_small_is_objected_to() -> None:
    assert "no live worker pod" in witness.judge(GROUND, [job()], []).violations[0]
    small = pod(2, name="h100-g1", worker=True, namespace="slurm")
    assert witness.judge(GROUND, [job()], [small]).violations == ("worker h100-g1: Slurm gave out 4 of its 2 GPUs",)


def test_a_pod_that_ended_holds_nothing() -> None:
    assert witness.judge(GROUND, [], [pod(9, phase="Succeeded")]).violations == ()


WORK = [trace.Work("r-j00", 0, 10, 4, trace.TENANTS[0])]


def test_a_job_that_ran_twice_or_was_restarted_is_objected_to() -> None:
    done = job(JobState="COMPLETED")
    assert outcome.once(WORK, [done], {"r-j00": 1}).passed
    assert not outcome.once(WORK, [done], {"r-j00": 2}).passed
    assert not outcome.once(WORK, [done, done], {"r-j00": 1}).passed
    assert not outcome.once(WORK, [job(JobState="COMPLETED", Restarts="1")], {"r-j00": 1}).passed


def test_gpu_time_that_differs_by_more_than_two_percent_is_objected_to() -> None:
    seen = outcome.job_gpu_ms(WORK, [job(JobState="COMPLETED")])
    assert seen == {("vision", "slurm"): 40_000}
    assert outcome.equal({("vision", "slurm"): 40_700}, seen).passed
    assert not outcome.equal({("vision", "slurm"): 41_000}, seen).passed
    assert not outcome.equal({}, seen).passed


def test_two_grants_of_one_workload_are_objected_to() -> None:
    once = [{"workload": "w", "step": "reserve"}, {"workload": "w", "step": "release"}]
    assert outcome.one_grant(1, once).passed
    assert not outcome.one_grant(1, [*once, *once]).passed
    assert not outcome.one_grant(2, once).passed
