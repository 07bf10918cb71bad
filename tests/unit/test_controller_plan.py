"""The plan of one cycle, from worlds written by hand."""

from typing import Any

import pytest

from bridge import wellknown
from bridge.capacity.model import CreateWorker, DeleteWorker, DrainWorker, ForgetNode
from bridge.controller import acts, settle
from bridge.controller import plan as planner
from bridge.controller.plan import Plan
from bridge.ledger.port import Intent
from bridge.slurm.model import JobState, Tres
from bridge.workloads import batchjobs
from bridge.workloads.model import GrantState, WorkloadId
from bridge.workloads.reasons import Reason
from tests.unit import worlds

J1, P1 = "slurm/main/k1", "pod/p1"


def of(plan: Plan, kind: type[Any]) -> list[Any]:
    return [act for act in (*plan.writes, *plan.acts) if isinstance(act, kind)]


def test_a_held_job_is_granted_first_and_its_worker_is_made_before_it_is_released() -> None:
    plan = planner.plan(worlds.world(nodes=[worlds.node("g1")], slurm_jobs=[worlds.job()]))
    (reserve,) = of(plan, acts.Reserve)
    assert reserve.placement == {"g1": 4}
    assert [(a.node, a.gpus) for a in of(plan, CreateWorker)] == [("g1", 8)]
    assert not of(plan, acts.ReleaseJob)
    assert plan.waits[WorkloadId(J1)].reason is Reason.MOVING


def test_with_a_usable_worker_the_job_is_released_onto_exactly_that_worker() -> None:
    world = worlds.world(
        nodes=[worlds.node("g1")],
        pods=[worlds.worker("g1")],
        slurm_jobs=[worlds.job()],
        slurm_nodes=[worlds.slurm_node("g1")],
    )
    (release,) = of(planner.plan(world), acts.ReleaseJob)
    assert release.slurm_nodes == ("h100-g1",)


def test_a_running_job_is_charged_what_slurm_allocated_and_held_as_root() -> None:
    """J13: any requeue of a running job lands held, because it is held while it runs."""
    running = worlds.job(state=JobState.RUNNING, held=False, allocated=Tres({"h100": 5}, nodes=1))
    world = worlds.world(
        nodes=[worlds.node("g1")],
        pods=[worlds.worker("g1")],
        slurm_jobs=[running],
        slurm_nodes=[worlds.slurm_node("g1", "MIXED")],
        grants=[worlds.grant(J1)],
    )
    plan = planner.plan(world)
    (run,) = of(plan, acts.Run)
    assert (run.gpus, run.at_ms, run.placement) == (5, running.start_ms, {"g1": 5})
    assert [a.ref.job_id for a in of(plan, acts.HoldJob)] == [7]


@pytest.mark.parametrize("flags", [frozenset({"COMPLETING"}), frozenset({"NEW_FLAG_OF_2030"})])
def test_completing_and_unknown_states_keep_the_charge(flags: frozenset[str]) -> None:
    """J5, J3: devices of a COMPLETING job are nobody else's; an unknown flag concludes nothing."""
    ending = worlds.job(state=JobState.COMPLETED, held=True, flags=flags, end_ms=worlds.NOW_MS)
    world = worlds.world(slurm_jobs=[ending], grants=[worlds.grant(J1, GrantState.RUNNING)])
    assert not of(planner.plan(world), acts.Release)


def test_an_ended_job_releases_at_slurms_own_end_time() -> None:
    ended = worlds.job(state=JobState.COMPLETED, held=True, end_ms=worlds.NOW_MS - 1_000)
    world = worlds.world(slurm_jobs=[ended], grants=[worlds.grant(J1, GrantState.RUNNING)])
    (release,) = of(planner.plan(world), acts.Release)
    assert release.at_ms == worlds.NOW_MS - 1_000


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED])
def test_a_job_that_exited_before_it_was_seen_has_run_though_within_one_second(state: JobState) -> None:
    second = worlds.NOW_MS - 5_000
    ended = worlds.job(state=state, held=False, start_ms=second, end_ms=second)
    plan = planner.plan(worlds.world(slurm_jobs=[ended], grants=[worlds.grant(J1)]))
    assert [w.at_ms for w in of(plan, acts.Run)] == [w.at_ms for w in of(plan, acts.Release)] == [second]
    assert not of(plan, acts.Void)


