"""job_submit.lua against real sbatch, scontrol and scancel of real users: who may ask for what, and what may change."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.slurmbox import MEMBERS, SlurmBox


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBox]:
    """Start one cluster for the module."""
    with SlurmBox(tmp_path_factory.mktemp("slurm"), {"w1": ("h100", 4)}) as running:
        yield running


@pytest.fixture
def box(cluster: SlurmBox) -> Iterator[SlurmBox]:
    """Leave an idle cluster behind."""
    yield cluster
    cluster.reset()


GPU_REQUESTS = [
    "--gres=gpu:2",
    "--gres=gpu",
    "--gres=gpu:h100:2",
    "--gpus=2",
    "-G h100:2",
    "--gpus-per-node=2",
    "--ntasks=2 --gpus-per-task=1",
    "--gpus=1 --array=0-3%2",
    "--gpus=1 --nice=100",
    "--gpus=1 --priority=100",
    "--nodes=1 --tres-per-task=gres/gpu:1",
]


@pytest.mark.parametrize("options", GPU_REQUESTS)
def test_every_way_to_ask_for_gpus_ends_held_under_a_key(box: SlurmBox, options: str) -> None:
    job = box.submitted("alice", *options.split())
    record = box.ctl("scontrol", "--oneliner", "show", "job", job)
    assert "JobState=PENDING Reason=JobHeldUser" in record
    assert "Priority=0" in record
    assert "Account=vision" in record  # of alice's only team
    assert "AdminComment=sb:" in record


@pytest.mark.parametrize("options", ["", "--gres=gpu:0", "--gpus=0", "--exclusive=user"])
def test_a_job_without_gpus_passes(box: SlurmBox, options: str) -> None:
    """`--gres=gpu:0` names GPUs and asks for none."""
    job = box.submitted("mallory", *options.split())
    box.wait("it runs", lambda: box.field(job, "JobState") == "RUNNING")
    assert "AdminComment" not in box.ctl("scontrol", "--oneliner", "show", "job", job)


def test_a_heterogeneous_job_without_gpus_passes(box: SlurmBox) -> None:
    job = box.submitted("alice", "--ntasks=1", ":", "--ntasks=1")
    assert int(box.field(job, "Priority")) > 0


REFUSALS = [
    ("mallory", "--gpus=1", "none was given: add --account=NAME (you are in no team; ask an administrator)"),
    ("carol", "--gpus=1", "none was given: add --account=NAME (your accounts: nlp, vision)"),
    (
        "alice",
        "--gpus=1 --account=nlp",
        "user alice is not a member of account nlp: use another --account (your accounts",
    ),
    ("alice", "--gpus=1 --account=nope", "account nope does not exist: use another --account (your accounts: vision)"),
    ("alice", "--gpus=h200:1", "GPU type h200 does not exist: use one of a100, h100"),
    ("alice", "--gpus=a100:1", "account vision has no quota of GPU type a100: use h100"),
    ("alice", "--gpus=13", "13 h100 GPUs can never be granted to account vision: its limit is 12"),
    ("alice", "--nodes=2 --gpus-per-node=8", "16 h100 GPUs can never be granted to account vision: its limit is 12"),
    ("alice", "--ntasks=13 --gpus-per-task=1", "13 h100 GPUs can never be granted to account vision: its limit is 12"),
    ("alice", "--gpus=h100:1,a100:1", "a job gets GPUs of one type, this one asks for 2"),
    ("alice", "--gpus-per-socket=1 --sockets-per-node=1", "--gpus-per-socket cannot be counted"),
    ("alice", "--gpus=1 : --gpus=1", "a heterogeneous job with GPUs is not admitted as a whole"),
    ("alice", "--ntasks=1 : --gpus=1", "a heterogeneous job with GPUs is not admitted as a whole"),
    ("alice", "--gpus=1 --hold", "--hold is of no use for a GPU job"),
    ("alice", "--exclusive", "--exclusive is refused: it takes every GPU of its nodes"),
    ("alice", "--exclusive --gpus=1", "--exclusive is refused: it takes every GPU of its nodes"),
]


@pytest.mark.parametrize(("user", "options", "sentence"), REFUSALS)
def test_a_refusal_is_one_clear_sentence(box: SlurmBox, user: str, options: str, sentence: str) -> None:
    """J11, J15."""
    done = box.sbatch(user, *options.split())
    assert done.returncode != 0
    assert sentence in done.stderr
    assert not box.ctl("squeue", "--noheader")


def test_a_member_of_two_teams_names_one(box: SlurmBox) -> None:
    job = box.submitted("carol", "--account=nlp", "--gpus=1")
    assert box.field(job, "Account") == "nlp"


CHANGES_REFUSED = [
    "Priority=100",
    "Nice=10",
    "Nice=-5",
    "NumNodes=2",
    "NumTasks=3",
    "Gres=gpu:4",
    "TresPerJob=gres/gpu:4",
    "TresPerTask=gres/gpu=4",
    "TimeLimit=60",
    "Account=nlp",
    "ReqNodeList=w1",
    "OverSubscribe=NO",
    "AdminComment=sb:aaaaaaaaaaaaaaaaaaaaaaaa",
]


@pytest.mark.parametrize("change", CHANGES_REFUSED)
def test_a_user_cannot_change_what_the_ledger_counts_by(box: SlurmBox, change: str) -> None:
    """J13. Nice looks harmless, but slurmctld computes a priority above 0 from it, which is a release."""
    job = box.submitted("alice", "--gpus=1", "--time=30")
    before = box.field(job, "AdminComment")
    box.run("login", "scontrol", "update", f"JobId={job}", change, user="alice")
    record = box.ctl("scontrol", "--oneliner", "show", "job", job)
    for expected in ("JobState=PENDING Reason=JobHeldUser", "Priority=0", "NumNodes=1", "TimeLimit=00:30:00"):
        assert expected in record
    assert "Account=vision" in record
    assert "TresPerJob=gres/gpu:1" in record
    assert box.field(job, "AdminComment") == before


CHANGES_ALLOWED = ["Name=other", "Comment=mine", "TimeLimit=10", "Requeue=0", "StartTime=now+1hour", "NumCPUs=2"]


@pytest.mark.parametrize("change", CHANGES_ALLOWED)
def test_a_user_may_change_what_does_not_grow_the_request_and_the_job_stays_held(box: SlurmBox, change: str) -> None:
    job = box.submitted("alice", "--gpus=1", "--time=30")
    done = box.run("login", "scontrol", "update", f"JobId={job}", change, user="alice")
    assert (done.returncode, done.stderr) == (0, "")
    assert box.field(job, "Priority") == "0"


@pytest.mark.parametrize("verb", ["release", "hold", "top"])
def test_a_user_neither_releases_nor_holds_nor_tops_a_gpu_job(box: SlurmBox, verb: str) -> None:
    job = box.submitted("alice", "--gpus=1")
    done = box.run("login", "scontrol", verb, job, user="alice")
    assert done.returncode != 0
    assert box.field(job, "Priority") == "0"
    if verb != "top":  # slurmctld itself refuses that one
        assert f"job {job} starts by itself when its GPUs are granted" in done.stderr


def test_array_tasks_are_not_released_by_their_owner_but_throttled(box: SlurmBox) -> None:
    job = box.submitted("alice", "--gpus=1", "--array=0-5")
    assert box.run("login", "scontrol", "release", f"{job}_3", user="alice").returncode != 0
    done = box.run("login", "scontrol", "update", f"JobId={job}", "ArrayTaskThrottle=2", user="alice")
    assert (done.returncode, done.stderr) == (0, "")
    held = box.ctl("squeue", "--noheader", "--array", "--format", "%T %Q").split("\n")
    assert [line for line in held if line] == ["PENDING 0"] * 6


def test_a_cpu_job_does_not_become_a_gpu_job(box: SlurmBox) -> None:
    job = box.submitted("alice", "--begin=now+1hour")
    for change in ("TresPerJob=gres/gpu:1", "Gres=gpu:1", "OverSubscribe=NO"):
        done = box.run("login", "scontrol", "update", f"JobId={job}", change, user="alice")
        assert done.returncode != 0
    assert "gpu" not in box.ctl("scontrol", "--oneliner", "show", "job", job)


def test_a_user_cancels_a_waiting_job(box: SlurmBox) -> None:
    job = box.submitted("alice", "--gpus=1")
    assert box.run("login", "scancel", job, user="alice").returncode == 0
    box.wait("it is cancelled", lambda: box.field(job, "JobState") == "CANCELLED")


def test_a_running_job_that_root_held_lands_held_when_its_owner_requeues_it(box: SlurmBox) -> None:
    """J13."""
    job = box.submitted("alice", "--gpus=1")
    box.ctl("scontrol", "release", job)
    box.wait("it runs", lambda: box.field(job, "JobState") == "RUNNING")
    box.ctl("scontrol", "hold", job)
    assert box.field(job, "JobState") == "RUNNING"
    assert box.run("login", "scontrol", "requeue", job, user="alice").returncode == 0
    box.wait("it is pending", lambda: box.field(job, "JobState") == "PENDING")
    assert box.field(job, "Priority") == "0"
    assert box.run("login", "scontrol", "release", job, user="alice").returncode != 0


def test_a_job_runs_as_its_owner_and_sees_its_gpus(box: SlurmBox) -> None:
    job = box.submitted(
        "alice", "--gpus=2", "--output=/home/alice/%j", script="#!/bin/sh\nid -un; echo $CUDA_VISIBLE_DEVICES"
    )
    box.ctl("scontrol", "release", job)
    box.wait("it ends", lambda: box.field(job, "JobState") == "COMPLETED")
    output = box.run("login", "cat", f"/home/alice/{job}", user="alice").stdout
    assert output.split() == ["alice", "0,1"]


@pytest.mark.parametrize("program", ["srun", "salloc"])
def test_an_interactive_job_waits_for_its_release_and_then_works(box: SlurmBox, program: str) -> None:
    command = {"srun": ["sh"], "salloc": ["srun", "sh"]}[program]
    script = 'echo "$(id -un) $CUDA_VISIBLE_DEVICES"'
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(box.run, "login", program, "--gpus=1", *command, "-c", script, user="alice")
        box.wait("it is in the queue", lambda: bool(box.ctl("squeue", "--noheader")))
        job = box.ctl("squeue", "--noheader", "--format=%A").strip()
        assert box.field(job, "Priority") == "0"
        assert not waiting.done()
        box.ctl("scontrol", "release", job)
        done = waiting.result(60)
    assert (done.returncode, done.stdout.split()) == (0, ["alice", "0"]), done.stderr


def test_without_a_members_file_gpu_jobs_are_refused_and_cpu_jobs_pass(box: SlurmBox) -> None:
    try:
        box.configure("bridge-members.lua", "return {{{")
        box.wait("the broken file is in place", lambda: "{{{" in box.ctl("cat", "/etc/slurm/bridge-members.lua"))
        done = box.sbatch("alice", "--gpus=1")
        assert "the bridge has not published its teams yet; try again in a moment" in done.stderr
        box.submitted("alice")
    finally:
        box.configure("bridge-members.lua", MEMBERS)
    box.wait("alice may submit again", lambda: box.sbatch("alice", "--gpus=1").returncode == 0)


def test_a_changed_members_file_counts_at_once(box: SlurmBox) -> None:
    try:
        box.configure("bridge-members.lua", MEMBERS.replace('["bob"] = true', '["bob"] = true, ["alice"] = true'))
        box.wait("alice is in nlp", lambda: box.sbatch("alice", "--gpus=1", "--account=nlp").returncode == 0)
    finally:
        box.configure("bridge-members.lua", MEMBERS)
    box.wait("she is not any more", lambda: box.sbatch("alice", "--gpus=1", "--account=nlp").returncode != 0)


def test_a_syntax_error_in_the_policy_keeps_the_last_good_one(box: SlurmBox) -> None:
    good = (box.folder / "conf" / "job_submit.lua").read_text()
    try:
        box.configure("job_submit.lua", good + "\nfunction (\n")
        box.wait("it is in place", lambda: "function (" in box.ctl("tail", "-n1", "/etc/slurm/job_submit.lua"))
        assert box.field(box.submitted("alice", "--gpus=1"), "Priority") == "0"
        assert box.sbatch("mallory", "--gpus=1").returncode != 0
    finally:
        box.configure("job_submit.lua", good)
