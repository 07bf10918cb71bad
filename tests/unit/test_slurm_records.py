"""Slurm's notations and records: host lists, task lists, GPU counts, comments, whole jobs and nodes."""

from typing import Any

import pytest

from bridge.slurm import comment, gracesignal, gres, hostlist, parse, states, submission
from bridge.slurm.model import GraceSignal, JobSpec, JobState, Phase

NO_VAL = 0xFFFFFFFE


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, ()),
        ("", ()),
        ("(null)", ()),
        ("w1", ("w1",)),
        ("w[1-3]", ("w1", "w2", "w3")),
        ("w[1,3-4],x", ("w1", "w3", "w4", "x")),
        ("g[08-11]", ("g08", "g09", "g10", "g11")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("h100-g1,a100-g[2-3]", ("h100-g1", "a100-g2", "a100-g3")),
    ],
)
def test_host_lists(text: str | None, names: tuple[str, ...]) -> None:
    assert hostlist.expand(text) == names


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        (None, ()),
        ("0-3", (0, 1, 2, 3)),
        ("0-9%2", tuple(range(10))),
        ("1,3,5-7", (1, 3, 5, 6, 7)),
        ("[0-6:2]%1", (0, 2, 4, 6)),
        ("7", (7,)),
    ],
)
def test_task_lists(text: str | None, tasks: tuple[int, ...]) -> None:
    assert hostlist.tasks(text) == tasks


@pytest.mark.parametrize("text", ["1,2,...", "1-", "0x1F", "a"])
def test_a_task_list_that_is_cut_short_is_refused_not_guessed(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        hostlist.tasks(text)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (None, {}),
        ("", {}),
        ("gres/gpu:4", {"": 4}),
        ("gres/gpu:h100:4", {"h100": 4}),
        ("gres/gpu=2", {"": 2}),
        ("gres/gpu:h100=2", {"h100": 2}),
        ("gres:gpu:2", {"": 2}),
        ("gres/gpu", {"": 1}),
        ("gres/gpu:a100", {"a100": 1}),
        ("gres/gpu:0", {}),
        ("gres/gpu:h100:1,gres/gpu:a100:2", {"h100": 1, "a100": 2}),
        ("gpu:h100:8(S:0-1)", {"h100": 8}),
        ("gpu:h100:3(IDX:0,2-3)", {"h100": 3}),
        ("gpu:h100:2(IDX:0,2),gpu:a100:1(IDX:4)", {"h100": 2, "a100": 1}),
        ("gpu:h100:0(IDX:N/A)", {}),
        ("gres/shard:4,license/x:2", {}),
        ("gres/gpu_mem:80", {}),
        ("gpu:1g.10gb:2", {"1g.10gb": 2}),
        ("gres/gpu:nvidia_h100_80gb_hbm3_1g.10gb:3", {"nvidia_h100_80gb_hbm3_1g.10gb": 3}),
    ],
)
def test_gpu_counts(text: str | None, counts: dict[str, int]) -> None:
    assert gres.gpus(text) == counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("cpu=4,mem=1G,node=1,billing=4", {}),
        ("cpu=4,gres/gpu=4", {"": 4}),
        ("cpu=4,gres/gpu=4,gres/gpu:h100=4", {"h100": 4}),
        ("gres/gpu=5,gres/gpu:h100=4", {"h100": 4, "": 1}),
    ],
)
def test_devices_that_tres_lists_twice_are_counted_once(text: str, counts: dict[str, int]) -> None:
    assert gres.tracked_gpus(text) == counts


