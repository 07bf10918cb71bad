"""What people are told about one workload, from the whole controller in memory; and the reasons on every surface.

Rule 20: one query explains a wait, and agrees with the decision.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bridge.api import metrics, visibility
from bridge.api.identity import Identity
from bridge.api.views import Explain, State
from bridge.cli import explanation as shown
from bridge.cli import formats, terminal
from bridge.controller import acts, queue, tell
from bridge.controller import plan as planner
from bridge.controller.cycle import Beat
from bridge.controller.source import BeatSource, Leader
from bridge.workloads.model import WorkloadId
from bridge.workloads.reasons import Reason, Waiting
from tests.unit import platform_sample as sample
from tests.unit import worlds
from tests.unit.platform_of_three import Three

BOB = Identity(name="bob", slurm_user="bob", teams=frozenset({"bravo"}))
ADMIN = Identity(name="admin", admin=True)


@pytest.fixture
def platform() -> Iterator[Three]:
    made = Three()
    yield made
    assert not made.ledger.verify()
    made.ledger.close()


def source_of(platform: Three) -> BeatSource:
    """Return the API's source after one more cycle."""
    source = BeatSource(
        platform.ledger,
        platform.clock,
        leader=lambda: Leader("test", 1, leading=True),
        failures=dict,
        wake=lambda: None,
    )
    source.publish(platform.cycle.once())
    return source


def explained(platform: Three, where: str, identity: Identity = ADMIN) -> Explain:
    source = source_of(platform)
    row = next(row for row in source.queue() if where in row.refs)
    return visibility.explain(identity, source.explain(row.id))


def page(view: Explain, now_ms: int) -> str:
    screen = terminal.console()
    with screen.capture() as captured:
        screen.print(shown.page(view, now_ms=now_ms))
    return captured.get()


def test_a_wait_says_its_place_who_holds_what_it_needs_and_when_it_can_start(platform: Three) -> None:
    first = platform.job("bravo", 8, time_limit_s=3_600)
    second = platform.job("charlie", 8, time_limit_s=7_200, name="long")
    platform.until(lambda: platform.runs(first) and platform.runs(second))
    begun_ms = platform.slurm.job(first).start_ms or 0
    asking = [platform.job("bravo", 4), platform.job("bravo", 4)]
    platform.run(2)
    view = explained(platform, str(asking[1]), BOB)
    assert view.workload.reason in (Reason.QUOTA, Reason.BEHIND_GANG)
    assert view.place is not None
    assert (view.place.position, view.place.of) == (2, 2)
    assert view.workload.position == 2
    assert view.earliest_ms == begun_ms + 3_600_000
    assert view.would_start
    assert {(holder.team, holder.gpus) for holder in view.holders} == {("bravo", 8), ("charlie", 8)}
    assert [row.where for row in view.held_by] == [str(first)], "bob sees the work of his team only"
    assert {row.where for row in explained(platform, str(asking[1])).held_by} == {str(first), str(second)}
    text = page(view, platform.clock.now_ms())
    assert "2nd of 2 in team bravo's queue for h100" in text
    assert "long" not in text
    assert f"not before {formats.moment(view.earliest_ms or 0, now_ms=platform.clock.now_ms())}" in text


def test_an_earliest_start_that_nobody_knows_says_why(platform: Three) -> None:
    running = [platform.job("bravo", 8), platform.job("charlie", 8)]
    platform.until(lambda: all(platform.runs(job) for job in running))
    asking = platform.job("bravo", 4)
    platform.run(2)
    view = explained(platform, str(asking))
    assert view.earliest_ms is None
    assert "time limit" in view.earliest_unknown
    assert f"not known: {view.earliest_unknown}" in page(view, platform.clock.now_ms())


