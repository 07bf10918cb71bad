"""What the simulator reads: traces, accounting, teams and nodes; and what it says of what it cannot read."""

from pathlib import Path

import pytest

from bridge.admission.model import Preemption
from bridge.errors import InvalidInputError
from bridge.quota.model import Quota, TeamName, TeamSpec
from bridge.simulate import accounting, fleet, scenarios, shares, teams, traces
from bridge.simulate.model import FLAVOR, FLEET, Job, Node, Settings
from bridge.workloads.model import NodeName, System, WorkloadId

DATA = Path(__file__).parents[1] / "data"
JOBS = "timestamp,duration,num_gpus,cluster\n"


def written(folder: Path, text: str, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def job(name: str, team: str, gpus: int, duration_s: int = 100) -> Job:
    return Job(WorkloadId(name), TeamName(team), System.SLURM, gpus, 0, duration_s * 1000)


# --- traces ----------------------------------------------------------------------------------------------------


def test_jobs_of_a_public_trace_are_read_as_they_stand() -> None:
    reading = traces.jobs(DATA / "philly_60.csv")
    assert (reading.rows, len(reading.jobs), reading.faults) == (60, 60, [])
    first = reading.jobs[0]
    assert (first.team, first.gpus, first.duration_ms, first.system) == ("6214e9", 1, 6_171_000, System.SLURM)
    assert first.submitted_ms == 1_507_086_340_000


def test_pods_of_a_public_trace_run_from_their_scheduling_to_their_deletion() -> None:
    reading = traces.pods(DATA / "openb_25.csv")
    assert reading.rows == 25 == len(reading.jobs) + sum(reading.skipped.values())
    first = reading.jobs[0]
    assert (first.id, first.team, first.endless) == ("pod/openb-pod-2293", traces.SERVING, True)
    assert (first.submitted_ms, first.duration_ms) == (10_833_550_000, 226_000)


def test_a_part_of_a_gpu_is_counted_as_a_whole_one_and_that_is_said(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "name,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\na,1,460,V100M16|V100M32,0,50\nb,0,,,0,9\nc,1,1000,,0,\n",
    )
    reading = traces.pods(path)
    assert [(each.gpus, each.models) for each in reading.jobs] == [(1, frozenset({"V100M16", "V100M32"}))]
    assert reading.notes == [f"{path}: 1 pods ask for a part of a GPU; each is counted as a whole one"]
    assert reading.skipped == {traces.NO_GPU: 1, traces.UNTIL_END: 1}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("2017-10-09 07:01:55,66.0,many,a", "jobs.csv:3: num_gpus='many' is no number"),
        ("2017-10-09 07:01:55,66.0,1.5,a", "jobs.csv:3: num_gpus='1.5' is no whole number"),
        ("2017-10-09 07:01:55,-1,1,a", "jobs.csv:3: duration='-1' is no number of seconds from 0"),
        ("2017-10-09 07:01:55,nan,1,a", "jobs.csv:3: duration='nan' is no number of seconds from 0"),
        ("yesterday,66.0,1,a", "jobs.csv:3: timestamp='yesterday' is no time"),
        ("2017-10-09 07:01:55,66.0,1,", "jobs.csv:3: cluster='' names no team"),
        ("2017-10-09 07:01:55,66.0", "jobs.csv:3: num_gpus='' is no number"),
        ("2017-10-09 07:01:55,66.0,1,a,b,c", "jobs.csv:3: the line has 4 columns and 2 more"),
    ],
)
def test_a_broken_line_is_one_sentence_with_file_line_and_field_and_the_others_are_used(
    tmp_path: Path, line: str, told: str
) -> None:
    path = written(tmp_path, f"{JOBS}2017-10-09 07:01:55,66.0,1,a\n{line}\n2017-10-09 07:02:55,5,1,a\n")
    reading = traces.jobs(path)
    assert (reading.rows, len(reading.jobs), len(reading.faults)) == (3, 2, 1)
    assert told in reading.faults[0]


def test_rows_that_are_left_out_are_counted_by_their_reason(tmp_path: Path) -> None:
    reading = traces.jobs(written(tmp_path, f"{JOBS}5,60,0,a\n5,0,1,a\n5,60,1,a\n"))
    assert reading.skipped == {traces.NO_GPU: 1, traces.NO_TIME: 1}
    assert len(reading.jobs) == 1


