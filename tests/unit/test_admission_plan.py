"""Admission by example: order, fit, what is kept for whom, and the sentence that explains each wait."""

from collections.abc import Sequence

import pytest

from bridge.admission.plan import Decisions, admit
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Tree
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId
from bridge.workloads.reasons import Reason

H100, A100 = FlavorName("h100"), FlavorName("a100")
ROOT, VISION, NLP = TeamName("root"), TeamName("vision"), TeamName("nlp")
SLURM, PODS = System.SLURM, System.KUBERNETES


def tree(vision: Quota | None = None, nlp: Quota | None = None) -> Tree:
    """Sixteen h100: vision is promised 8, nlp 4; four a100 that only vision may use."""
    return Tree.build(
        [
            TeamSpec(ROOT, None, quotas={H100: Quota(16), A100: Quota(4)}),
            TeamSpec(VISION, ROOT, quotas={H100: vision or Quota(8), A100: Quota(4)}),
            TeamSpec(NLP, ROOT, quotas={H100: nlp or Quota(4)}),
        ]
    )


def node(
    name: str,
    *,
    flavor: FlavorName = H100,
    total: int = 8,
    usable: bool = True,
    cause: str = "",
    slurm: int = 0,
    pods: int = 0,
    unmanaged: int = 0,
    worker: int | None = None,
    slurm_ok: bool = True,
) -> NodeSupply:
    return NodeSupply(NodeName(name), flavor, total, usable, cause, slurm, pods, unmanaged, worker, slurm_ok)


def ask(
    name: str,
    gpus: int = 1,
    *,
    team: TeamName = VISION,
    system: System = SLURM,
    nodes: int = 1,
    at: int = 0,
    priority: int = 0,
    flavor: FlavorName = H100,
    within: frozenset[NodeName] | None = None,
) -> Workload:
    return Workload(WorkloadId(name), system, team, flavor, nodes, gpus, at, priority, within_nodes=within)


def grant(
    name: str, gpus: int, on: str, *, team: TeamName = VISION, system: System = SLURM, flavor: FlavorName = H100
) -> Grant:
    return Grant(WorkloadId(name), 1, team, flavor, system, gpus, GrantState.RUNNING, {NodeName(on): gpus})


def decide(
    waiting: Sequence[Workload], nodes: Sequence[NodeSupply], grants: Sequence[Grant] = (), quota: Tree | None = None
) -> Decisions:
    return admit(waiting, quota or tree(), grants, nodes, flavors={H100, A100})


def placed(decisions: Decisions) -> dict[str, dict[str, int]]:
    return {str(p.workload.id): {str(n): g for n, g in p.placement.items()} for p in decisions.admitted}


def reason(decisions: Decisions, name: str) -> Reason:
    return decisions.waiting[WorkloadId(name)].reason


def text(decisions: Decisions, name: str) -> str:
    return decisions.waiting[WorkloadId(name)].text


# Where a workload goes.


def test_slurm_prefers_the_worker_that_it_fills_best() -> None:
    nodes = [node("n1"), node("n2", worker=8, slurm=2), node("n3", worker=8, slurm=5)]
    assert placed(decide([ask("j", 3)], nodes)) == {"j": {"n3": 3}}


def test_slurm_takes_an_empty_node_before_it_replaces_a_worker_that_is_too_small() -> None:
    assert placed(decide([ask("j", 8)], [node("n1", worker=4), node("n2")])) == {"j": {"n2": 8}}


def test_slurm_does_not_count_devices_that_a_busy_worker_does_not_hold() -> None:
    """N11: the node has 8, its worker in use has 4."""
    decisions = decide([ask("j", 4)], [node("n1", worker=4, slurm=2)])
    assert reason(decisions, "j") is Reason.CAPACITY


def test_pods_prefer_nodes_without_a_worker_and_then_move_an_idle_one() -> None:
    nodes = [node("n1", worker=8), node("n2"), node("n3", pods=5)]
    assert placed(decide([ask("p", 3, system=PODS)], nodes)) == {"p": {"n3": 3}}
    assert placed(decide([ask("p", 3, system=PODS)], nodes[:1])) == {"p": {"n1": 3}}


