"""A guarantee is taken back across both systems, by the whole controller in memory (rules 9 to 13 of the design)."""

from collections.abc import Iterator

import pytest

from bridge import wellknown
from bridge.errors import OutcomeUnknownError, RejectedError
from bridge.kube import port
from bridge.slurm.model import GraceSignal
from tests.unit import test_controller_plan as batch
from tests.unit import worlds
from tests.unit.platform_of_three import Three

USR1 = GraceSignal(10, batch=True)
TOLD = "preempted: team alpha takes back its guarantee (8 h100)"


@pytest.fixture
def platform() -> Iterator[Three]:
    made = Three()
    yield made
    assert not made.ledger.verify()
    made.ledger.close()


def lend_to_jobs(platform: Three, **asked: object) -> tuple[int, int]:
    """Let bravo borrow a whole node with one job, and charlie use its guarantee on the other node."""
    borrowing = platform.job("bravo", 8, **asked)
    platform.until(lambda: platform.runs(borrowing))
    platform.clock.advance(60_000)
    within = platform.job("charlie", 4)
    platform.until(lambda: platform.runs(within))
    return borrowing, within


def test_a_job_takes_its_guarantee_back_from_a_borrowing_job(platform: Three) -> None:
    """Rule 9: Slurm from Slurm; the victim is requeued and held, told why, and comes back through the ledger."""
    borrowing, within = lend_to_jobs(platform)
    asking = platform.job("alpha", 8)
    platform.until(lambda: not platform.runs(borrowing))
    assert platform.slurm.job(borrowing).comment_text == TOLD
    assert not platform.runs(asking), "what is COMPLETING is not free"
    platform.settle()
    platform.until(lambda: platform.runs(asking))
    platform.run(2)
    assert platform.runs(within), "who is within its guarantee is not touched (rule 10)"
    assert platform.tries() == ["started"]
    assert platform.slurm.job(borrowing).held
    assert platform.slurm.job(borrowing).restart_count == 1
    assert f"requeued by slurm; {TOLD}" in platform.notes()


def test_a_pod_takes_its_guarantee_back_from_a_borrowing_job(platform: Three) -> None:
    """Rule 9: Kubernetes from Slurm; the worker goes, too."""
    borrowing, _ = lend_to_jobs(platform)
    platform.pod("alpha", "web", 8)
    platform.until(lambda: not platform.runs(borrowing))
    platform.settle()
    platform.until(lambda: platform.serves("alpha", "web"))
    platform.run(2)
    assert platform.tries() == ["started"]


def test_a_job_takes_its_guarantee_back_from_borrowing_pods(platform: Three) -> None:
    """Rule 9: Slurm from Kubernetes, by evictions, with an Event on each pod."""
    for name in ("w1", "w2", "w3"):
        platform.pod("charlie", name, 4)
    platform.until(lambda: len(platform.running()) == 3)
    asking = platform.job("alpha", 8)
    platform.until(lambda: platform.runs(asking))
    assert platform.held() == {"alpha": 8, "charlie": 8}, "one eviction beside 4 free devices is enough (rule 14)"
    platform.run(2)
    assert platform.tries() == ["started"]
    assert set(platform.events("charlie", "Preempted")) == {TOLD}
    assert any(note.endswith(TOLD) for note in platform.notes())


def test_a_budget_delays_an_eviction_and_is_told(platform: Three) -> None:
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "w1"}}}}
    platform.kube.create(port.PDBS, budget, namespace="charlie")
    platform.pod("charlie", "w1", 8)
    platform.until(lambda: platform.serves("charlie", "w1"))
    taken = platform.job("bravo", 4)
    platform.until(lambda: platform.runs(taken))
    asking = platform.job("alpha", 8)
    platform.run(6)
    assert platform.serves("charlie", "w1")
    assert "disruption budget" in platform.events("charlie", "EvictionRefused")[0]
    assert "disruption budget" in platform.actor.failures["EvictPod"]
    platform.kube.delete(port.PDBS, "b", namespace="charlie")
    platform.until(lambda: platform.runs(asking))
    platform.run(2)
    assert platform.tries() == ["started"]


def test_a_job_gets_the_signal_it_asked_for_once_and_its_whole_grace(platform: Three) -> None:
    """Rule 13."""
    borrowing, _ = lend_to_jobs(platform, signal=USR1)
    platform.job("alpha", 8)
    platform.until(lambda: platform.slurm.signals == [(borrowing, USR1)])
    platform.run(3)
    platform.clock.advance(28_000)  # of the 30 s
    platform.run(3)
    assert platform.runs(borrowing)
    assert platform.slurm.signals == [(borrowing, USR1)], "once"
    platform.clock.advance(2_000)
    platform.until(lambda: not platform.runs(borrowing))


def test_a_signal_whose_answer_was_lost_is_sent_again(platform: Three) -> None:
    borrowing, _ = lend_to_jobs(platform, signal=USR1)
    platform.slurm.fail_next("signal", OutcomeUnknownError("timed out"))
    platform.job("alpha", 8)
    platform.until(lambda: platform.slurm.signals == [(borrowing, USR1)])


def test_a_job_that_cannot_be_signalled_has_its_grace_and_no_more(platform: Three) -> None:
    borrowing, _ = lend_to_jobs(platform, signal=USR1)
    platform.slurm.fail_next("signal", RejectedError("Invalid signal"))
    platform.job("alpha", 8)
    platform.run(4)
    assert platform.runs(borrowing)
    platform.clock.advance(30_000)
    platform.until(lambda: not platform.runs(borrowing))
    assert platform.slurm.signals == []