def test_accounting_gives_jobs_and_leaves_steps_and_what_never_ran_out() -> None:
    reading = accounting.jobs(DATA / "simulate" / "sacct.txt")
    assert reading.faults == []
    assert {
        each.id: (each.team, each.gpus, each.nodes, each.duration_ms, each.time_limit_s) for each in reading.jobs
    } == {
        "slurm/sacct/101": ("vision", 16, 2, 3_600_000, 7200),
        "slurm/sacct/102": ("nlp", 4, 1, 1_800_000, 1800),
        "slurm/sacct/106_7": ("vision", 1, 1, 600_000, None),
        "slurm/sacct/106_7~2": ("vision", 1, 1, 60_000, None),
    }
    assert reading.skipped == {
        accounting.STEP: 1, accounting.NEVER_RAN: 1, accounting.STILL_RUNS: 1, traces.NO_GPU: 1,
    }  # fmt: skip


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"jobs.csv:1: no column num_gpus, cluster; .* names: timestamp, duration"
    ):
        traces.jobs(written(tmp_path, "timestamp,duration\n"))
    with pytest.raises(InvalidInputError, match="cannot be read: No such file"):
        traces.jobs(tmp_path / "none.csv")


# --- shares and teams ------------------------------------------------------------------------------------------


def test_shares_sum_to_the_whole_and_everybody_gets_one() -> None:
    assert shares.divide(97, {"a": 1, "b": 1, "c": 10**9}) == {"a": 1, "b": 1, "c": 95}
    assert shares.divide(10, {"a": 1, "b": 1, "c": 1}) == {"a": 4, "b": 3, "c": 3}
    assert shares.divide(2, {"a": 5, "b": 1, "c": 9}) == {"a": 1, "b": 0, "c": 1}
    assert shares.divide(5, {"a": 0}) == {"a": 0}


def test_nodes_go_to_whoever_is_furthest_below_what_it_wants() -> None:
    parts = shares.partition(fleet.equal(80), {"a": 64, "b": 8, "c": 8})
    assert {name: len(nodes) for name, nodes in parts.items()} == {"a": 8, "b": 1, "c": 1}
    mixed = [Node(NodeName("big"), 8), Node(NodeName("small"), 2)]
    assert {name: [n.name for n in nodes] for name, nodes in shares.partition(mixed, {"a": 2, "b": 9}).items()} == {
        "a": ["small"],
        "b": ["big"],
    }


def test_teams_of_a_trace_have_a_common_root_and_guarantees_in_whole_nodes_by_mean_demand() -> None:
    found = teams.by_demand([job("1", "a", 4, 300), job("2", "b", 1, 100)], fleet.equal(40))
    assert [each.spec for each in found.terms] == [
        TeamSpec(FLEET, quotas={FLAVOR: Quota(40)}),
        TeamSpec(TeamName("a"), FLEET, quotas={FLAVOR: Quota(32)}),
        TeamSpec(TeamName("b"), FLEET, quotas={FLAVOR: Quota(8)}),
    ]


def test_teams_are_read_from_their_short_form() -> None:
    found = teams.read(DATA / "simulate" / "teams.yaml")
    by_name = {each.spec.name: each for each in found.terms}
    assert by_name[TeamName("nlp")].spec == TeamSpec(TeamName("nlp"), TeamName("research"), 2, {FLAVOR: Quota(4, 12)})
    assert by_name[TeamName("nlp")].preemption is None
    assert by_name[TeamName("vision")].preemption == Preemption(min_runtime_ms=600_000, grace_ms=60_000)
    assert found.rename(job("1", "vis", 1)).team == "vision"


