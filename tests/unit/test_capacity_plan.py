"""The worker life by example, one world per rule. Ids N1..N20 are the behaviours that users of such systems need."""

from dataclasses import replace

import pytest

from bridge.capacity import columns as capacity_columns
from bridge.capacity import readiness
from bridge.capacity.demand import demands
from bridge.capacity.model import (
    Action,
    CreateWorker,
    DeleteWorker,
    DrainWorker,
    ForgetNode,
    NodeSetView,
    NodeView,
    PodPhase,
    SlurmView,
    TaintNode,
    UndrainWorker,
    UntaintNode,
    WorkerView,
)
from bridge.capacity.plan import plan
from bridge.capacity.supply import supplies
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import Grant, GrantState, NodeName, System, WorkloadId

H100 = FlavorName("h100")
N1, N2 = NodeName("n1"), NodeName("n2")
NOW_MS = 1_000_000
LONG_AGO_MS = 0
SET = NodeSetView("gpu", idle_after_s=300)
DRAIN = frozenset({"DRAIN"})


def node(
    name: NodeName = N1,
    *,
    worker: WorkerView | None = None,
    record: SlurmView | None = None,
    nodeset: NodeSetView | None = SET,
    allocatable: int = 8,
    cordoned: bool = False,
    ready: bool = True,
    tainted: bool = False,
    pods: int = 0,
    unmanaged: int = 0,
    capacity: int | None = None,
    failures: int = 0,
) -> NodeView:
    return NodeView(
        name,
        H100,
        nodeset,
        allocatable,
        ready=ready,
        cordoned=cordoned,
        taint_ours=tainted,
        worker=worker,
        slurm_record=record,
        pods_granted=pods,
        unmanaged=unmanaged,
        capacity=capacity,
        worker_failures=failures,
        last_failure_ms=NOW_MS if failures else None,
    )


def record(
    state: str = "IDLE", *, flags: frozenset[str] = frozenset(), reason: str = "", busy: bool = False, gpus: int = 8
) -> SlurmView:
    return SlurmView("gpu-n1", state, flags, reason, reason.startswith("bridge: "), busy, gpus=gpus)


def drained(reason: str, *, busy: bool = False, state: str = "IDLE") -> SlurmView:
    return record(state, flags=DRAIN, reason=reason, busy=busy)


def worker(
    slurm: SlurmView | None = None,
    *,
    phase: PodPhase = PodPhase.RUNNING,
    gpus: int = 8,
    idle_since_ms: int | None = None,
    created_ms: int = NOW_MS,
) -> WorkerView:
    return WorkerView("gpu-n1", "uid-1", phase, gpus, slurm, idle_since_ms, created_ms)


def slurm_grant(gpus: int = 4, on: NodeName = N1, *, name: str = "j", state: GrantState = GrantState.RESERVED) -> Grant:
    return Grant(WorkloadId(name), 1, TeamName("vision"), H100, System.SLURM, gpus, state, {on: gpus})


def pod_grant(gpus: int = 4, on: NodeName = N1, *, state: GrantState = GrantState.RESERVED) -> Grant:
    return Grant(WorkloadId("p"), 1, TeamName("nlp"), H100, System.KUBERNETES, gpus, state, {on: gpus})


def act(*views: NodeView, grants: tuple[Grant, ...] = (), now_ms: int = NOW_MS) -> list[Action]:
    return list(plan(views, grants, now_ms=now_ms))


IDLE = worker(record(), idle_since_ms=LONG_AGO_MS)
FRESH = worker(record(), idle_since_ms=NOW_MS)
BUSY = worker(record("MIXED", busy=True))
CREATE: list[Action] = [CreateWorker(N1, "gpu", 8)]
DELETE: list[Action] = [DeleteWorker(N1, "gpu-n1", "uid-1")]
UNDRAIN: list[Action] = [UndrainWorker(N1, "gpu-n1")]
FORGET: list[Action] = [ForgetNode(N1, "gpu-n1")]
MOVING, SCALE_IN, CORDONED = "bridge: gpus move to kubernetes", "bridge: scale in", "bridge: node cordoned"
DELETED = "bridge: node set deleted"
RUNNING = GrantState.RUNNING


def drain(reason: str) -> list[Action]:
    return [DrainWorker(N1, "gpu-n1", reason)]


