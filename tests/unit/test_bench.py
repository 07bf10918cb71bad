"""The planner bench runs, at a size that takes no time, and it fails for wrong answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.quota.model import TeamName
from bridge.workloads.model import Grant, GrantState, NodeName, System, WorkloadId
from tests.bench import standing, throughput
from tests.bench.audit import Audit, WrongAnswerError
from tests.bench.figures import quantile
from tests.bench.fleets import FLAVOR, Fleet, fleet
from tests.bench.table import table

TEAM = TeamName("g000-t00")


@pytest.fixture
def small() -> Fleet:
    return fleet(groups=1, teams=2, per_team=50, guarantee=20)


def grant(name: str, gpus: int = 4, node: str = "n00000", system: System = System.SLURM) -> Grant:
    placement = {NodeName(node): gpus}
    return Grant(WorkloadId(name), 1, TEAM, FLAVOR, system, gpus, GrantState.RESERVED, placement)


def test_every_workload_of_a_run_is_granted_runs_and_ends(small: Fleet, tmp_path: Path) -> None:
    figures = throughput.measure(small, tmp_path)
    assert figures["workloads"] == 100
    assert figures["decisions"] == 100 + figures["preemptions"]


def test_a_standing_queue_keeps_its_length_and_its_fleet_stays_full(tmp_path: Path) -> None:
    full = fleet(groups=1, teams=4, per_team=100, guarantee=60, ranked=False)
    figures = standing.measure(full, tmp_path, waiting=200, cycles=3)
    assert 150 <= figures["waiting"] <= 250
    assert figures["changed_decisions"] > 0


def test_the_audit_finds_a_node_that_holds_too_much(small: Fleet) -> None:
    audit = Audit(small.tree, small.nodes)
    audit.grant(grant("a", 5))
    with pytest.raises(WrongAnswerError, match="holds 10"):
        audit.grant(grant("b", 5))


def test_the_audit_finds_a_node_that_serves_both_systems(small: Fleet) -> None:
    audit = Audit(small.tree, small.nodes)
    audit.grant(grant("a"))
    with pytest.raises(WrongAnswerError, match="both systems"):
        audit.grant(grant("b", system=System.KUBERNETES))


def test_the_audit_finds_a_quota_that_is_overdrawn(small: Fleet) -> None:
    audit = Audit(small.tree, (*small.nodes, replace(small.nodes[0], name=NodeName("more"))))
    for node in small.nodes:
        audit.grant(grant(node.name, 8, node.name))
    with pytest.raises(WrongAnswerError, match="g000 may hold 40 and holds 48"):
        audit.grant(grant("last", 8, "more"))


def test_the_audit_finds_what_is_granted_twice_or_never_ends(small: Fleet) -> None:
    audit = Audit(small.tree, small.nodes)
    audit.grant(grant("a"))
    with pytest.raises(WrongAnswerError, match="while it holds"):
        audit.grant(grant("a", node="n00001"))
    with pytest.raises(WrongAnswerError, match="0 of 1"):
        audit.check_all_done({WorkloadId("a")})
    audit.end(WorkloadId("a"))
    audit.check_all_done({WorkloadId("a")})


def test_quantiles_are_by_nearest_rank() -> None:
    assert [quantile([3, 1, 2, 4], share) for share in (0.25, 0.5, 0.75, 0.99, 1)] == [1, 2, 3, 4, 4]


def test_the_table_says_which_aims_are_met() -> None:
    cycle = {"p50_ms": 1.0, "p99_ms": 19.0, "max_ms": 3.0, "cpu_p99_ms": 1.0}
    quick: dict[str, Any] = {
        "decisions": 10, "decisions_per_s": 2_999.0, "cpu_s": 0.1, "cycle": cycle, "peak_mb": 5, "preemptions": 0,
    }  # fmt: skip
    standing_queue = {
        "nodes": 5, "waiting": 5, "holding": 5, "unchanged": cycle, "changed": {**cycle, "p99_ms": 101.0},
        "peak_mb": 5, "fill": {"decisions": 5, "seconds": 1.0},
    }  # fmt: skip
    sizes = {part: {"quarter": quick, "whole": quick} for part in ("a", "b")}
    machine = {"cpus": 2, "python": "3", "disk_sync_ms": 1}
    told = table({"machine": machine, **sizes, "c": {"quarter": standing_queue, "whole": standing_queue}})
    said = [line.split("  ")[0].strip() for line in told.split("AIMS\n")[1].splitlines()[:6]]
    assert said == ["NOT MET", "met", "met", "met", "NOT MET", "met"]
