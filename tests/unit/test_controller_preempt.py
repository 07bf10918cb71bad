"""What the record makes of tries to take GPUs back, and what admission is told about what holds. Pure, by example."""

from dataclasses import replace
from typing import Any

import pytest

from bridge import wellknown
from bridge.admission.model import Earmark, Policy, Preemption, Victim
from bridge.controller import acts, earmarks, holdings, preempt
from bridge.controller.world import World
from bridge.ledger.port import Intent
from bridge.slurm.model import GraceSignal, JobState
from bridge.workloads.model import GrantState, NodeName, WorkloadId
from tests.unit import worlds
from tests.unit.worlds import H100, NLP, NOW_MS, VISION

ASKING = WorkloadId("slurm/main/asking00")
JOB, POD = WorkloadId("slurm/main/k1"), WorkloadId("pod/p1")
USR1 = GraceSignal(10)


def mark(*victims: WorkloadId, lapses_ms: int = NOW_MS + 60_000) -> Earmark:
    return Earmark(
        workload=ASKING,
        team=NLP,
        flavor=H100,
        placement={NodeName("g1"): 8},
        victims=tuple(Victim(v, 1, VISION, 4, 30_000, 20_000) for v in victims),
        since_ms=NOW_MS - 1_000,
        lapses_ms=lapses_ms,
    )


def asking(**changes: Any) -> Any:
    base: dict[str, Any] = {"job_id": 9, "user": "bob", "uid": 2002, "account": "nlp"}
    return worlds.job("asking00", **(base | changes))


def world(*victims: WorkloadId, lapses_ms: int = NOW_MS + 60_000, **parts: Any) -> World:
    intent = earmarks.intent_of(mark(*victims, lapses_ms=lapses_ms), 1)
    more = parts.pop("intents", ())
    jobs = (*parts.pop("slurm_jobs", ()), *parts.pop("preemptor", (asking(),)))
    return worlds.world(intents=(intent, *more), slurm_jobs=jobs, **parts)


def running(**changes: Any) -> Any:
    return worlds.job("k1", JobState.RUNNING, **changes)


JOB_GRANT = worlds.grant(JOB, GrantState.RUNNING)
POD_GRANT = worlds.grant(POD, GrantState.RUNNING)


def done(made: World) -> preempt.Preempting:
    return preempt.preempt(made, made.grants)


def test_an_earmark_is_the_same_when_it_is_read_back() -> None:
    intent = earmarks.intent_of(mark(JOB, POD), 3)
    assert intent.id == "preempt/slurm/main/asking00/000003"
    assert earmarks.earmark_of(intent) == mark(JOB, POD)


def test_a_job_without_a_signal_is_told_and_requeued_at_once_until_it_is_seen() -> None:
    out = done(world(JOB, slurm_jobs=[running()], grants=[JOB_GRANT]))
    assert [type(act) for act in out.acts] == [acts.AnnotateJob, acts.RequeueJob]
    told = out.acts[0].text
    assert told == "preempted: team nlp takes back its guarantee (8 h100)"
    again = done(world(JOB, slurm_jobs=[running(comment_text=told)], grants=[JOB_GRANT]))
    assert [type(act) for act in again.acts] == [acts.RequeueJob]
    ending = running(flags=frozenset({"COMPLETING"}))
    assert done(world(JOB, slurm_jobs=[ending], grants=[JOB_GRANT])).acts == []


@pytest.mark.parametrize(
    ("settled_ms", "kinds"),
    [
        (None, [acts.SignalJob]),  # recorded and not known to be sent: again
        (NOW_MS - 29_999, []),
        (NOW_MS - 30_000, [acts.RequeueJob]),
    ],
)
def test_a_restart_neither_doubles_nor_shortens_the_grace(settled_ms: int | None, kinds: list[type]) -> None:
    """Rule 13: it counts from the record of the signal, not from what a process remembers."""
    told = earmarks.why(mark(JOB), mark(JOB).victims[0])
    name = f"signal/preempt/{ASKING}/000001/{JOB}"
    sent = Intent(name, "signal", JOB, NOW_MS - 40_000, {}, settled_ms, "sent" if settled_ms else "")
    out = done(world(JOB, slurm_jobs=[running(signal=USR1, comment_text=told)], grants=[JOB_GRANT], intents=[sent]))
    assert [type(act) for act in out.acts] == kinds