@pytest.mark.parametrize(("text", "mib"), [("64M", 64), ("1.5G", 1536), ("1025K", 2), ("1T", 2**20), ("7", 7)])
def test_memory_is_rounded_up(text: str, mib: int) -> None:
    """N14."""
    assert gres.memory_mib(text) == mib


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        (None, "", ""),
        ("sb:abcdefgh2345", "abcdefgh2345", ""),
        ("sb:job-1b2c-33 | waits: 3 | of 8", "job-1b2c-33", "waits: 3 | of 8"),
        ("somebody's note", "", "somebody's note"),
        ("sb:short", "", "sb:short"),
        ("sb:abcdefgh2345 signal=B:10 | waits", "abcdefgh2345", "waits"),
        ("sb:UPPERCASE9", "", "sb:UPPERCASE9"),
        ("xsb:abcdefgh2345", "", "xsb:abcdefgh2345"),
    ],
)
def test_the_key_stands_in_front_of_the_comment(text: str | None, key: str, told: str) -> None:
    assert comment.parse(text) == (key, told)
    if key:
        assert comment.render(key, told, comment.signal(text)) == text


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ("USR1", GraceSignal(10)),
        ("B:USR1@120", GraceSignal(10, batch=True)),
        ("sigterm@60", GraceSignal(15)),
        ("RB:12", GraceSignal(12, batch=True)),
        ("R:10@5", GraceSignal(10)),
        ("", None),
        ("0", None),
        ("65", None),
        ("B:", None),
        ("USR9", None),
        ("10; rm -rf /", None),
    ],
)
def test_the_signal_that_a_job_asked_for(spec: str, asked: GraceSignal | None) -> None:
    assert gracesignal.parse(spec) == asked
    assert gracesignal.parse(gracesignal.render(asked)) == asked


@pytest.mark.parametrize(
    ("line", "comment_", "asked"),
    [
        ("sbatch train.sh", "sb:abcdefgh2345", None),
        ("sbatch --signal=B:USR1@60 train.sh", "sb:abcdefgh2345 signal=TERM", GraceSignal(10, batch=True)),
        ("sbatch --signal USR2 train.sh", "sb:abcdefgh2345", GraceSignal(12)),
        ("sbatch --signal=USR1 --signal=USR2 train.sh", "sb:abcdefgh2345", GraceSignal(12)),
        ("sbatch --wrap=echo 'it", "sb:abcdefgh2345 signal=B:10 | waits", GraceSignal(10, batch=True)),
        (None, "somebody's note signal=10", None),
    ],
)
def test_the_command_line_wins_over_what_the_policy_found(
    line: str | None, comment_: str, asked: GraceSignal | None
) -> None:
    """As in sbatch: command line, then environment, then script."""
    assert parse.job(record(submit_line=line, admin_comment=comment_)).signal == asked


@pytest.mark.parametrize(("raw", "nice"), [(0x80000000, 0), (0x80000064, 100), (0x7FFFFFF6, -10), (NO_VAL, 0)])
def test_nice_is_a_distance(raw: int, nice: int) -> None:
    assert parse.job(record(nice=raw)).nice == nice


def test_what_srun_runs_is_no_batch_job() -> None:
    assert (parse.job(record()).batch, parse.job(record(batch_flag=0)).batch) == (True, False)


def record(**changes: Any) -> dict[str, Any]:
    """Return a pending job's record as slurmctld sends it."""
    return {
        "account": "vision",
        "admin_comment": "sb:abcdefgh2345 | waits",
        "array_job_id": 0,
        "array_max_tasks": 0,
        "array_task_id": NO_VAL,
        "array_task_str": None,
        "batch_flag": 1,
        "comment": None,
        "dependency": None,
        "eligible_time": 100,
        "end_time": 0,
        "exit_code": 0,
        "features": None,
        "gres_detail": [],
        "het_job_id": 0,
        "het_job_offset": NO_VAL,
        "job_id": 7,
        "job_state": 0,
        "name": "train",
        "nice": 0x80000000,
        "nodes": None,
        "num_cpus": 1,
        "num_nodes": 1,
        "num_tasks": 1,
        "partition": "all",
        "priority": 0,
        "req_nodes": None,
        "requeue": 1,
        "restart_cnt": 0,
        "shared": 65534,
        "sluid": 1,
        "start_time": 0,
        "state_reason": "JobHeldUser",
        "std_out": "/home/alice/slurm-7.out",
        "submit_line": "sbatch train.sh",
        "submit_time": 100,
        "time_limit": 30,
        "tres_alloc": None,
        "tres_per_job": None,
        "tres_per_node": "gres/gpu:h100:2",
        "tres_per_socket": None,
        "tres_per_task": None,
        "tres_req": "cpu=1,mem=64M,node=1,billing=1",
        "user_id": 2001,
        "user_name": "alice",
        "work_dir": "/home/alice",
    } | changes


