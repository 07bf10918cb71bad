"""The desk by example: fair share, backfill, what may not borrow, taking back, and what an explanation tells."""

from bridge.admission.desk import Desk
from bridge.admission.model import Holding, Policy
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Tree
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId
from bridge.workloads.reasons import Reason

H100 = FlavorName("h100")
ROOT, VISION, NLP = TeamName("root"), TeamName("vision"), TeamName("nlp")
NOW_MS = 1_000_000
MINUTE_MS = 60_000


def desk(*, vision: int = 8, nlp: int = 0, nodes: int = 2, preempts: bool = False) -> Desk:
    specs = [TeamSpec(ROOT, None, quotas={H100: Quota(8 * nodes)})]
    specs += [TeamSpec(VISION, ROOT, quotas={H100: Quota(vision)}), TeamSpec(NLP, ROOT, quotas={H100: Quota(nlp)})]
    made = Desk(Tree.build(specs), [H100], Policy(preempts=preempts))
    for number in range(nodes):
        made.node(NodeSupply(NodeName(f"n{number + 1}"), H100, 8))
    return made


def ask(name: str, gpus: int, team: TeamName = VISION, *, at: int = 0, minutes: int | None = None) -> Workload:
    limit_s = None if minutes is None else minutes * 60
    return Workload(WorkloadId(name), System.SLURM, team, H100, 1, gpus, at, time_limit_s=limit_s)


def holding(name: str, gpus: int, on: str, team: TeamName = VISION, *, ends_ms: int | None = None) -> Holding:
    placement = {NodeName(on): gpus}
    grant = Grant(WorkloadId(name), 1, team, H100, System.SLURM, gpus, GrantState.RUNNING, placement, running_ms=0)
    return Holding(grant, ends_ms=ends_ms)


def test_only_work_that_ends_before_the_keeper_could_start_passes_it() -> None:
    """Q16: backfill."""
    made = desk(nodes=1)
    made.hold(holding("run", 4, "n1", ends_ms=NOW_MS + 10 * MINUTE_MS))
    for workload in (ask("gang", 8, at=1), ask("long", 1, at=2, minutes=11), ask("short", 1, at=3, minutes=10)):
        made.submit(workload)
    made.submit(ask("unknown", 1, at=4))
    decisions = made.decide(NOW_MS)
    assert [placed.workload.id for placed in decisions.admitted] == ["short"]
    assert decisions.waiting[WorkloadId("long")].reason is Reason.BEHIND_GANG
    assert decisions.waiting[WorkloadId("unknown")].reason is Reason.BEHIND_GANG
    gang = decisions.waiting[WorkloadId("gang")]
    assert gang.numbers["earliest_ms"] == NOW_MS + 10 * MINUTE_MS
    assert (gang.numbers["position"], gang.numbers["queue"]) == (1, 4)
    assert str(gang.numbers["would_start"]).startswith("it starts when")


def test_what_cannot_be_preempted_waits_for_the_guarantee() -> None:
    made = desk(vision=8)
    made.hold(holding("run", 6, "n1"))
    made.submit(Workload(WorkloadId("shell"), System.SLURM, VISION, H100, 1, 4, 0, preemptible=False))
    waiting = made.decide(NOW_MS).waiting[WorkloadId("shell")]
    assert waiting.reason is Reason.GUARANTEE_ONLY
    assert "holds 6 of the 8 h100 guaranteed to it, asks 4" in waiting.text


def test_what_is_taken_back_is_kept_until_its_owner_starts() -> None:
    """Q9, Q12."""
    made = desk(preempts=True)
    for name, on in (("b1", "n1"), ("b2", "n2")):
        made.hold(holding(name, 8, on, NLP))
    made.submit(ask("owner", 8))
    decisions = made.decide(NOW_MS)
    earmark = decisions.preemptions[0]
    assert [victim.workload for victim in earmark.victims] == ["b1"]
    assert decisions.waiting[WorkloadId("owner")].reason is Reason.RECLAIMING
    made.earmark(earmark)
    made.free(WorkloadId("b1"))
    made.submit(ask("thief", 8, NLP, at=-1))
    admitted = made.decide(NOW_MS + 1).admitted
    assert [(placed.workload.id, placed.placement) for placed in admitted] == [("owner", {NodeName("n1"): 8})]


def test_among_borrowers_who_held_less_of_late_comes_first() -> None:
    """Q17."""
    made = desk(vision=0, nlp=0, nodes=1)
    made.remember({(VISION, H100): 4.0})
    made.submit(ask("first-come", 8, VISION, at=1))
    made.submit(ask("held-less", 8, NLP, at=2))
    assert [placed.workload.id for placed in made.decide(NOW_MS).admitted] == ["held-less"]


def test_the_worker_that_must_go_is_named() -> None:
    made = desk(nodes=1)
    made.node(NodeSupply(NodeName("n1"), H100, 8, worker_gpus=8))
    made.submit(Workload(WorkloadId("pod"), System.KUBERNETES, VISION, H100, 1, 2, 0, endless=True))
    assert made.decide(NOW_MS).admitted[0].drains == ("n1",)


def test_nothing_changed_returns_the_same_answer() -> None:
    made = desk()
    made.submit(ask("refused", 99))
    assert made.decide(NOW_MS) is made.decide(NOW_MS + 1)
