"""Runs of the simulator whose every step can be told beforehand."""

from dataclasses import replace

import pytest

from bridge.ledger.decay import decayed
from bridge.ledger.port import Held
from bridge.quota.model import Quota, TeamName, TeamSpec
from bridge.simulate import cases, comparison, figures, fleet, teams
from bridge.simulate.decay import Decay
from bridge.simulate.engine import Engine
from bridge.simulate.model import FLAVOR, FLEET, Job, Node, PolicyName, Scenario, Settings, TeamTerms
from bridge.simulate.outcome import Outcome
from bridge.simulate.series import Bins, held, lost, waiting
from bridge.workloads.model import NodeName, System, Workload, WorkloadId

S, H = 1000, 3_600_000
A, B = TeamName("a"), TeamName("b")
HALVES = (
    TeamTerms(TeamSpec(FLEET, quotas={FLAVOR: Quota(16)})),
    TeamTerms(TeamSpec(A, FLEET, quotas={FLAVOR: Quota(8)})),
    TeamTerms(TeamSpec(B, FLEET, quotas={FLAVOR: Quota(8)})),
)
Event = tuple[int, str, str, str]


def job(name: str, team: TeamName, gpus: int, at_s: float, for_s: float, system: System = System.SLURM) -> Job:
    return Job(WorkloadId(name), team, system, gpus, round(at_s * S), round(for_s * S))


def scenario(*jobs: Job, settings: Settings | None = None, terms: tuple[TeamTerms, ...] = HALVES) -> Scenario:
    ordered = tuple(sorted(jobs, key=lambda each: (each.submitted_ms, each.id)))
    return Scenario(ordered, fleet.equal(16), terms, settings or Settings())


def ran(given: Scenario, policy: PolicyName = PolicyName.SHARED) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []

    def log(at_ms: int, event: str, workload: Workload, nodes: str) -> None:
        events.append((at_ms, event, workload.id, nodes))

    engine = Engine(cases.make(policy, given), given.settings, log)
    outcome = engine.run()
    assert engine._ledger.verify() == ()
    return outcome, [event for event in events if event[1] != "submit"]


def test_work_that_fits_starts_at_once_and_ends_after_its_run_time() -> None:
    outcome, events = ran(scenario(job("x", A, 4, 5, 60), job("y", B, 16, 5, 10)))
    assert events == [
        (5 * S, "start", "x", "node-1=4"),
        (65 * S, "end", "x", "node-1=4"),
        (65 * S, "start", "y", "node-1=8;node-2=8"),
        (75 * S, "end", "y", "node-1=8;node-2=8"),
    ]
    assert [(each.job.id, each.wait_ms) for each in figures.waits(outcome)] == [("x", 0), ("y", 60 * S)]


def test_a_guarantee_is_taken_back_after_the_grace_and_the_victim_starts_anew() -> None:
    """Q5, Q7: b borrows a's node; a asks for it back."""
    outcome, events = ran(
        scenario(job("b1", B, 8, 0, 100), job("b2", B, 8, 1, 1000), job("a1", A, 8, 50, 100))
    )  # fmt: skip
    assert events == [
        (0, "start", "b1", "node-1=8"),
        (1 * S, "start", "b2", "node-2=8"),
        (50 * S, "signal", "b2", "node-2=8"),
        (80 * S, "requeue", "b2", "node-2=8"),
        (80 * S, "start", "a1", "node-2=8"),
        (100 * S, "end", "b1", "node-1=8"),
        (100 * S, "start", "b2", "node-1=8"),
        (180 * S, "end", "a1", "node-2=8"),
        (1100 * S, "end", "b2", "node-1=8"),
    ]
    assert {each.job.id: each.wait_ms for each in figures.waits(outcome)} == {"b1": 0, "b2": 99 * S, "a1": 30 * S}
    assert [(each.for_team, each.from_team, each.gpus, each.lost_gpu_ms) for each in outcome.taken] == [
        (A, B, 8, 8 * 79 * S)
    ]
    told = figures.of(outcome, comparison.comparable([outcome]))
    assert told["preemptions"]["lost_gpu_h"] == round(8 * 79 / 3600, 3)
    whole = told["whole_run"]
    assert whole["available_gpu_h"] == pytest.approx(
        whole["useful_gpu_h"] + whole["lost_gpu_h"] + whole["idle_gpu_h"], abs=2e-3
    )
    assert whole["useful_gpu_h"] == pytest.approx((8 * 100 + 8 * 1000 + 8 * 100) / 3600, abs=1e-3)


@pytest.mark.parametrize(("checkpoint_s", "left_s"), [(0, 1000), (30, 940), (50, 950), (79, 921), (80, 1000)])
def test_a_victim_goes_back_to_its_last_checkpoint(checkpoint_s: int, left_s: int) -> None:
    settings = Settings(checkpoint_ms=checkpoint_s * S)
    given = scenario(
        job("b1", B, 8, 0, 100), job("b2", B, 8, 1, 1000), job("a1", A, 8, 50, 100), settings=settings
    )  # fmt: skip
    _, events = ran(given)
    assert events[-1] == ((100 + left_s) * S, "end", "b2", "node-1=8")