def test_a_job_that_was_cancelled_before_it_ran_gives_its_reservation_back() -> None:
    second = worlds.NOW_MS - 5_000
    ended = worlds.job(state=JobState.CANCELLED, held=True, start_ms=second, end_ms=second, nodes=())
    plan = planner.plan(worlds.world(slurm_jobs=[ended], grants=[worlds.grant(J1)]))
    assert (len(of(plan, acts.Void)), of(plan, acts.Run)) == (1, [])


def test_a_requeued_job_ends_its_attempt_and_asks_again() -> None:
    world = worlds.world(
        nodes=[worlds.node("g1")], slurm_jobs=[worlds.job()], grants=[worlds.grant(J1, GrantState.RUNNING)]
    )
    plan = planner.plan(world)
    assert [w.note for w in of(plan, acts.Release)] == ["requeued by slurm"]
    assert len(of(plan, acts.Reserve)) == 1


def test_a_job_that_slurm_keeps_pending_after_its_release_is_held_again_with_the_reason() -> None:
    stuck = worlds.job(held=False, priority=1, state_reason="Resources")
    world = worlds.world(
        slurm_jobs=[stuck], grants=[worlds.grant(J1)], released_ms={WorkloadId(J1): worlds.NOW_MS - 61_000}
    )
    plan = planner.plan(world)
    (void,) = of(plan, acts.Void)
    assert "Resources" in void.note
    assert [a.ref.job_id for a in of(plan, acts.HoldJob)] == [7]


def test_a_gpu_job_that_somebody_released_without_a_grant_is_held() -> None:
    world = worlds.world(slurm_jobs=[worlds.job(held=False, priority=1)])
    assert [a.why for a in of(planner.plan(world), acts.HoldJob)] == ["no grant"]


@pytest.mark.parametrize(("kube_ok", "slurm_ok"), [(True, False), (False, True), (False, False)])
def test_an_unknown_system_is_neither_started_ended_drained_nor_removed(kube_ok: bool, slurm_ok: bool) -> None:
    """N1: a failed read changes nothing of the system that could not be read, and nobody is placed on a guess."""
    world = worlds.world(
        nodes=[worlds.node("g1", cordoned=True)],
        pods=[worlds.pod()],
        slurm_jobs=[] if not slurm_ok else [worlds.job("k2")],
        slurm_nodes=[],
        grants=[worlds.grant(J1, GrantState.RUNNING), worlds.grant("pod/p9", GrantState.RUNNING)],
        kube_ok=kube_ok,
        slurm_ok=slurm_ok,
    )
    plan = planner.plan(world)
    forbidden = (acts.Reserve, acts.UngatePod, acts.ReleaseJob, DrainWorker, DeleteWorker, CreateWorker)
    assert not of(plan, forbidden)  # type: ignore[arg-type]
    ended = {w.workload for w in of(plan, acts.Release)}
    assert (J1 in ended) is False
    assert ("pod/p9" in ended) is kube_ok


def test_a_job_that_slurmctld_lost_keeps_its_charge_until_its_worker_is_seen_free() -> None:
    """J12, N9, rule 5: the record is gone; the devices are free only when the worker says so."""
    lost = {WorkloadId(J1): worlds.NOW_MS - 60_000}
    charged = [worlds.grant(J1, GrantState.RUNNING)]
    silent = worlds.world(pods=[worlds.worker("g1")], grants=charged, missing_ms=lost)
    assert not of(planner.plan(silent), acts.Release)
    free = worlds.world(
        pods=[worlds.worker("g1")], slurm_nodes=[worlds.slurm_node("g1")], grants=charged, missing_ms=lost
    )
    assert len(of(planner.plan(free), acts.Release)) == 1
    recent = worlds.world(
        pods=[worlds.worker("g1")],
        slurm_nodes=[worlds.slurm_node("g1")],
        grants=charged,
        missing_ms={WorkloadId(J1): worlds.NOW_MS - 1_000},
    )
    assert not of(planner.plan(recent), acts.Release)