TABLE: dict[str, tuple[NodeView, tuple[Grant, ...], list[Action]]] = {
    # Where a worker is made.
    "a reserved Slurm grant makes a worker of the whole node": (node(), (slurm_grant(),), CREATE),
    "nothing is made without a grant": (node(), (), []),
    "not beside pods": (node(pods=2), (slurm_grant(),), []),
    "not beside unmanaged pods": (node(unmanaged=1), (slurm_grant(),), []),
    "not on a cordoned node": (node(cordoned=True), (slurm_grant(),), []),
    "not where no node set reaches": (node(nodeset=None), (slurm_grant(),), []),
    "not where the node is too small for it": (node(allocatable=3), (slurm_grant(4),), []),
    "not right after one failed there": (node(failures=1), (slurm_grant(),), []),
    "a minimum is kept": (node(nodeset=replace(SET, min=1)), (), CREATE),
    "a maximum is kept": (node(nodeset=replace(SET, max=0)), (slurm_grant(),), []),
    "N18 the former worker's record goes first": (node(record=record("DOWN")), (slurm_grant(),), [*FORGET, *CREATE]),
    # Capacity moves to pods.
    "a pod grant drains the worker": (node(worker=FRESH), (pod_grant(),), drain(MOVING)),
    "N2 a busy worker is only drained": (node(worker=BUSY), (pod_grant(),), drain(MOVING)),
    "N2 drained and busy: wait": (node(worker=worker(drained(MOVING, busy=True))), (pod_grant(),), []),
    "N2 drained and completing: wait": (
        node(worker=worker(record(flags=DRAIN | {"COMPLETING"}, reason=MOVING))),
        (pod_grant(),),
        [],
    ),
    "N2 drained and MIXED without any other sign: wait": (
        node(worker=worker(drained(MOVING, state="MIXED"))),
        (pod_grant(),),
        [],
    ),
    "N2 drained and empty: delete": (node(worker=worker(drained(MOVING))), (pod_grant(),), DELETE),
    "a worker that has not started goes at once": (
        node(worker=worker(phase=PodPhase.PENDING)),
        (pod_grant(),),
        DELETE,
    ),
    "N9 a running worker that slurmctld does not know is kept": (node(worker=worker()), (pod_grant(),), []),
    "a worker that never registered, positively": (
        node(worker=replace(worker(), registered_before=False)),
        (pod_grant(),),
        DELETE,
    ),
    "the record of a worker that is gone is forgotten": (node(record=drained(MOVING)), (pod_grant(),), FORGET),
    "not while Slurm still sees a job there": (node(record=drained(MOVING, busy=True)), (pod_grant(),), []),
    "no job is sent to a worker that is gone": (
        node(record=record("MIXED", busy=True)),
        (),
        drain("bridge: worker is gone"),
    ),
    "N17 no job is sent to a worker that stops": (
        node(worker=worker(record(), phase=PodPhase.TERMINATING)),
        (),
        drain("bridge: worker is stopping"),
    ),
    # Scale in.
    "an idle worker is drained": (node(worker=IDLE), (), drain(SCALE_IN)),
    "not before its time": (node(worker=FRESH), (), []),
    "not below the minimum": (node(worker=IDLE, nodeset=replace(SET, min=1)), (), []),
    "not while a grant is on it": (node(worker=IDLE), (slurm_grant(),), []),
    "then it is deleted": (node(worker=worker(drained(SCALE_IN), idle_since_ms=LONG_AGO_MS)), (), DELETE),
    "N3 called off by a grant: undrained": (
        node(worker=worker(drained(SCALE_IN), idle_since_ms=LONG_AGO_MS)),
        (slurm_grant(),),
        UNDRAIN,
    ),
    "N3 the move is called off: undrained": (node(worker=worker(drained(MOVING), idle_since_ms=NOW_MS)), (), UNDRAIN),
    "N3 too late for a pod that stops": (
        node(worker=worker(drained(SCALE_IN), phase=PodPhase.TERMINATING)),
        (slurm_grant(),),
        drain("bridge: worker is stopping"),
    ),
    "N12 a node set that goes drains its busy workers": (
        node(worker=BUSY, nodeset=replace(SET, deleting=True)),
        (slurm_grant(state=RUNNING),),
        drain(DELETED),
    ),
    "N12 and deletes them when their jobs have ended": (
        node(worker=worker(drained(DELETED)), nodeset=replace(SET, deleting=True)),
        (),
        DELETE,
    ),
    "N12 and makes no new one": (node(nodeset=replace(SET, deleting=True, min=1)), (slurm_grant(),), []),
    # Foreign drains.
    "N4 a foreign drain taints the node": (
        node(worker=worker(drained("ecc errors"))),
        (),
        [TaintNode(N1, "drained in Slurm: ecc errors")],
    ),
    "N4 a foreign DOWN too": (
        node(worker=worker(record("DOWN", reason="ecc errors"))),
        (),
        [TaintNode(N1, "down in Slurm: ecc errors")],
    ),
    "N4 DOWN by slurmctld itself is nobody's decision": (
        node(worker=worker(record("DOWN", reason="Not responding"))),
        (),
        [],
    ),
    "N4 nothing else is done to it, whatever is wanted": (
        node(worker=worker(drained("ecc errors"), idle_since_ms=LONG_AGO_MS), tainted=True, cordoned=True),
        (pod_grant(),),
        [],
    ),
    "N4 nor to its record when the pod is gone": (
        node(record=drained("ecc errors"), tainted=True),
        (slurm_grant(),),
        [],
    ),
    "N4 lifted: the taint goes": (node(worker=FRESH, tainted=True), (), [UntaintNode(N1)]),
    "N9 unknown to slurmctld says nothing: the taint stays": (node(worker=worker(), tainted=True), (), []),
    "N4 ours removed by hand while its cause holds: set again": (
        node(worker=FRESH, cordoned=True),
        (),
        drain(CORDONED),
    ),
    # Health.
    "N5 cordoned: drained": (node(worker=BUSY, cordoned=True), (), drain(CORDONED)),
    "N5 not ready: drained": (node(worker=BUSY, ready=False), (), drain("bridge: node not ready")),
    "N5 drained already": (node(worker=worker(drained(CORDONED)), cordoned=True), (), []),
    "N5 uncordoned: back, with its job": (
        node(worker=worker(drained(CORDONED, busy=True, state="MIXED"))),
        (slurm_grant(state=RUNNING),),
        UNDRAIN,
    ),
    "N5 a DOWN node is not brought back by an undrain": (
        node(worker=worker(drained(CORDONED, state="DOWN"))),
        (slurm_grant(),),
        [],
    ),
    "N5 nothing is deleted on a node that is not ready": (
        node(worker=worker(drained("bridge: node not ready")), ready=False),
        (pod_grant(),),
        [],
    ),
    # GPU counts.
    "N11 fewer on the node than in the worker: drained": (
        node(worker=FRESH, allocatable=7),
        (),
        drain("bridge: gpu count changed (worker 8, node 7)"),
    ),
    "N11 then replaced": (
        node(worker=worker(drained("bridge: gpu count changed (worker 8, node 7)")), allocatable=7),
        (slurm_grant(4),),
        DELETE,
    ),
    "N11 a worker too small for its grants is replaced": (
        node(worker=worker(record(gpus=4), gpus=4)),
        (slurm_grant(6),),
        drain("bridge: gpu count changed (worker 4, node 8)"),
    ),
    "N11 but not when that gains nothing": (
        node(worker=worker(record(gpus=7), gpus=7), allocatable=7),
        (slurm_grant(8),),
        [],
    ),
    "N11 Slurm counts otherwise than the pod: kept out": (
        node(worker=worker(record(gpus=4), idle_since_ms=NOW_MS)),
        (),
        drain("bridge: gpu counts differ (slurm 4, worker 8)"),
    ),
    "N11 and not replaced by one that is told the same": (
        node(worker=worker(replace(drained("bridge: gpu counts differ (slurm 4, worker 8)"), gpus=4))),
        (slurm_grant(4),),
        [],
    ),
    # Failed and young workers.
    "a failed worker is deleted": (node(worker=worker(phase=PodPhase.FAILED)), (slurm_grant(),), DELETE),
    "not while the ledger has work running there": (
        node(worker=worker(phase=PodPhase.FAILED)),
        (slurm_grant(state=RUNNING),),
        [],
    ),
    "N17 a failed worker's record is drained first": (
        node(worker=worker(record(), phase=PodPhase.FAILED)),
        (slurm_grant(),),
        drain("bridge: worker failed"),
    ),
    "a young worker is left alone": (node(worker=worker(phase=PodPhase.PENDING)), (slurm_grant(),), []),
    "an old unregistered one is not deleted in a loop": (node(worker=worker(created_ms=0)), (slurm_grant(),), []),
    "a drained record of a worker that has not started is not lifted": (
        node(worker=worker(drained(MOVING), phase=PodPhase.PENDING)),
        (slurm_grant(),),
        [],
    ),
    # Rest.
    "N15 a running job": (node(worker=BUSY), (slurm_grant(state=RUNNING),), []),
    "N15 pods at work": (node(pods=4), (pod_grant(state=RUNNING),), []),
    "N15 a foreign drain that is known": (node(worker=worker(drained("ecc")), tainted=True), (), []),
    "both systems on one node: nothing is moved": (node(worker=BUSY), (slurm_grant(state=RUNNING), pod_grant()), []),
}