def test_a_node_serves_one_system_at_a_time() -> None:
    both = decide([ask("j", 4, at=1), ask("p", 4, system=PODS, at=2)], [node("n1")])
    assert placed(both) == {"j": {"n1": 4}}
    assert reason(both, "p") is Reason.CAPACITY
    assert reason(decide([ask("j", 4)], [node("n1", pods=1)]), "j") is Reason.CAPACITY
    assert reason(decide([ask("j", 4)], [node("n1", unmanaged=1)]), "j") is Reason.CAPACITY


def test_a_gang_gets_distinct_nodes_or_nothing() -> None:
    gang = ask("gang", 4, nodes=2)
    assert placed(decide([gang], [node("n1"), node("n2")])) == {"gang": {"n1": 4, "n2": 4}}
    assert placed(decide([gang], [node("n1"), node("n2", slurm=5, worker=8)])) == {}


def test_nodes_that_were_named_are_the_only_ones() -> None:
    only = frozenset({NodeName("n2")})
    assert placed(decide([ask("j", 2, within=only)], [node("n1"), node("n2")])) == {"j": {"n2": 2}}


def test_an_unusable_node_and_a_foreign_drain_are_left_alone() -> None:
    nodes = [node("n1", usable=False, cause="node cordoned"), node("n2", slurm_ok=False, cause="drained by admin")]
    decisions = decide([ask("j", 2), ask("p", 2, system=PODS)], nodes)
    assert placed(decisions) == {"p": {"n2": 2}}
    assert "n1: node cordoned; n2: drained by admin" in text(decisions, "j")


# Order.


def test_a_team_within_its_guarantee_comes_before_an_older_borrower() -> None:
    waiting = [ask("borrows", 8, team=NLP, at=1), ask("owns", 8, at=2)]
    assert placed(decide(waiting, [node("n1")])) == {"owns": {"n1": 8}}


def test_then_priority_then_age_then_id() -> None:
    waiting = [ask("b", 8, at=5), ask("a", 8, at=5), ask("old", 8, at=1), ask("urgent", 8, at=9, priority=10)]
    decisions = decide(waiting, [node("n1"), node("n2")])
    assert list(placed(decisions)) == ["urgent", "old"]


def test_a_team_gets_as_many_as_fit_in_one_pass() -> None:
    decisions = decide([ask(f"j{i}", 1, at=i) for i in range(8)], [node("n1")])
    assert list(placed(decisions)) == [f"j{i}" for i in range(8)]


def test_what_quota_blocks_keeps_its_quota_from_its_own_team_and_blocks_nobody_else() -> None:
    """Q16: the limit that an older gang waits for is not used up under it; another team has its own quota."""
    quota = tree(vision=Quota(8, limit=8))
    waiting = [ask("big", 8, at=1), ask("small", 1, at=2), ask("other", 1, team=NLP, at=3)]
    decisions = decide(waiting, [node("n1"), node("n2", worker=8, slurm=4)], [grant("run", 4, "n2")], quota)
    assert reason(decisions, "big") is Reason.QUOTA
    assert reason(decisions, "small") is Reason.BEHIND_GANG
    assert set(placed(decisions)) == {"other"}


def test_what_holds_a_grant_is_not_granted_again() -> None:
    """Q: finished or running work admitted twice after a restart."""
    decisions = decide([ask("j", 2)], [node("n1", slurm=2, worker=8)], [grant("j", 2, "n1")])
    assert decisions.admitted == ()
    assert reason(decisions, "j") is Reason.STARTING


def test_a_workload_that_comes_twice_is_decided_once() -> None:
    decisions = decide([ask("j", 2), ask("j", 2)], [node("n1")])
    assert placed(decisions) == {"j": {"n1": 2}}
    assert decisions.waiting == {}


# What is kept for whom.


def test_younger_work_of_the_team_does_not_take_what_an_older_gang_waits_for() -> None:
    nodes = [node("n1"), node("n2", worker=8, slurm=6)]
    grants = [grant("run", 6, "n2", team=NLP)]
    decisions = decide([ask("gang", 4, nodes=2, at=1), ask("small", 1, at=2)], nodes, grants)
    assert reason(decisions, "gang") is Reason.CAPACITY
    assert reason(decisions, "small") is Reason.BEHIND_GANG
    assert "gang" in text(decisions, "small")