def test_live_teams_are_read_and_the_flavor_is_chosen() -> None:
    path = DATA / "simulate" / "teams_live.yaml"
    with pytest.raises(InvalidInputError, match="quotas of the flavors a100, h100: choose one with --flavor"):
        teams.read(path)
    with pytest.raises(InvalidInputError, match="no quota of flavor t4; there are quotas of: a100, h100"):
        teams.read(path, "t4")
    found = teams.read(path, "h100")
    assert [(each.spec.name, each.spec.quotas) for each in found.terms] == [
        ("research", {FLAVOR: Quota(16)}),
        ("vision", {FLAVOR: Quota(8)}),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("teams: [{name: a, guarantee: -1}]", r"teams\[0\]: Team a: spec.quotas\[0\].guarantee=-1 is not valid"),
        ("teams: [{name: a, guarante: 1}]", r"teams\[0\]: Team a: spec.guarante=1: there is no such field"),
        ("teams: [{guarantee: 1}]", r"teams\[0\]: Team \(unnamed\): metadata.name"),
        ("teams: [{name: a, parent: b, guarantee: 1}]", "t.yaml: .*b"),
        ("teams: []", "no team; give Team objects"),
        ("teams: [a]", "'a' is no object"),
        ("teams: [", "is no YAML"),
    ],
)
def test_a_bad_team_is_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        teams.read(written(tmp_path, text, "t.yaml"))


# --- nodes -----------------------------------------------------------------------------------------------------


def test_equal_nodes_hold_all_gpus() -> None:
    assert [node.gpus for node in fleet.equal(20)] == [8, 8, 4]
    with pytest.raises(InvalidInputError, match="--gpus=0"):
        fleet.equal(0)


def test_nodes_are_read_from_a_table(tmp_path: Path) -> None:
    path = written(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\nn2,64000,1,2,P100\nn1,1,1,8,G2\nn3,1,1,0,\n", "n.csv")
    assert fleet.read(path) == (Node(NodeName("n1"), 8, "G2"), Node(NodeName("n2"), 2, "P100"))


def test_nodes_are_read_from_kubernetes_objects_and_from_their_short_form(tmp_path: Path) -> None:
    text = """
items:
  - metadata: {name: gpu-1, labels: {nvidia.com/gpu.product: H100}}
    status: {allocatable: {cpu: "64", nvidia.com/gpu: "8"}}
  - metadata: {name: head}
    status: {allocatable: {cpu: "8"}}
---
nodes:
  - {name: b, gpus: 4, count: 2, model: A100}
"""
    assert fleet.read(written(tmp_path, text, "n.yaml")) == (
        Node(NodeName("b-1"), 4, "A100"),
        Node(NodeName("b-2"), 4, "A100"),
        Node(NodeName("gpu-1"), 8, "H100"),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes: [{name: a, gpus: x}]", r"nodes\[0\]: gpus='x' is no whole number"),
        ("nodes: [{name: a}]", r"nodes\[0\]: no gpus; give both"),
        ("nodes: [{name: a, gpus: 1}, {name: a, gpus: 1}]", "node a is there twice"),
        ("nodes: [{name: a, gpus: 0}]", "no node with a GPU"),
    ],
)
def test_a_bad_node_is_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        fleet.read(written(tmp_path, text, "n.yaml"))


# --- together --------------------------------------------------------------------------------------------------


def test_a_trace_without_dates_begins_with_the_others(tmp_path: Path) -> None:
    pods = written(tmp_path, "name,num_gpu,creation_time,deletion_time\na,1,7,50\n", "pods.csv")
    files = scenarios.Files(jobs=(DATA / "philly_60.csv",), pods=(pods,), gpus=16)
    scenario, readings = scenarios.load(files, Settings())
    first_ms = min(each.submitted_ms for each in readings[0].jobs)
    assert next(each for each in scenario.jobs if each.endless).submitted_ms == first_ms
    assert readings[1].notes == [f"{pods}: its times are no dates: its first submission is set on the others'"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (scenarios.Files(gpus=8), "no demand: give --jobs, --pods or --sacct"),
        (scenarios.Files(jobs=(DATA / "philly_60.csv",)), "give the fleet by either --gpus N or --nodes FILE"),
        (scenarios.Files(jobs=(DATA / "philly_60.csv",) * 2, gpus=8), "is there twice: give each file once"),
    ],
)
def test_what_cannot_be_run_is_refused(files: scenarios.Files, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        scenarios.load(files, Settings())


def test_a_file_of_broken_rows_only_is_refused_with_the_first(tmp_path: Path) -> None:
    path = written(tmp_path, f"{JOBS}x,1,1,a\n")
    with pytest.raises(
        InvalidInputError, match=r"no row can be used; the first is broken: .*jobs.csv:2: timestamp='x'"
    ):
        scenarios.load(scenarios.Files(jobs=(path,), gpus=8), Settings())
