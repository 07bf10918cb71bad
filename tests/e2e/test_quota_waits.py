"""Who asks over his limit waits, and is told the same reason wherever he looks."""

from tests.e2e import kube, sbridge, slurm
from tests.e2e.waiting import until


def test_a_wait_for_quota_has_one_reason_in_squeue_kubectl_and_sbridge() -> None:
    """Q21 and Q20: with numbers, and it starts when quota is free."""
    eight = slurm.sbatch("alice", "--account=vision --gres=gpu:8")
    four = slurm.sbatch("alice", "--account=vision --gres=gpu:4")
    slurm.reaches(eight, "RUNNING")
    slurm.reaches(four, "RUNNING")
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:4 --output=/dev/null", "sleep 2")
    kube.apply(kube.pod("e2e-waits", gpus=2, command=["true"]), user="alice")
    told = sbridge.waits(job, "QuotaExceeded")
    assert told["numbers"]
    assert told["binding"] == "vision"
    assert "12" in told["workload"]["text"]
    until("squeue shows it", lambda: "QuotaExceeded: " in _squeue(job))
    assert told["workload"]["text"] in _squeue(job)
    sbridge.waits("pod/vision/e2e-waits", "QuotaExceeded")
    condition = until("kubectl shows it", lambda: _condition("e2e-waits"))
    assert (condition["status"], condition["reason"]) == ("False", "QuotaExceeded")
    assert slurm.job(job).state == "PENDING"
    slurm.as_user("alice", f"scancel {four}")
    slurm.reaches(job, "COMPLETED")


def test_another_team_is_not_held_up_by_who_waits_for_his_own_quota() -> None:
    for size in (8, 4, 4):
        slurm.sbatch("alice", f"--account=vision --gres=gpu:{size}")
    job = slurm.sbatch("bob", "--account=nlp --gres=gpu:4 --output=/dev/null", "sleep 1")
    slurm.reaches(job, "COMPLETED")


def _squeue(job: str) -> str:
    return slurm.as_user("alice", f"squeue -h -j {job} -O admin_comment:400")


def _condition(name: str) -> kube.Object:
    return kube.condition(kube.get("pod", name, "-n", "vision"), "slurmbridge.dev/Admitted")
