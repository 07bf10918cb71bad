"""Policies side by side on one scenario, and the one statement that a platform has to answer for. Pure."""

from collections.abc import Sequence
from typing import Any

from bridge.simulate import figures
from bridge.simulate.model import PolicyName, Reading, Scenario
from bridge.simulate.outcome import Outcome
from bridge.workloads.model import WorkloadId


def comparable(outcomes: Sequence[Outcome]) -> frozenset[WorkloadId]:
    """Return the jobs that ended under every policy."""
    ended = [
        frozenset(outcome.case.work[each.job][0].id for each in outcome.stretches if not each.preempted)
        for outcome in outcomes
    ]
    return frozenset.intersection(*ended) if ended else frozenset()


def summary(scenario: Scenario, readings: Sequence[Reading], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the whole document of `--output json`."""
    jobs = comparable(outcomes)
    policies = [figures.of(outcome, jobs) for outcome in outcomes]
    return {
        "input": [_input(reading) for reading in readings],
        "fleet": {"nodes": len(scenario.nodes), "gpus": scenario.gpus},
        "teams": "given" if scenario.teams_given else "one for each name in the trace, guarantees by mean demand",
        "settings": _settings(scenario),
        "jobs": len(scenario.jobs),
        "compared_jobs": len(jobs),
        "policies": policies,
        "against_static": against_static(scenario, policies),
    }


def against_static(scenario: Scenario, policies: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Compare each team's p95 wait under `shared` with that under `static`; None when one of them was not run.

    The bound is one gang's run time: what a team may have to wait for when a gang that it cannot take back holds its
    nodes. The mean over all gangs of the trace is taken; the median and the longest are told beside it. Gangs are the
    jobs of GANG GPUs and more; in a trace without any, its largest jobs.
    """
    by_name = {each["policy"]: each for each in policies}
    shared, static = by_name.get(PolicyName.SHARED.value), by_name.get(PolicyName.STATIC.value)
    if shared is None or static is None:
        return None
    least = min(figures.GANG, max(job.gpus for job in scenario.jobs))
    gangs = sorted(job.duration_ms for job in scenario.jobs if job.gpus >= least)
    bound_s = figures.spread(gangs)["mean_s"]
    teams = []
    for team, ours in shared["waits"]["by_team"].items():
        theirs = static["waits"]["by_team"].get(team)
        if theirs is None or not ours["jobs"]:
            continue
        worse_s = round(ours["p95_s"] - theirs["p95_s"], 3)
        teams.append(
            {
                "team": team,
                "jobs": ours["jobs"],
                "shared_p95_s": ours["p95_s"],
                "static_p95_s": theirs["p95_s"],
                "worse_by_s": worse_s,
                "holds": worse_s <= bound_s,
            }
        )
    return {
        "statement": "no team's p95 wait is worse than under static by more than one gang's run time",
        "holds": all(each["holds"] for each in teams),
        "gangs": {"least_gpus": least, **figures.spread(gangs)},
        "bound_s": bound_s,
        "worst": max(teams, key=lambda each: (each["worse_by_s"], each["team"]), default=None),
        "teams": teams,
    }


def _input(reading: Reading) -> dict[str, Any]:
    return {
        "file": reading.source,
        "rows": reading.rows,
        "jobs": len(reading.jobs),
        "left_out": dict(sorted(reading.skipped.items())),
        "broken": len(reading.faults),
        "faults": reading.faults[:20],
        "notes": reading.notes,
    }


def _settings(scenario: Scenario) -> dict[str, Any]:
    settings = scenario.settings
    return {
        "checkpoint_s": settings.checkpoint_ms // 1000,
        "grace_s": settings.grace_ms // 1000,
        "min_runtime_s": settings.min_runtime_ms // 1000,
        "half_life_s": settings.half_life_ms // 1000,
        "limit_factor": settings.limit_factor,
        "seed": settings.seed,
    }