def test_a_gated_pod_is_granted_pinned_and_ungated_where_its_grant_is() -> None:
    plan = planner.plan(worlds.world(nodes=[worlds.node("g1")], pods=[worlds.pod()]))
    assert len(of(plan, acts.Reserve)) == 1
    assert [(a.pod["metadata"]["uid"], a.node) for a in of(plan, acts.UngatePod)] == [("p1", "g1")]


def test_a_pod_takes_a_node_from_an_idle_worker_by_draining_it_first() -> None:
    world = worlds.world(
        nodes=[worlds.node("g1")],
        pods=[worlds.worker("g1"), worlds.pod()],
        slurm_nodes=[worlds.slurm_node("g1")],
    )
    plan = planner.plan(world)
    assert len(of(plan, acts.Reserve)) == 1
    assert [a.slurm_node for a in of(plan, DrainWorker)] == ["h100-g1"]
    assert not of(plan, (acts.UngatePod, DeleteWorker))  # type: ignore[arg-type]


def test_a_deleted_pod_stays_charged_until_it_is_gone() -> None:
    """J5: deletion that has only begun frees nothing."""
    dying = worlds.pod(gated=False, nodeName="g1")
    dying["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    dying["status"] = {
        "phase": "Running",
        "containerStatuses": [{"state": {"running": {"startedAt": "2027-01-15T07:59:30Z"}}}],
    }
    charged = [worlds.grant(P1, GrantState.RUNNING, gpus=2)]
    assert not of(planner.plan(worlds.world(pods=[dying], grants=charged)), acts.Release)
    assert len(of(planner.plan(worlds.world(grants=charged)), acts.Release)) == 1


def test_a_wait_is_told_where_its_owner_looks_with_the_same_reason() -> None:
    """Q21: squeue's AdminComment and the pod's condition carry the same reason and numbers."""
    full = worlds.grant("slurm/main/k9", GrantState.RUNNING, gpus=12, placement={"g1": 8, "g2": 4})
    running = worlds.job("k9", JobState.RUNNING, job_id=9, held=True, nodes=(), allocated=Tres({"h100": 12}, 2))
    world = worlds.world(
        nodes=[worlds.node("g1"), worlds.node("g2")],
        pods=[worlds.pod()],
        slurm_jobs=[worlds.job(), running],
        grants=[full],
    )
    plan = planner.plan(world)
    (annotation,) = of(plan, acts.AnnotateJob)
    (condition,) = of(plan, acts.TellPod)
    assert annotation.text.startswith("QuotaExceeded: waits for quota: team vision holds 12 of its limit 12 h100")
    assert (condition.reason, condition.status) == ("QuotaExceeded", "False")
    again = planner.plan(
        worlds.world(
            nodes=[worlds.node("g1"), worlds.node("g2")],
            slurm_jobs=[worlds.job(comment_text=annotation.text), running],
            grants=[full],
        )
    )
    assert not of(again, acts.AnnotateJob)


def batch_job(**body: Any) -> dict[str, Any]:
    container = {"name": "c", "image": batchjobs.WORKER_IMAGE, "command": ["true"]}
    container["resources"] = {"limits": {worlds.GPU: "2"}}  # type: ignore[assignment]
    return {
        "metadata": {
            "name": "train",
            "namespace": "vision",
            "uid": "u1",
            "labels": {wellknown.TEAM_LABEL: "vision"},
            "annotations": {wellknown.SUBMITTED_BY: "alice"},
            "finalizers": [wellknown.JOB_FINALIZER],
        },
        "spec": {
            "managedBy": wellknown.JOB_MANAGED_BY,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
            **body,
        },
    }


