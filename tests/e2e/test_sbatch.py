"""sbatch: held, granted, running on a worker pod, ended; refused in one sentence; arrays, gangs, requeues, privacy."""

import pytest

from tests.e2e import kube, sbridge, slurm
from tests.e2e.waiting import until


def test_a_gpu_job_is_granted_then_runs_as_its_user_on_a_worker_that_holds_the_gpus() -> None:
    """Also: the times of its life are in order, and are told by one query."""
    seq = sbridge.newest()
    script = "id -u; hostname; ls /dev/nvidia[0-9]* | wc -l; echo GPUs=$CUDA_VISIBLE_DEVICES"
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:2 --output=e2e-life", script)
    ended = slurm.reaches(job, "COMPLETED")
    uid, host, devices, visible = slurm.as_user("alice", "cat e2e-life").split()
    assert uid == "2001"
    worker = kube.workers()[host]
    assert kube.gpus(worker) == int(devices) == 8
    assert len(visible.removeprefix("GPUs=").split(",")) == 2
    assert ended.admin_comment.startswith("sb:")
    told = until("the end is in the ledger", lambda: _ended(job))
    placed = [entry["detail"]["placement"] for entry in sbridge.entries(seq) if entry["step"] == "run"]
    assert placed == [{worker["spec"]["nodeName"]: 2}]
    submitted_s = told["workload"]["submitted_ms"] // 1000  # Slurm's clock counts whole seconds
    times_s = [_moment(told, what) // 1000 for what in ("granted", "running", "ended")]
    assert [submitted_s, *times_s] == sorted([submitted_s, *times_s])


@pytest.mark.parametrize(
    ("user", "options", "sentence"),
    [
        ("alice", "--account=nlp --gres=gpu:1", "user alice is not a member of account nlp"),
        ("alice", "--account=physics --gres=gpu:1", "account physics does not exist"),
        ("alice", "--account=vision --gres=gpu:v100:1", "GPU type v100 does not exist"),
        ("alice", "--account=vision -N2 --gres=gpu:8", "can never be granted to account vision: its limit is 12"),
        ("bob", "--account=nlp --gres=gpu:1 --exclusive", "--exclusive is refused"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_that_names_the_way_out(
    user: str, options: str, sentence: str
) -> None:
    """J15 and the clear refusals: nothing of it becomes a job."""
    before = len(slurm.jobs())
    done = slurm.attempt(user, f"sbatch {options} --wrap true")
    assert done.code != 0
    assert sentence in done.err
    assert len(slurm.jobs()) == before


def test_a_job_without_gpus_is_none_of_the_bridges_business() -> None:
    seq = sbridge.newest()
    job = slurm.sbatch("alice", "--output=/dev/null", "true")
    slurm.reaches(job, "COMPLETED")
    assert not slurm.job(job).admin_comment.startswith("sb:")
    assert not [entry for entry in sbridge.entries(seq) if entry["step"] == "reserve"]


def test_each_task_of_an_array_has_a_grant_of_its_own() -> None:
    """J7: tasks are listed and charged each."""
    seq = sbridge.newest()
    array = slurm.sbatch("alice", "--account=vision --gres=gpu:1 --array=0-3 --output=/dev/null", "sleep 3")
    for task in range(4):
        slurm.reaches(f"{array}_{task}", "COMPLETED")
    until("four ends are in the ledger", lambda: _steps(seq, "release") == 4)
    assert _steps(seq, "reserve") == 4


def test_a_gang_runs_on_all_of_its_nodes_or_not_at_all() -> None:
    job = slurm.sbatch("alice", "--account=vision -N2 --gres=gpu:4 --output=/dev/null", "srun hostname; sleep 5")
    running = slurm.reaches(job, "RUNNING")
    assert running.gpus == 8
    told = sbridge.explain(job)
    assert told["placement"] == {"g1": 4, "g2": 4}
    assert told["workload"]["gpus"] == 8
    slurm.reaches(job, "COMPLETED")


def test_a_requeue_by_its_user_comes_back_through_the_ledger() -> None:
    """J13: requeued, it is held until a new attempt is granted; the two attempts never overlap."""
    seq = sbridge.newest()
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:1 --output=/dev/null --requeue", "sleep 60")
    slurm.reaches(job, "RUNNING")
    until("the run is in the ledger", lambda: _steps(seq, "run") == 1)
    slurm.as_user("alice", f"scontrol requeue {job}")
    until("the second attempt runs", lambda: slurm.job(job).restarts == 1 and slurm.job(job).state == "RUNNING", 60)
    until("the second run is in the ledger", lambda: _steps(seq, "run") == 2)
    steps = [(entry["step"], entry["attempt"]) for entry in sbridge.entries(seq) if entry["workload"]]
    granted = [step for step in steps if step[0] in ("reserve", "release", "run")]
    assert granted == [("reserve", 1), ("run", 1), ("release", 1), ("reserve", 2), ("run", 2)]


def test_its_user_can_neither_release_nor_enlarge_a_waiting_job() -> None:
    """J13: what a user may change never grows what the ledger grants."""
    slurm.sbatch("alice", "--account=vision --gres=gpu:8")
    slurm.sbatch("alice", "--account=vision --gres=gpu:4")
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:4 --time=10")
    sbridge.waits(job, "QuotaExceeded")
    for change in (f"release {job}", f"update jobid={job} gres=gpu:8", f"update jobid={job} timelimit=60"):
        done = slurm.attempt("alice", f"scontrol {change}")
        assert done.code != 0, change
    assert slurm.job(job).state == "PENDING"


def test_scancel_of_a_running_job_frees_its_gpus() -> None:
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:2 --output=/dev/null")
    slurm.reaches(job, "RUNNING")
    slurm.as_user("alice", f"scancel {job}")
    slurm.reaches(job, "CANCELLED")
    assert until("the end is in the ledger", lambda: _ended(job))


def test_in_the_login_pod_each_sees_the_names_of_his_own_team_only() -> None:
    slurm.sbatch("alice", "--account=vision --gres=gpu:1 --job-name=hers")
    job = slurm.sbatch("bob", "--account=nlp --gres=gpu:1 --job-name=secret")
    slurm.reaches(job, "RUNNING")
    shown = until("alice sees two rows", lambda: _both_rows(slurm.as_user("alice", "sbridge queue")))
    assert "secret" not in shown
    assert "hers" in shown
    assert slurm.attempt("alice", f"sbridge explain {job}").code == 4
    assert slurm.attempt("alice", f"sbridge cancel {job}").code != 0
    assert slurm.job(job).state == "RUNNING"


def _both_rows(shown: str) -> str:
    return shown if "hers" in shown and "hidden" in shown else ""


def _ended(job: str) -> sbridge.Document | None:
    told = sbridge.explain(job)
    return told if told["workload"]["state"] == "ended" else None


def _moment(told: sbridge.Document, what: str) -> int:
    return next(int(each["at_ms"]) for each in told["timeline"] if each["what"] == what)


def _steps(seq: int, step: str) -> int:
    return sum(entry["step"] == step for entry in sbridge.entries(seq))