def test_work_of_another_team_that_comes_first_is_not_named(platform: Three) -> None:
    """Borrowing bravo waits behind alpha's gang, which is within its guarantee; bob may not read its name or id."""
    full = [platform.job("charlie", 4, time_limit_s=3_600), platform.job("bravo", 4, time_limit_s=3_600)]
    platform.until(lambda: all(platform.runs(job) for job in full))
    one = platform.job("alpha", 1, time_limit_s=3_600)
    platform.until(lambda: platform.runs(one))
    gang = platform.job("alpha", 6, nodes=2, name="secret-gang")
    platform.run(2)
    asking = platform.job("bravo", 7)
    platform.run(2)
    view = explained(platform, str(asking), BOB)
    assert view.workload.reason is Reason.BEHIND_GANG
    assert view.numbers["behind_team"] == "alpha"
    everything = view.model_dump_json() + page(view, platform.clock.now_ms())
    assert "secret" not in everything
    assert platform.slurm.job(gang).key not in everything
    assert explained(platform, str(asking)).numbers["behind"] == f"slurm/main/{platform.slurm.job(gang).key}"
    assert "secret" not in platform.slurm.job(asking).comment_text


def test_a_preemption_is_told_to_who_takes_and_to_who_makes_way(platform: Three) -> None:
    borrowing = platform.job("bravo", 8)
    platform.until(lambda: platform.runs(borrowing))
    within = platform.job("charlie", 4)
    platform.until(lambda: platform.runs(within))
    asking = platform.job("alpha", 8)
    platform.run(1)
    now_ms = platform.clock.now_ms()
    taker = explained(platform, str(asking))
    assert taker.reclaim is not None
    assert taker.workload.reason is Reason.RECLAIMING
    assert [(each.team, each.gpus) for each in taker.reclaim.victims] == [("bravo", 8)]
    assert taker.reclaim.until_ms > now_ms
    assert "GPUs are being taken back from team bravo (8 GPUs), until " in page(taker, now_ms)
    platform.settle()
    platform.until(lambda: platform.runs(asking))
    platform.run(2)
    victim = explained(platform, str(borrowing), BOB)
    ends = [moment.text for moment in victim.timeline if moment.what == "ended"]
    assert ends == ["requeued by slurm; preempted: team alpha takes back its guarantee (8 h100)"]
    assert victim.workload.state is State.WAITING
    assert explained(platform, str(asking)).reclaim is None


def test_a_victim_reads_that_it_makes_way_while_it_does(platform: Three) -> None:
    borrowing = platform.job("bravo", 8)
    platform.until(lambda: platform.runs(borrowing))
    within = platform.job("charlie", 4)
    platform.until(lambda: platform.runs(within))
    platform.job("alpha", 8)
    platform.cycle.once()  # the try is recorded; the next cycle acts on it
    view = explained(platform, str(borrowing), BOB)
    assert view.preempted is not None
    assert view.preempted.team == "alpha"
    assert "it makes way: team alpha takes back its guarantee" in page(view, platform.clock.now_ms())


def test_a_request_that_can_never_be_granted_says_what_could(platform: Three) -> None:
    asking = platform.job("bravo", 24, nodes=3)
    platform.run(2)
    view = explained(platform, str(asking))
    assert view.workload.state is State.REFUSED
    assert view.workload.reason is Reason.NEVER_FITS_QUOTA
    assert view.could_fit == 16
    assert "at most 16 h100" in page(view, platform.clock.now_ms())


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_is_the_same_string_on_every_surface(reason: Reason) -> None:
    """AdminComment, pod condition, API, metric."""
    job_id, pod_id = WorkloadId("slurm/main/k1"), WorkloadId("pod/p1")
    world = worlds.world(
        nodes=[worlds.node("g1")], slurm_jobs=[worlds.job()], pods=[worlds.pod()], slurm_nodes=[worlds.slurm_node("g1")]
    )
    plan = planner.plan(world)
    why = Waiting(reason, "as the numbers say", {"asks": 4})
    waits = {job_id: why, pod_id: why}
    (note,) = tell.annotations(world, waits, ())
    assert note.text == f"{reason.value}: as the numbers say"
    (condition,) = tell.conditions(world, waits, ())
    assert isinstance(condition, acts.TellPod)
    assert condition.reason == reason.value
    asked = replace(plan.demand, refused=waits, waiting=())
    rows = queue.rows(Beat(1, world, replace(plan, demand=asked, waits=waits, grants=()), 0, 0), (), worlds.NOW_MS)
    documents = [row.model_dump(mode="json") for row in rows]
    assert [document["reason"] for document in documents] == [reason.value, reason.value]
    text = metrics.render(sample.source().status_view, (), (), rows)
    assert f'slurmbridge_waiting{{reason="{reason.value}"}} 2\n' in text