def submitted(outcome: str = "", *, age_ms: int = 0) -> Intent:
    at_ms = worlds.NOW_MS - age_ms
    settled = worlds.NOW_MS if outcome else None
    return Intent("submit/job-u1/0001", "submit", WorkloadId("slurm/main/job-u1"), at_ms, {}, settled, outcome)


def test_a_batch_job_is_submitted_once_behind_an_intent() -> None:
    plan = planner.plan(worlds.world(jobs=[batch_job()]))
    (submit,) = of(plan, acts.SubmitJob)
    (intend,) = of(plan, acts.Intend)
    assert submit.intent_id == intend.intent.id
    assert (submit.spec.key, submit.spec.user) == ("job-u1", "alice")


def test_a_submission_whose_answer_was_lost_is_settled_by_looking_never_sent_again_on_a_guess() -> None:
    """J1: exactly one job, whatever was lost between submit and record."""
    young = planner.plan(worlds.world(jobs=[batch_job()], intents=[submitted(age_ms=5_000)]))
    assert not of(young, acts.SubmitJob)
    there = worlds.job("job-u1", requested=Tres({"h100": 2}, 1))
    found = planner.plan(worlds.world(jobs=[batch_job()], slurm_jobs=[there], intents=[submitted(age_ms=5_000)]))
    assert [w.outcome for w in of(found, acts.Settle)] == ["job 7"]
    assert not of(found, acts.SubmitJob)
    old = planner.plan(worlds.world(jobs=[batch_job()], intents=[submitted(age_ms=30_000)]))
    assert [w.outcome for w in of(old, acts.Settle)] == ["not found"]