@pytest.mark.parametrize("rule", TABLE)
def test_worker_rule(rule: str) -> None:
    view, grants, expected = TABLE[rule]
    assert act(view, grants=grants) == expected


def test_of_several_idle_workers_those_above_the_minimum_go_longest_idle_first() -> None:
    nodeset = replace(SET, min=1)
    views = [
        node(name, nodeset=nodeset, worker=worker(replace(record(), name=name), idle_since_ms=since))
        for name, since in ((N1, 200), (N2, 100))
    ]
    assert act(*views) == [DrainWorker(N2, "n2", SCALE_IN)]


def test_the_choice_does_not_wander_once_it_was_made() -> None:
    nodeset = replace(SET, min=1)
    views = [
        node(N1, nodeset=nodeset, worker=worker(drained(SCALE_IN, busy=False), idle_since_ms=200)),
        node(N2, nodeset=nodeset, worker=worker(replace(record(), name="n2"), idle_since_ms=100)),
    ]
    assert act(*views) == DELETE


def test_at_the_maximum_an_idle_worker_makes_room_before_its_time() -> None:
    nodeset = replace(SET, max=1)
    views = [node(N1, nodeset=nodeset, worker=FRESH), node(N2, nodeset=nodeset)]
    assert act(*views, grants=(slurm_grant(on=N2),)) == drain(SCALE_IN)