def test_a_pod_that_is_taken_back_serves_for_the_rest_of_its_time() -> None:
    pod = job("pod/b2", B, 8, 1, 1000, System.KUBERNETES)
    outcome, events = ran(scenario(job("b1", B, 8, 0, 100), pod, job("a1", A, 8, 50, 100)))
    assert events[-1] == ((100 + 1000 - 79) * S, "end", "pod/b2", "node-1=8")
    assert [each.lost_gpu_ms for each in outcome.taken] == [0]


def test_the_minimum_runtime_is_waited_for() -> None:
    """Q13: the planner names the time at which it can decide differently."""
    given = scenario(
        job("b1", B, 16, 0, 1000), job("a1", A, 8, 50, 10), settings=Settings(min_runtime_ms=200 * S)
    )  # fmt: skip
    _, events = ran(given)
    assert (200 * S, "signal", "b1", "node-1=8;node-2=8") in events
    assert (230 * S, "start", "a1", "node-1=8") in events


def test_a_victim_that_ends_within_its_grace_is_not_done_again() -> None:
    outcome, events = ran(scenario(job("b1", B, 16, 0, 60), job("a1", A, 8, 50, 10)))
    assert [event[:3] for event in events] == [
        (0, "start", "b1"), (50 * S, "signal", "b1"), (60 * S, "end", "b1"), (60 * S, "start", "a1"),
        (70 * S, "end", "a1"),
    ]  # fmt: skip
    assert outcome.taken == ()


def test_under_static_nobody_borrows_and_what_is_larger_than_its_partition_is_refused() -> None:
    given = scenario(job("b1", B, 8, 0, 100), job("b2", B, 8, 1, 100), job("b3", B, 16, 2, 100))
    outcome, events = ran(given, PolicyName.STATIC)
    assert [event[:3] for event in events] == [
        (0, "start", "b1"), (100 * S, "end", "b1"), (100 * S, "start", "b2"), (200 * S, "end", "b2"),
    ]  # fmt: skip
    assert [(each.job.id, each.why) for each in outcome.case.refused] == [
        ("b3", "16 GPUs are more than team b may ever hold here (8)")
    ]
    shared, _ = ran(given)
    assert comparison.comparable([shared, outcome]) == {"b1", "b2"}
    told = comparison.summary(given, [], [shared, outcome])
    assert [each["waits"]["all"]["jobs"] for each in told["policies"]] == [2, 2]
    assert told["policies"][1]["jobs"] == {"ran": 2, "refused": 1, "never_started": 0}


def test_under_split_a_system_keeps_its_nodes_while_they_idle() -> None:
    given = scenario(job("s1", A, 8, 0, 100), job("s2", A, 8, 0, 100), job("pod/p", B, 4, 150, 100, System.KUBERNETES))
    outcome, events = ran(given, PolicyName.SPLIT)
    assert {supply.flavor for supply in outcome.case.supplies} == {"nodes of slurm", "nodes of kubernetes"}
    assert [event[0] for event in events if event[1] == "start"] == [0, 100 * S, 150 * S]


def test_under_fifo_the_first_come_is_the_first_served_whoever_he_is() -> None:
    _, events = ran(
        scenario(job("b1", B, 16, 0, 100), job("b2", B, 16, 1, 100), job("a1", A, 8, 2, 10)), PolicyName.FIFO
    )  # fmt: skip
    assert [event[2] for event in events if event[1] == "start"] == ["b1", "b2", "a1"]


def test_a_job_of_a_team_that_is_not_in_the_tree_is_refused_by_name() -> None:
    outcome, _ = ran(scenario(job("x", TeamName("stranger"), 1, 0, 1), job("y", A, 1, 0, 1)))
    assert [each.why for each in outcome.case.refused] == ["team stranger is not among the teams"]


def test_only_nodes_of_the_asked_kind_are_used() -> None:
    nodes = (Node(NodeName("n1"), 8, "P100"), Node(NodeName("n2"), 8, "T4"))
    t4 = replace(job("pod/t", A, 2, 0, 10, System.KUBERNETES), models=frozenset({"T4"}))
    v100 = replace(job("pod/v", A, 2, 0, 10, System.KUBERNETES), models=frozenset({"V100"}))
    outcome, events = ran(replace(scenario(t4, v100), nodes=nodes))
    assert events[0] == (0, "start", "pod/t", "n2=2")
    assert [each.why for each in outcome.case.refused] == [
        "1 nodes with 2 GPUs of the kind V100 are more than there are (0)"
    ]


@pytest.mark.parametrize(
    ("gpus", "nodes", "expected"),
    [(1, None, (1, 1)), (12, None, (2, 6)), (128, None, (16, 8)), (11, None, (11, 1)), (8, 4, (4, 2)), (8, 3, (1, 8))],
)
def test_gangs_are_laid_out_in_equal_parts(gpus: int, nodes: int | None, expected: tuple[int, int]) -> None:
    assert cases.layout(replace(job("x", A, gpus, 0, 1), nodes=nodes), 8) == expected