def test_younger_work_of_the_team_may_use_nodes_that_the_gang_does_not_need() -> None:
    nodes = [node(name, total=4, worker=4, slurm=3) for name in ("n1", "n2", "n3")]
    grants = [grant(f"run-{name}", 3, name, team=NLP) for name in ("n1", "n2", "n3")]
    decisions = decide([ask("gang", 2, nodes=2, at=1), ask("small", 1, at=2), ask("third", 1, at=3)], nodes, grants)
    assert placed(decisions) == {"small": {"n3": 1}}
    assert reason(decisions, "gang") is Reason.CAPACITY
    assert reason(decisions, "third") is Reason.BEHIND_GANG


def test_a_borrower_does_not_take_the_nodes_that_an_owner_waits_for_even_where_pods_are_in_the_way() -> None:
    nodes = [node("n1", pods=1), node("n2", slurm=1, worker=8)]
    grants = [grant("serve", 1, "n1", team=NLP, system=PODS), grant("run", 1, "n2", team=NLP)]
    owner = ask("owner", 4, nodes=2, at=9)
    borrower = ask("borrower", 6, team=NLP, at=1)
    decisions = decide([owner, borrower], nodes, grants)
    assert reason(decisions, "owner") is Reason.CAPACITY
    assert reason(decisions, "borrower") is Reason.BEHIND_GANG


def test_serving_pods_in_the_way_of_a_borrowing_gang_do_not_idle_a_node_for_other_teams() -> None:
    nodes = [node("n1", pods=1), node("n2")]
    grants = [grant("serve", 1, "n1", team=NLP, system=PODS)]
    gang = ask("gang", 4, nodes=2, team=NLP, at=1, priority=9)
    decisions = decide([gang, ask("other", 2, at=2), ask("own", 1, team=NLP, at=3)], nodes, grants)
    assert reason(decisions, "gang") is Reason.CAPACITY
    assert placed(decisions) == {"other": {"n2": 2}, "own": {"n2": 1}}  # its own team's either: nothing to wait for


def test_another_team_within_its_guarantee_also_waits_where_only_slurm_work_is_in_the_way() -> None:
    nodes = [node("n1"), node("n2", worker=8, slurm=6)]
    waiting = [ask("gang", 4, nodes=2, at=1), ask("other", 1, team=NLP, at=2)]
    decisions = decide(waiting, nodes, [grant("run", 6, "n2", team=TeamName("former"))])
    assert reason(decisions, "gang") is Reason.CAPACITY
    assert reason(decisions, "other") is Reason.BEHIND_GANG


def test_quota_is_kept_with_the_nodes() -> None:
    """Small work elsewhere must not use up the limit under a gang that only waits for nodes."""
    quota = tree(vision=Quota(8, limit=8))
    nodes = [node("n1", worker=8, slurm=8), node("n2", total=2)]
    grants = [grant("run", 8, "n1", team=NLP)]
    decisions = decide([ask("gang", 8, at=1), ask("small", 1, at=2)], nodes, grants, quota)
    assert reason(decisions, "gang") is Reason.CAPACITY
    assert reason(decisions, "small") is Reason.BEHIND_GANG


def test_borrowers_leave_the_quota_that_an_owner_waits_for() -> None:
    """Until preemption takes it back, a guarantee at least comes back as borrowers end."""
    nodes = [node("n1", worker=8, slurm=8), node("n2", worker=8, slurm=6)]
    grants = [grant("a", 8, "n1", team=NLP), grant("b", 6, "n2", team=NLP)]
    waiting = [ask("borrower", 1, team=NLP, at=1), ask("owner", 4, at=2), ask("owner-small", 1, at=3)]
    decisions = decide(waiting, nodes, grants)
    assert reason(decisions, "owner") is Reason.QUOTA
    assert reason(decisions, "borrower") is Reason.BEHIND_GANG
    assert reason(decisions, "owner-small") is Reason.BEHIND_GANG  # its own team's, too: it waits for that quota
    assert placed(decisions) == {}


