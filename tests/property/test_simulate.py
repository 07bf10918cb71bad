"""Random traces on random fleets under every policy: what must hold whatever they are."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.quota.model import TeamName
from bridge.simulate import cases, comparison, eventlog, fleet, teams
from bridge.simulate.engine import Engine
from bridge.simulate.model import Job, PolicyName, Scenario, Settings
from bridge.workloads.model import System, WorkloadId
from tests.unit import simulate_check as check


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    jobs = []
    for index in range(draw(st.integers(1, 14))):
        system = draw(st.sampled_from(System))
        name = f"{'slurm/' if system is System.SLURM else 'pod/'}{index:02}"
        gpus = draw(st.sampled_from((1, 2, 3, 4, 8) if system is System.KUBERNETES else (1, 2, 4, 8, 12, 16)))
        limit_s = draw(st.none() | st.integers(1, 400))
        jobs.append(
            Job(
                WorkloadId(name), TeamName(draw(st.sampled_from("abc"))), system, gpus,
                draw(st.integers(0, 200)) * 1000, draw(st.integers(1, 300)) * 1000, time_limit_s=limit_s,
            )
        )  # fmt: skip
    nodes = fleet.equal(draw(st.integers(1, 4)) * 8)
    settings_ = Settings(
        checkpoint_ms=draw(st.sampled_from((0, 20_000))),
        grace_ms=draw(st.sampled_from((0, 1000, 30_000))),
        min_runtime_ms=draw(st.sampled_from((0, 50_000))),
        half_life_ms=draw(st.sampled_from((0, 60_000))),
        history_step_ms=10_000,
    )
    ordered = sorted(jobs, key=lambda job: (job.submitted_ms, job.id))
    return Scenario(tuple(ordered), nodes, teams.by_demand(jobs, nodes).terms, settings_)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.sampled_from([(PolicyName.SHARED, PolicyName.STATIC), (PolicyName.SPLIT, PolicyName.FIFO)]))
def test_every_job_runs_once_to_its_end_on_nodes_that_hold_it(
    scenario: Scenario, policies: tuple[PolicyName, ...]
) -> None:
    """Q1, Q10, Q11, Q16: nothing oversubscribed, nobody starves, and the figures are what the events say."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "events.csv"
        outcomes = []
        with eventlog.EventLog(path.open("w", newline="")) as log:
            for policy in policies:
                case = cases.make(policy, scenario)
                engine = Engine(case, scenario.settings, log.of(case))
                outcomes.append(engine.run())
                assert engine._ledger.verify() == ()
        document = comparison.summary(scenario, [], outcomes)
        durations = {str(job.id): job.duration_ms for job in scenario.jobs}
        told = check.replay(path, durations, {str(node.name): node.gpus for node in scenario.nodes})
    assert check.differences(document, told) == []
    for outcome in outcomes:
        assert outcome.stranded == ()
        assert len(outcome.case.work) + len(outcome.case.refused) == len(scenario.jobs)
        kept: dict[int, int] = {}
        for each in outcome.stretches:
            kept[each.job] = kept.get(each.job, 0) + each.kept_ms
        assert kept == {index: job.duration_ms for index, (job, _) in enumerate(outcome.case.work)}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_the_same_scenario_runs_the_same_whatever_order_its_teams_come_in(scenario: Scenario) -> None:
    backwards = Scenario(scenario.jobs, scenario.nodes[::-1], scenario.teams[::-1], scenario.settings)
    one, two = (Engine(cases.make(PolicyName.SHARED, each), each.settings).run() for each in (scenario, backwards))
    assert one.stretches == two.stretches
    assert one.taken == two.taken