def test_the_pause_after_failures_doubles_up_to_its_bound() -> None:
    view = replace(node(failures=3), last_failure_ms=0)
    assert act(view, grants=(slurm_grant(),), now_ms=39_999) == []
    assert act(view, grants=(slurm_grant(),), now_ms=40_000) == CREATE
    many = replace(view, worker_failures=50)
    assert act(many, grants=(slurm_grant(),), now_ms=300_000) == CREATE


# Is it ready?


READY: dict[str, tuple[NodeView, Grant, str]] = {
    "worker in place": (node(worker=FRESH), slurm_grant(), ""),
    "busy with others": (node(worker=BUSY), slurm_grant(), ""),
    "no worker": (node(), slurm_grant(), "n1: a worker is being created"),
    "starting": (node(worker=worker()), slurm_grant(), "n1: its worker is starting"),
    "stopping": (
        node(worker=worker(record(), phase=PodPhase.TERMINATING)),
        slurm_grant(),
        "n1: its former worker is stopping",
    ),
    "drained": (node(worker=worker(drained(SCALE_IN))), slurm_grant(), "n1: its worker is drained (bridge: scale in)"),
    "foreign": (node(worker=worker(drained("ecc"))), slurm_grant(), "n1: drained or down in Slurm: ecc"),
    "down": (
        node(worker=worker(record("DOWN", flags=frozenset({"NOT_RESPONDING"})))),
        slurm_grant(),
        "n1: its worker is DOWN+NOT_RESPONDING in Slurm",
    ),
    "too small": (
        node(worker=worker(record(gpus=4), gpus=4)),
        slurm_grant(6),
        "n1: its worker has 4 GPUs, 6 are granted",
    ),
    "cordoned": (node(worker=FRESH, cordoned=True), slurm_grant(), "n1: node cordoned"),
    "pods still there": (node(pods=3), slurm_grant(), "n1: 3 GPUs are still with pods"),
    "pods: free": (node(), pod_grant(), ""),
    "pods: worker there": (node(worker=FRESH), pod_grant(), "n1: its worker is being drained and removed"),
    "pods: worker stopping": (
        node(worker=worker(record(), phase=PodPhase.TERMINATING)),
        pod_grant(),
        "n1: its worker is being drained and removed",
    ),
    "pods: tainted": (node(tainted=True), pod_grant(), "n1: its taint is being lifted"),
    "gone": (node(N2), pod_grant(), "node n1 is gone"),
}


@pytest.mark.parametrize("case", READY)
def test_readiness(case: str) -> None:
    view, grant, expected = READY[case]
    assert readiness.pending(grant, [view]) == expected
    assert readiness.ready_for(grant, [view]) is (not expected)