def test_deleting_a_batch_job_cancels_and_lets_go_only_when_the_end_was_seen() -> None:
    going = batch_job()
    going["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    running = worlds.job("job-u1", JobState.RUNNING, held=True)
    plan = planner.plan(worlds.world(jobs=[going], slurm_jobs=[running], intents=[submitted("job 7")]))
    assert len(of(plan, acts.CancelJob)) == 1
    assert not of(plan, acts.DropFinalizer)
    over = worlds.job("job-u1", JobState.CANCELLED, held=True, end_ms=worlds.NOW_MS)
    plan = planner.plan(worlds.world(jobs=[going], slurm_jobs=[over], intents=[submitted("job 7")]))
    assert len(of(plan, acts.DropFinalizer)) == 1


def test_an_unanswered_submission_keeps_the_finalizer() -> None:
    going = batch_job()
    going["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    plan = planner.plan(worlds.world(jobs=[going], intents=[submitted(age_ms=1_000)]))
    assert not of(plan, acts.DropFinalizer)


def test_one_read_without_a_deleted_job_is_no_end() -> None:
    """N1: a slurmctld that is recovering its state knows nobody for a while; its job may still be running."""
    going = batch_job()
    going["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    identity = WorkloadId("slurm/main/job-u1")
    for since_ms in (None, worlds.NOW_MS - settle.LOST_AFTER_MS + 1):
        missing = {} if since_ms is None else {identity: since_ms}
        plan = planner.plan(worlds.world(jobs=[going], intents=[submitted("job 7")], missing_ms=missing))
        assert not of(plan, acts.DropFinalizer)
    missing = {identity: worlds.NOW_MS - settle.LOST_AFTER_MS}
    plan = planner.plan(worlds.world(jobs=[going], intents=[submitted("job 7")], missing_ms=missing))
    assert len(of(plan, acts.DropFinalizer)) == 1


def test_one_read_without_a_cancelled_job_settles_no_cancel() -> None:
    """J2, N1: the cancel stays open, to be repeated when slurmctld knows the job again."""
    asked = Intent("cancel/1", "cancel", WorkloadId(J1), worlds.NOW_MS, {})
    for since_ms, settled in ((None, 0), (worlds.NOW_MS - 1_000, 0), (worlds.NOW_MS - settle.LOST_AFTER_MS, 1)):
        missing = {} if since_ms is None else {WorkloadId(J1): since_ms}
        plan = planner.plan(worlds.world(intents=[asked], missing_ms=missing))
        assert len(of(plan, acts.Settle)) == settled


def test_a_stranger_is_told_who_may_let_him_in() -> None:
    foreign = batch_job()
    foreign["metadata"]["annotations"][wellknown.SUBMITTED_BY] = "mallory"
    plan = planner.plan(worlds.world(jobs=[foreign]))
    (told,) = of(plan, acts.Announce)
    assert "mallory" in told.message
    assert not of(plan, acts.SubmitJob)


def test_a_failed_attempt_is_tried_again_as_backoff_limit_says() -> None:
    failed = worlds.job("job-u1", JobState.FAILED, held=True, end_ms=worlds.NOW_MS, exit_code=3)
    again = planner.plan(worlds.world(jobs=[batch_job(backoffLimit=1)], slurm_jobs=[failed]))
    assert len(of(again, acts.RetryJob)) == 1
    assert not of(again, acts.TellJob)
    last = planner.plan(worlds.world(jobs=[batch_job(backoffLimit=0)], slurm_jobs=[failed]))
    (told,) = of(last, acts.TellJob)
    assert "exit code 3" in told.status["conditions"][-1]["message"]


def test_an_unchanged_world_asks_for_nothing() -> None:
    """N15: steady state is silent."""
    running = worlds.job(state=JobState.RUNNING, held=True, admin_held=True)
    world = worlds.world(
        nodes=[worlds.node("g1")],
        pods=[worlds.worker("g1")],
        slurm_jobs=[running],
        slurm_nodes=[worlds.slurm_node("g1", "MIXED", used=4)],
        grants=[worlds.grant(J1, GrantState.RUNNING)],
    )
    plan = planner.plan(world)
    assert plan.acts == ()
    assert [type(w) for w in plan.writes] == [acts.RecordCapacity]


def test_a_record_whose_node_and_pod_are_gone_is_forgotten_unless_a_job_is_on_it() -> None:
    gone = worlds.world(slurm_nodes=[worlds.slurm_node("g9", "DOWN")])
    assert [a.slurm_node for a in of(planner.plan(gone), ForgetNode)] == ["h100-g9"]
    busy = worlds.world(slurm_nodes=[worlds.slurm_node("g9", "MIXED")])
    assert not of(planner.plan(busy), ForgetNode)


def test_a_grant_whose_node_goes_before_the_start_is_placed_again_elsewhere() -> None:
    world = worlds.world(
        nodes=[worlds.node("g1", cordoned=True), worlds.node("g2")],
        slurm_jobs=[worlds.job()],
        pods=[worlds.pod()],
        grants=[worlds.grant(J1), worlds.grant(P1, gpus=2, placement={"g1": 2})],
    )
    plan = planner.plan(world)
    assert sorted(w.workload for w in of(plan, acts.Void)) == [P1, J1]
    assert {node for w in of(plan, acts.Reserve) for node in w.placement} == {"g2"}


def test_a_job_that_was_released_already_keeps_its_grant_when_its_node_is_cordoned() -> None:
    world = worlds.world(
        nodes=[worlds.node("g1", cordoned=True)],
        slurm_jobs=[worlds.job(held=False, priority=1)],
        grants=[worlds.grant(J1)],
    )
    assert not of(planner.plan(world), acts.Void)


def test_a_pod_that_only_calls_itself_a_worker_is_none() -> None:
    """Labels are anybody's to write; only the cluster's namespace makes a worker."""
    forged = worlds.worker("g1")
    forged["metadata"]["namespace"] = "vision"
    bare = worlds.worker("g1")
    del bare["metadata"]["labels"][wellknown.WORKER_NODE_LABEL]
    plan = planner.plan(
        worlds.world(
            nodes=[worlds.node("g1")],
            pods=[forged, bare],
            slurm_jobs=[worlds.job()],
            slurm_nodes=[worlds.slurm_node("g1")],
        )
    )
    assert not of(plan, acts.ReleaseJob)
    (columns,) = of(plan, acts.RecordCapacity)
    assert columns.rows[0].unmanaged == 16  # both hold GPUs that nobody was granted