def test_a_pending_job() -> None:
    job = parse.job(record())
    assert (job.key, job.comment_text, job.user, job.account) == ("abcdefgh2345", "waits", "alice", "vision")
    assert (job.state, job.held, job.admin_held, job.time_limit_s) == (JobState.PENDING, True, False, 1800)
    assert (dict(job.requested.gpus), job.requested.nodes, job.allocated.gpu_total) == ({"h100": 2}, 1, 0)
    assert (job.start_ms, job.end_ms, job.exit_code, job.array_job_id, job.het_job_id) == (None,) * 5


def test_the_start_that_slurm_only_expects_is_no_start() -> None:
    assert parse.job(record(start_time=500, end_time=900)).start_ms is None


def test_a_running_job_holds_what_it_was_handed_on_each_node() -> None:
    detail = ["gpu:h100:2(IDX:0-1)", "gpu:h100:1(IDX:5)"]
    job = parse.job(record(job_state=1, start_time=200, end_time=2000, nodes="w[1-2]", gres_detail=detail, priority=9))
    assert (job.nodes, dict(job.allocated.gpus), job.start_ms, job.end_ms) == (("w1", "w2"), {"h100": 3}, 200_000, None)


def test_accounted_tres_win_over_everything_else() -> None:
    """J15: what was allocated may differ from what was asked."""
    tres = "cpu=1,mem=64M,node=1,gres/gpu=8,gres/gpu:h100=8"
    job = parse.job(record(job_state=1, start_time=200, nodes="w1", tres_alloc=tres, tres_per_node=None))
    assert dict(job.allocated.gpus) == {"h100": 8}
    assert job.requested.gpu_total == 0


def test_a_completing_job_still_holds_its_request_though_no_device_is_named() -> None:
    job = parse.job(record(job_state=0x8004, start_time=200, end_time=300, nodes="w1"))
    assert (dict(job.allocated.gpus), job.end_ms) == ({"h100": 2}, 300_000)


def test_an_ended_job_holds_nothing_and_tells_its_end() -> None:
    job = parse.job(record(job_state=5, start_time=200, end_time=300, nodes="w1", exit_code=3 << 8))
    assert (job.state, job.exit_code, job.exit_signal, job.end_ms) == (JobState.FAILED, 3, None, 300_000)
    assert (job.nodes, job.allocated.gpu_total) == (("w1",), 0)
    assert parse.job(record(job_state=4, exit_code=15)).exit_signal == 15


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({"tres_per_node": "gres/gpu:h100:2", "num_nodes": 3}, {"h100": 6}),
        ({"tres_per_node": None, "tres_per_job": "gres/gpu:5"}, {"": 5}),
        ({"tres_per_node": None, "tres_per_task": "gres/gpu=2", "num_tasks": 4}, {"": 8}),
        ({"tres_per_job": "gres/gpu:8", "tres_per_node": "gres/gpu:4", "num_nodes": 2}, {"": 8}),
        ({"tres_per_node": "gres/gpu:0"}, {}),
        ({"tres_req": "cpu=1,gres/gpu=4,gres/gpu:h100=4", "tres_per_node": "gres/gpu:4"}, {"h100": 4}),
    ],
)
def test_requests_are_counted_in_all(changes: dict[str, Any], gpus: dict[str, int]) -> None:
    assert dict(parse.job(record(**changes)).requested.gpus) == gpus