def test_the_signal_is_recorded_before_it_is_sent() -> None:
    out = done(world(JOB, slurm_jobs=[running(signal=USR1)], grants=[JOB_GRANT]))
    assert [write.intent.kind for write in out.writes if isinstance(write, acts.Intend)] == ["signal"]
    assert isinstance(out.acts[-1], acts.SignalJob)


def test_a_victim_that_has_not_started_only_loses_its_grant() -> None:
    """Held as it still is, nothing can run; one that was let go is held first and looked at again."""
    reserved = worlds.grant(JOB)
    held = done(world(JOB, slurm_jobs=[worlds.job("k1")], grants=[reserved]))
    assert (held.writes, held.acts) == ([acts.Void(JOB, 1, earmarks.why(mark(JOB), mark(JOB).victims[0]))], [])
    free = done(world(JOB, slurm_jobs=[worlds.job("k1", held=False)], grants=[reserved]))
    assert (free.writes, [type(act) for act in free.acts]) == ([], [acts.HoldJob])
    gated = done(world(POD, pods=[worlds.pod()], grants=[worlds.grant(POD)]))
    assert [type(write) for write in gated.writes] == [acts.Void]


def test_a_pod_is_evicted_until_it_is_being_deleted() -> None:
    pod = worlds.pod(gated=False, nodeName="g1")
    assert [type(act) for act in done(world(POD, pods=[pod], grants=[POD_GRANT])).acts] == [acts.EvictPod]
    pod["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z"
    assert done(world(POD, pods=[pod], grants=[POD_GRANT])).acts == []


def test_another_attempt_of_a_victim_is_no_victim() -> None:
    later = worlds.grant(JOB, GrantState.RUNNING, attempt=2)
    assert done(world(JOB, slurm_jobs=[running()], grants=[later])).acts == []


def test_a_try_is_over_when_its_workload_holds() -> None:
    out = done(world(JOB, grants=[worlds.grant(ASKING, team=NLP)]))
    assert (out.writes, out.earmarks) == ([acts.Settle(f"preempt/{ASKING}/000001", "started")], [])


@pytest.mark.parametrize(
    "parts",
    [
        {"preemptor": (asking(state=JobState.CANCELLED),)},
        {"preemptor": (), "missing_ms": {ASKING: NOW_MS - 15_000}},
        {"intents": (Intent(f"cancel/{ASKING}", "cancel", ASKING, NOW_MS, {}),)},
    ],
    ids=["ended", "long missing", "cancelled"],
)
def test_a_try_is_over_when_nobody_asks_any_more_and_so_are_its_signals(parts: dict[str, Any]) -> None:
    open_ = Intent(f"signal/preempt/{ASKING}/000001/{JOB}", "signal", JOB, NOW_MS, {})
    more = (*parts.pop("intents", ()), open_)
    out = done(world(JOB, slurm_jobs=[running(signal=USR1)], grants=[JOB_GRANT], intents=more, **parts))
    assert [(w.intent_id, w.outcome) for w in out.writes if isinstance(w, acts.Settle)] == [
        (f"preempt/{ASKING}/000001", "gone"),
        (open_.id, "gone"),
    ]
    assert (out.acts, out.earmarks) == ([], [])


def test_one_read_without_the_preemptor_is_no_end() -> None:
    out = done(world(JOB, preemptor=(), missing_ms={ASKING: NOW_MS - 14_000}))
    assert (out.writes, len(out.earmarks)) == ([], 1)


@pytest.mark.parametrize("away", [{"kube_ok": False}, {"slurm_ok": False}])
def test_while_a_system_is_unknown_no_try_ends_and_only_the_known_one_is_acted_on(away: dict[str, bool]) -> None:
    """N1. The time to lapse passes meanwhile, and counts when both are known again."""
    pod = worlds.pod(gated=False, nodeName="g1")
    out = done(
        world(JOB, POD, lapses_ms=NOW_MS, slurm_jobs=[running()], pods=[pod], grants=[JOB_GRANT, POD_GRANT], **away)
    )
    kinds = [acts.AnnotateJob, acts.RequeueJob] if "kube_ok" in away else [acts.EvictPod]
    assert ([type(act) for act in out.acts], out.writes, len(out.earmarks)) == (kinds, [], 1)


def test_a_try_that_lapses_says_who_still_holds_and_pauses_the_next() -> None:
    out = done(world(JOB, POD, lapses_ms=NOW_MS, slurm_jobs=[running()], grants=[JOB_GRANT]))
    assert out.writes == [acts.Settle(f"preempt/{ASKING}/000001", f"lapsed: still held by {JOB}")]
    assert (out.acts, out.earmarks, out.pauses_ms) == ([], [], {ASKING: NOW_MS + 30_000})


def test_pauses_double_while_tries_lapse_and_end_with_one_that_starts() -> None:
    def tried(number: int, outcome: str) -> Intent:
        made = earmarks.intent_of(mark(), number)
        return Intent(made.id, made.kind, made.workload, made.at_ms, made.detail, NOW_MS, outcome)

    pauses = [
        earmarks.pause_ends_ms([tried(1, "started"), *(tried(n + 2, "lapsed: x") for n in range(lapses))]) - NOW_MS
        for lapses in (1, 2, 3, 7, 8, 40)
    ]
    assert pauses == [30_000, 60_000, 120_000, 1_920_000, 3_600_000, 3_600_000]
    assert earmarks.pause_ends_ms([tried(1, "lapsed: x"), tried(2, "started")]) == 0


def held(made: World) -> Any:
    (holding,) = holdings.holdings(made, made.grants, ())
    return holding


def test_what_admission_is_told_of_a_job() -> None:
    """Time limits from Slurm; nice the other way round; who cannot be requeued is no victim."""
    limited = held(worlds.world(slurm_jobs=[running(time_limit_s=600, nice=100)], grants=[JOB_GRANT]))
    assert (limited.ends_ms, limited.endless, limited.priority) == (NOW_MS - 5_000 + 600_000, False, -100)
    assert (limited.shield, limited.leaving) == ("", False)
    assert held(worlds.world(slurm_jobs=[running()], grants=[JOB_GRANT])).ends_ms is None
    for stays in ({"requeueable": False}, {"batch": False}):
        assert held(worlds.world(slurm_jobs=[running(**stays)], grants=[JOB_GRANT])).shield == "not requeueable"
    assert held(worlds.world(grants=[JOB_GRANT])).shield == "its system does not show it now"


def test_a_team_that_allows_a_kill_has_no_shield() -> None:
    made = worlds.world(slurm_jobs=[running(batch=False)], grants=[JOB_GRANT])
    policy = Policy({VISION: Preemption(kill=True)})
    assert held(replace(made, settings=replace(made.settings, policy=policy))).shield == ""


def test_what_admission_is_told_of_a_pod() -> None:
    serving = held(worlds.world(pods=[worlds.pod(gated=False, priority=7)], grants=[POD_GRANT]))
    assert (serving.ends_ms, serving.endless, serving.priority, serving.shield) == (None, True, 7, "")
    bounded = worlds.pod(gated=False, activeDeadlineSeconds=60)
    bounded["status"]["startTime"] = "2027-01-15T08:00:00Z"
    found = held(worlds.world(pods=[bounded], grants=[POD_GRANT]))
    assert (found.ends_ms, found.endless) == (NOW_MS + 60_000, False)
    bounded["metadata"]["annotations"] = {wellknown.PREEMPTIBLE_ANNOTATION: "false"}
    assert held(worlds.world(pods=[bounded], grants=[POD_GRANT])).shield


def test_what_was_told_to_end_is_leaving_for_a_while_and_then_only_out_of_reach() -> None:
    def cancelled(at_ms: int) -> Any:
        intent = Intent(f"cancel/{JOB}", "cancel", JOB, at_ms, {})
        return held(worlds.world(slurm_jobs=[running()], grants=[JOB_GRANT], intents=[intent]))

    assert (cancelled(NOW_MS - 1_000).leaving, cancelled(NOW_MS - 1_000).shield) == (True, "")
    late = cancelled(NOW_MS - holdings.LEAVING_BOUND_MS)
    assert (late.leaving, late.shield) == (False, "it should have ended and has not")
    pod = worlds.pod(gated=False)
    pod["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z"
    assert held(worlds.world(pods=[pod], grants=[POD_GRANT])).leaving


def test_victims_of_a_try_are_leaving_and_adopted_work_is_none_before_its_number_is_known() -> None:
    made = worlds.world(slurm_jobs=[running()], grants=[JOB_GRANT])
    (victim,) = holdings.holdings(made, made.grants, [mark(JOB)])
    assert victim.leaving
    fresh = worlds.world(slurm_jobs=[running()], grants=[worlds.grant(JOB, GrantState.RUNNING, attempt=0)])
    assert held(fresh).shield