def test_nothing_is_kept_for_what_cannot_be_had_by_waiting() -> None:
    nodes = [node("n1"), node("n2", usable=False, cause="node not ready")]
    decisions = decide([ask("gang", 4, nodes=2, at=1), ask("small", 1, at=2)], nodes)
    assert reason(decisions, "gang") is Reason.CAPACITY
    assert placed(decisions) == {"small": {"n1": 1}}


# Sentences.


def test_a_wait_for_quota_names_the_holder_and_its_numbers() -> None:
    quota = tree(vision=Quota(8, limit=12))
    grants = [grant("a", 4, "n1"), grant("b", 8, "n2", system=PODS)]
    decisions = decide([ask("j", 4)], [node("n1", slurm=4, worker=8), node("n2", pods=8)], grants, quota)
    assert text(decisions, "j") == (
        "waits for quota: team vision holds 12 of its limit 12 h100 (4 slurm, 8 kubernetes), asks 4"
    )
    numbers = decisions.waiting[WorkloadId("j")].numbers
    assert (numbers["held"], numbers["of"], numbers["asks"], numbers["available"]) == (12, 12, 4, 0)


def test_a_wait_for_the_shared_pool_names_who_holds_it() -> None:
    grants = [grant("a", 8, "n1"), grant("b", 6, "n2")]
    decisions = decide([ask("j", 4, team=NLP)], [node("n1", slurm=8), node("n2", slurm=6)], grants)
    assert text(decisions, "j") == (
        "waits for quota: team nlp holds 0 h100 and 2 more are free to it; 14 of the 16 shared in root are held "
        "(vision 14), asks 4"
    )


def test_a_wait_for_nodes_counts_what_is_in_the_way() -> None:
    nodes = [node("n1", slurm=6, worker=8), node("n2", pods=3), node("n3", usable=False, cause="node cordoned")]
    decisions = decide([ask("j", 4, nodes=2)], nodes)
    assert text(decisions, "j") == (
        "waits for free GPUs: asks 2 nodes with 4 h100 each, 0 of 3 nodes have room "
        "(6 held by slurm; 3 held by kubernetes; n3: node cordoned)"
    )


@pytest.mark.parametrize(
    ("workload", "expected", "final", "sentence"),
    [
        (
            ask("j", 8, team=NLP, nodes=3),
            Reason.NEVER_FITS_QUOTA,
            True,
            "asks 24 h100, team nlp can never hold more than 16; ask for 16 or fewer",
        ),
        (
            ask("j", 9),
            Reason.NEVER_FITS_NODES,
            False,
            "asks 9 h100 on one node; of the 2 h100 nodes, 0 are that large (the largest has 8)",
        ),
        (
            ask("j", 4, nodes=3),
            Reason.NEVER_FITS_NODES,
            False,
            "asks 3 nodes with 4 h100 each; of the 2 h100 nodes, 2 are that large (the largest has 8)",
        ),
        (
            ask("j", flavor=FlavorName("b200")),
            Reason.NO_SUCH_FLAVOR,
            True,
            "there is no GPU flavor b200; there is: a100, h100",
        ),
        (
            ask("j", team=NLP, flavor=A100),
            Reason.FLAVOR_CLOSED,
            True,
            "team nlp may not use a100; open to it: h100",
        ),
        (
            ask("j", team=TeamName("ghosts")),
            Reason.UNKNOWN_TEAM,
            False,
            "team ghosts does not exist or has a fault; ask a platform admin to look at the Team object",
        ),
        (ask("j", 0), Reason.UNSUPPORTED, True, "asks 1 nodes with 0 GPUs each; both must be 1 or more"),
    ],
)
def test_what_cannot_be_admitted_is_refused_in_one_sentence(
    workload: Workload, expected: Reason, *, final: bool, sentence: str
) -> None:
    waiting = decide([workload], [node("n1"), node("n2")]).waiting[workload.id]
    assert (waiting.reason, waiting.final, waiting.text) == (expected, final, sentence)