def test_guessed_limits_are_never_below_the_run_time_and_the_same_for_a_seed() -> None:
    jobs = [job(f"j{index}", A, 1, 0, 100) for index in range(200)]
    guess = [cases.limit_s(each, Settings(limit_factor=2, seed=1)) or 0 for each in jobs]
    assert guess == [cases.limit_s(each, Settings(limit_factor=2, seed=1)) for each in jobs]
    assert guess != [cases.limit_s(each, Settings(limit_factor=2, seed=2)) for each in jobs]
    assert 100 <= min(guess) < 140
    assert 260 < max(guess) <= 300
    assert cases.limit_s(replace(jobs[0], time_limit_s=50), Settings()) == 100  # it ran beyond its limit
    assert cases.limit_s(jobs[0], Settings()) is None
    assert cases.limit_s(job("pod/x", A, 1, 0, 1, System.KUBERNETES), Settings(limit_factor=2)) is None


def test_decayed_use_is_the_same_in_one_step_and_in_many() -> None:
    """Q17."""
    one, many = Decay(10 * H, 0), Decay(10 * H, 0)
    for decay in (one, many):
        decay.change(A, FLAVOR, 8, 0)
    for hour in range(1, 10):
        many.change(A, FLAVOR, 0, hour * H)
    assert one.at(10 * H)[A, FLAVOR] == pytest.approx(4.0)
    assert many.at(10 * H)[A, FLAVOR] == pytest.approx(4.0)
    assert one.at(20 * H)[A, FLAVOR] == pytest.approx(6.0)
    assert Decay(0, 0).at(5) == {}


def test_decayed_use_is_what_the_ledger_makes_of_the_same_spans() -> None:
    """Q17: the simulator steps from change to change, the bridge sums spans; both order alike."""
    stepped = Decay(10 * H, 0)
    for gpus, at_ms in ((8, H), (4, 2 * H), (-8, 7 * H), (-3, 11 * H)):
        stepped.change(A, FLAVOR, gpus, at_ms)
    amounts = ((8, H, 2 * H), (12, 2 * H, 7 * H), (4, 7 * H, 11 * H), (1, 11 * H, None))
    spans = [Held(A, System.SLURM, FLAVOR, gpus, begun_ms, ended_ms) for gpus, begun_ms, ended_ms in amounts]
    for now_ms in (11 * H, 12 * H + 7, 400 * H):
        assert stepped.at(now_ms)[A, FLAVOR] == pytest.approx(decayed(spans, now_ms, 10 * H)[A, FLAVOR], rel=1e-9)


def test_series_are_exact_means() -> None:
    outcome, _ = ran(scenario(job("b1", B, 8, 0, 100), job("b2", B, 8, 1, 1000), job("a1", A, 8, 50, 100)))
    bins = Bins(0, 100 * S, 10)
    sums = held(outcome, bins, lambda each: str(each.team))
    assert sums["b"] == pytest.approx([8 + 7.2, *[16] * 7, 8, 8])
    assert sums["a"] == pytest.approx([0] * 8 + [8, 8])
    assert lost(outcome, bins) == pytest.approx([7.2, *[8] * 7, 0, 0])
    assert waiting(outcome, bins) == pytest.approx([0, 0, 0, 0, 0, 8, 8, 8, 8, 8])


def test_the_verdict_names_who_is_worse_off() -> None:
    given = scenario(job("b1", B, 9, 0, 20), job("a1", A, 8, 0, 5))

    def policy(name: str, a_s: float, b_s: float) -> dict[str, object]:
        return {"policy": name, "waits": {"by_team": {"a": {"jobs": 1, "p95_s": a_s}, "b": {"jobs": 1, "p95_s": b_s}}}}

    found = comparison.against_static(given, [policy("shared", 25.0, 20.0), policy("static", 0.0, 0.0)])
    assert found is not None
    assert (found["bound_s"], found["holds"]) == (20.0, False)
    assert found["worst"]["team"] == "a"
    assert [(each["team"], each["holds"]) for each in found["teams"]] == [("a", False), ("b", True)]
    assert comparison.against_static(given, [policy("shared", 1.0, 1.0)]) is None


def test_quantiles_are_by_nearest_rank() -> None:
    assert [figures.quantile(range(1, 101), percent) for percent in (1, 50, 95, 99, 100)] == [1, 50, 95, 99, 100]
    assert (figures.quantile([7], 50), figures.quantile([], 99)) == (7, 0)


def test_by_demand_guarantees_make_static_the_same_partition() -> None:
    jobs = [job("1", A, 4, 0, 300), job("2", B, 1, 0, 100)]
    given = Scenario(tuple(jobs), fleet.equal(40), teams.by_demand(jobs, fleet.equal(40)).terms)
    shared, static = (cases.make(policy, given) for policy in (PolicyName.SHARED, PolicyName.STATIC))
    assert shared.guarantees == static.guarantees == {A: 32, B: 8}