def test_a_kubectl_job_that_makes_way_is_told_and_comes_back(platform: Three) -> None:
    """It runs in Slurm: the same requeue, an Event on the Job, and its status says that it waits again."""
    made = batch.batch_job()
    del made["metadata"]["uid"]
    made["metadata"]["namespace"] = "bravo"
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {worlds.GPU: "8"}
    made["metadata"].setdefault("annotations", {})[wellknown.SUBMITTED_BY] = "bob"
    made["metadata"].setdefault("labels", {})[wellknown.TEAM_LABEL] = "bravo"
    platform.kube.create(port.JOBS, {"apiVersion": "batch/v1", "kind": "Job", **made}, namespace="bravo")
    platform.until(lambda: bool(platform.running()))
    (record,) = platform.slurm.jobs()
    within = platform.job("charlie", 4)
    platform.until(lambda: platform.runs(within))
    asking = platform.job("alpha", 8)
    platform.until(lambda: not platform.runs(record.job_id))
    platform.settle()
    platform.until(lambda: platform.runs(asking))
    assert platform.events("bravo", "Preempted") == [TOLD]
    platform.run(2)
    (job,) = platform.kube.list(port.JOBS, namespace="bravo").items
    assert not job["status"].get("ready")
    assert not [c for c in job["status"].get("conditions") or [] if c["type"] in ("Failed", "FailureTarget")]


def test_a_victim_that_ends_by_itself_in_its_grace_is_no_victim(platform: Three) -> None:
    borrowing, _ = lend_to_jobs(platform, signal=USR1)
    asking = platform.job("alpha", 8)
    platform.until(lambda: bool(platform.slurm.signals))
    platform.slurm.complete(borrowing)
    platform.settle()
    platform.until(lambda: platform.runs(asking))
    platform.run(2)
    assert "completed" in platform.notes()
    assert not [i for i in platform.ledger.intents() if i.kind in ("preempt", "signal")]


def test_nobody_else_gets_what_was_freed(platform: Three) -> None:
    """Rule 12: bravo's victim and charlie's pod both ask; alpha's job starts, though a pod came first."""
    borrowing, _ = lend_to_jobs(platform)
    platform.pod("charlie", "late", 8)
    asking = platform.job("alpha", 8)
    platform.until(lambda: not platform.runs(borrowing))
    platform.settle()
    platform.until(lambda: platform.runs(asking))
    assert not platform.serves("charlie", "late")
    assert platform.slurm.job(borrowing).held


def test_minimum_runtime_is_honoured() -> None:
    """Rule 13."""
    platform = Three({"minRuntime": "10m"})
    borrowing, _ = lend_to_jobs(platform)
    asking = platform.job("alpha", 8)
    platform.run(5)
    assert platform.runs(borrowing)
    assert platform.tries() == []
    platform.clock.advance(600_000)
    platform.until(lambda: not platform.runs(borrowing))
    platform.settle()
    platform.until(lambda: platform.runs(asking))
    platform.ledger.close()


def test_what_cannot_be_requeued_does_not_borrow(platform: Three) -> None:
    small = platform.job("bravo", 3, requeueable=False)
    platform.until(lambda: platform.runs(small))
    other = platform.job("bravo", 2, batch=False)
    never = platform.job("bravo", 5, requeueable=False)
    platform.run(4)
    assert not platform.runs(other)
    assert platform.slurm.job(other).comment_text.startswith("OnlyWithinGuarantee")
    assert platform.slurm.job(never).comment_text.startswith("ExceedsLimit")


def test_what_cannot_be_requeued_is_cancelled_where_its_team_allows_that() -> None:
    platform = Three({"killNonRequeueable": True})
    borrowing, _ = lend_to_jobs(platform, requeueable=False)
    asking = platform.job("alpha", 8)
    platform.until(lambda: not platform.runs(borrowing))
    platform.settle()
    platform.until(lambda: platform.runs(asking))
    assert platform.slurm.job(borrowing).state.value == "CANCELLED"
    platform.ledger.close()


def test_a_pod_annotated_as_not_preemptible_does_not_borrow(platform: Three) -> None:
    platform.pod("charlie", "web", 8)
    never = {"metadata": {"annotations": {wellknown.PREEMPTIBLE_ANNOTATION: "false"}}}
    platform.kube.patch(port.PODS, "web", never, namespace="charlie")
    platform.run(4)
    assert not platform.serves("charlie", "web")


def test_a_try_that_is_not_in_time_lapses_and_the_next_one_waits(platform: Three) -> None:
    """Rule 12: an earmark is bounded. The victim's processes do not end (it stays COMPLETING)."""
    borrowing, _ = lend_to_jobs(platform)
    platform.job("alpha", 8)
    platform.until(lambda: not platform.runs(borrowing))
    platform.clock.advance(151_000)  # grace and margin
    platform.until(lambda: platform.tries()[0].startswith("lapsed: still held by slurm/main/"))
    platform.run(3)
    assert len(platform.tries()) == 1


def test_a_preemptor_that_is_deleted_lets_its_victims_run_on(platform: Three) -> None:
    borrowing, _ = lend_to_jobs(platform, signal=USR1)
    platform.pod("alpha", "web", 8)
    platform.until(lambda: bool(platform.slurm.signals))
    platform.kube.delete(port.PODS, "web", namespace="alpha")
    platform.until(lambda: platform.tries() == ["gone"])
    platform.clock.advance(60_000)
    platform.run(3)
    assert platform.runs(borrowing)
    assert not [i for i in platform.ledger.intents() if i.kind in ("preempt", "signal")]