def test_an_array_lists_the_tasks_that_are_still_together() -> None:
    job = parse.job(record(array_job_id=7, array_task_str="0-2,9%3", array_max_tasks=3))
    assert (job.array_job_id, job.array_task_id, job.array_tasks, job.array_throttle) == (7, None, (0, 1, 2, 9), 3)
    task = parse.job(record(job_id=8, array_job_id=7, array_task_id=0))
    assert (task.array_job_id, task.array_task_id, task.array_tasks) == (7, 0, ())


@pytest.mark.parametrize("minutes", [0xFFFFFFFF, NO_VAL, 365 * 24 * 60])
def test_no_limit_is_none(minutes: int) -> None:
    """J8."""
    assert parse.job(record(time_limit=minutes)).time_limit_s is None


def test_a_record_that_cannot_be_read_exists_and_says_nothing() -> None:
    """N10: the other jobs go on; this one is neither gone nor free."""
    job = parse.job(record(array_job_id=7, array_task_str="1,2,..."))
    assert (job.job_id, job.key, job.state) == (7, "abcdefgh2345", JobState.UNKNOWN)
    assert states.phase(job.state, job.flags) is Phase.UNKNOWN
    assert "1,2,..." in job.state_reason


def test_a_user_without_a_name_on_this_host_is_a_number() -> None:
    assert parse.job(record(user_name=None, user_id=3_999_999)).user == "3999999"


def test_a_node_with_some_of_its_cpus_in_use_is_mixed() -> None:
    raw = {
        "address": "10.1.2.3",
        "alloc_cpus": 2,
        "cpus": 16,
        "features": "h100,pool-a",
        "gres": "gpu:h100:8",
        "gres_used": "gpu:h100:2(IDX:0-1)",
        "name": "w1",
        "node_state": 3 | 1 << 9 | 1 << 26,
        "real_memory": 2048,
        "reason": "bridge: node cordoned",
        "reason_time": 50,
        "reason_uid": 0,
        "slurmd_start_time": 40,
    }
    node = parse.node(raw)
    assert (node.state, node.flags, node.busy) == ("MIXED", frozenset({"DRAIN", "DYNAMIC_NORM"}), True)
    assert (dict(node.gpus), dict(node.gpus_allocated), node.features) == ({"h100": 8}, {"h100": 2}, ("h100", "pool-a"))
    assert (node.drained_by_bridge, node.reason_user, node.reason_ms, node.started_ms) == (True, "root", 50_000, 40_000)
    assert parse.node({**raw, "alloc_cpus": 16}).state == "ALLOCATED"


def test_a_submission_is_held_keyed_and_brings_only_its_own_environment() -> None:
    """J9, N14."""
    spec = JobSpec(
        key="job-0123456789",
        name="train",
        user="alice",
        uid=2001,
        gid=2001,
        account="vision",
        script="#!/bin/sh\ntrue\n",
        gpus_per_node=2,
        gpu_type="h100",
        mem_mib=513,
        time_limit_s=61,
        environment={"A": "1"},
    )
    options = submission.options(spec)
    assert (options["priority"], options["admin_comment"], options["environment"]) == (
        0,
        "sb:job-0123456789",
        {"A": "1"},
    )
    assert (options["gres_per_node"], options["memory_per_node"]) == ({"gpu:h100": 2}, "513M")
    assert (options["user_id"], options["group_id"], options["account"]) == (2001, 2001, "vision")


@pytest.mark.parametrize(
    ("seconds", "minutes"), [(None, None), (1, "1:00"), (60, "1:00"), (61, "2:00"), (5400, "90:00")]
)
def test_seconds_become_minutes_rounded_up(seconds: int | None, minutes: str | None) -> None:
    """J8."""
    assert submission.time_limit(seconds) == minutes