def test_what_only_a_person_can_put_right_is_told_with_numbers() -> None:
    def told(view: NodeView, *grants: Grant) -> list[str]:
        return [problem.text for problem in readiness.problems([view], grants, now_ms=NOW_MS)]

    assert told(node(worker=worker(created_ms=0))) == [
        "worker gpu-n1 has not registered with Slurm within 300 s; see its log"
    ]
    assert told(node(failures=3)) == ["3 or more workers failed here in a row; see the events of the last one"]
    assert told(node(allocatable=7, capacity=8, worker=FRESH)) == [
        "gpu count changed (worker 8, node 7)",
        "1 of 8 GPUs are unhealthy",
    ]
    assert told(node(nodeset=None), slurm_grant()) == [
        "Slurm work is granted here and no NodeSet covers the node; widen a NodeSet's nodeSelector"
    ]
    assert told(node(worker=worker(record(gpus=4)))) == ["gpu counts differ (slurm 4, worker 8)"]
    assert told(node(worker=BUSY)) == []


# Each GPU in one column.


COLUMNS: dict[str, tuple[NodeView, tuple[Grant, ...], tuple[int, int, int, int, int, int], str]] = {
    "empty": (node(), (), (8, 0, 0, 0, 8, 0), ""),
    "a worker holds all": (node(worker=FRESH), (), (8, 8, 0, 0, 0, 0), ""),
    "a stopping worker still does": (
        node(worker=worker(phase=PodPhase.TERMINATING)),
        (pod_grant(),),
        (8, 8, 0, 0, 0, 0),
        "",
    ),
    "a failed one does not": (node(worker=worker(phase=PodPhase.FAILED)), (), (8, 0, 0, 0, 8, 0), ""),
    "pods and unmanaged": (node(pods=4, unmanaged=1), (pod_grant(4),), (8, 0, 4, 1, 3, 0), ""),
    "cordoned": (node(pods=4, cordoned=True), (), (8, 0, 4, 0, 0, 4), "node cordoned"),
    "foreign drain": (node(record=drained("ecc")), (), (8, 0, 0, 0, 0, 8), "drained or down in Slurm: ecc"),
    "unhealthy": (node(allocatable=6, capacity=8), (), (8, 0, 0, 0, 6, 2), "2 GPUs unhealthy"),
    "fewer than the worker holds": (node(worker=FRESH, allocatable=7), (), (8, 8, 0, 0, 0, 0), ""),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_each_gpu_is_in_one_column(case: str) -> None:
    """Rule 19."""
    view, grants, expected, cause = COLUMNS[case]
    got = capacity_columns.columns(view, demands([view], grants)[view.name])
    assert (got.total, got.worker, got.pods, got.unmanaged, got.idle, got.unavailable) == expected
    assert got.cause == cause


# What admission may use.


def test_supply_leaves_out_what_the_worker_plan_would_not_use() -> None:
    views = [
        node(NodeName("a-cordoned"), cordoned=True),
        node(NodeName("b-foreign"), worker=worker(drained("ecc"))),
        node(NodeName("c-unset"), nodeset=None),
        node(NodeName("d-failed"), failures=1),
        node(NodeName("e-worker"), worker=FRESH),
        node(NodeName("g-miscounted"), worker=worker(record(gpus=4))),
        node(NodeName("f-going"), worker=FRESH, nodeset=replace(SET, deleting=True)),
    ]
    got = {s.name: (s.usable, s.slurm_ok, s.cause) for s in supplies(views, (), now_ms=NOW_MS)}
    assert got == {
        "a-cordoned": (False, True, "node cordoned"),
        "b-foreign": (False, True, "drained or down in Slurm: ecc"),
        "c-unset": (True, False, "no node set covers it"),
        "d-failed": (True, False, "its last worker failed"),
        "e-worker": (True, True, ""),
        "g-miscounted": (True, False, "gpu counts differ (slurm 4, worker 8)"),
        "f-going": (True, False, "node set gpu is being deleted"),
    }


def test_supply_offers_no_more_new_workers_than_the_maximum_allows() -> None:
    nodeset = replace(SET, max=2)
    views = [node(NodeName(name), nodeset=nodeset) for name in ("a", "b", "c", "d")]
    got = supplies(views, (slurm_grant(on=NodeName("a")),), now_ms=NOW_MS)
    assert [(s.name, s.slurm, s.slurm_ok) for s in got] == [
        ("a", 4, True),
        ("b", 0, True),
        ("c", 0, False),
        ("d", 0, False),
    ]
