"""The whole controller in memory: both fakes, the real ledger, the test as kubelet and as slurmd."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bridge import wellknown
from bridge.capacity.model import CreateWorker
from bridge.clock import FakeClock
from bridge.controller import acts
from bridge.controller.act import Actor
from bridge.controller.cycle import Beat, Cycle
from bridge.controller.faults import WatchedSlurm
from bridge.controller.kube_acts import KubeHands
from bridge.controller.observe import Observer
from bridge.controller.poller import Poller, Reading
from bridge.controller.slurm_acts import SlurmHands
from bridge.errors import OutcomeUnknownError, UnknownStateError
from bridge.kube import port
from bridge.kube.events import EventWriter
from bridge.kube.fake import FakeKube
from bridge.kube.port import Kind, Object, PatchType
from bridge.ledger.journal import open_ledger
from bridge.slurm.fake import FakeSlurm
from bridge.workloads.model import GrantState
from tests.unit import test_controller_plan as batch
from tests.unit import worlds


class DirectStores:
    """Stores that are always fresh."""

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube

    def items(self, kind: Kind) -> tuple[Object, ...]:
        return self._kube.list(kind).items

    def trouble(self) -> str:
        return ""

    def gone(self) -> Mapping[str, Object]:
        return {}


class Platform:
    """A controller between two fakes."""

    def __init__(self) -> None:
        self.clock = FakeClock(worlds.NOW_MS)
        self.kube, self.slurm = FakeKube(), FakeSlurm(self.clock)
        self.ledger = open_ledger("sqlite://", self.clock)
        self.ledger.open_epoch(1, "test")
        self.sites: list[str] = []
        self._configure()
        self.restart()

    def restart(self) -> None:
        """Start the controller, knowing nothing but what the ledger and both systems tell."""
        watched = WatchedSlurm(self.slurm, self.sites.append)
        poller = Poller(watched, self.clock, poll_ms=100, busy_poll_ms=50, wake=lambda: None)
        poller.view = lambda not_before, wait_s: poller.read_once()  # type: ignore[method-assign]  # noqa: ARG005
        self.observer = Observer(DirectStores(self.kube), self.ledger, self.clock)
        hands = KubeHands(
            self.kube,
            EventWriter(self.kube, self.clock),
            self.clock,
            worker=self._worker,
            mirror=self._mirror,
            worker_namespace=lambda: "slurm",
            remember=lambda *_: None,
        )
        self.actor = Actor(self.ledger, SlurmHands(watched, self.ledger, self.clock), hands, self.clock)
        self.cycle = Cycle(
            self.observer, poller, self.actor, self.clock,
            publish=lambda *_: None, reconciler=self, leading=lambda: True,
        )  # fmt: skip

    def reconcile(self, beat: Beat) -> None:
        """Nothing: the operator part has its own tests."""

    def run(self, cycles: int = 3) -> None:
        """Cycle, with the kubelet and slurmd doing their part in between."""
        for _ in range(cycles):
            self.cycle.once()
            self._kubelet()
            self.slurm.start_pending()
            self.clock.advance(200)

    def until(self, what: Callable[[], bool], cycles: int = 40) -> None:
        for _ in range(cycles):
            if what():
                return
            self.run(1)
        raise AssertionError(f"not within {cycles} cycles; failures: {self.actor.failures}")

    def sbatch(self, gpus: int) -> int:
        return self.slurm.sbatch(user="alice", uid=2001, account="vision", gpus={"h100": gpus})

    def states(self) -> list[GrantState]:
        return [grant.state for grant in self.ledger.grants(holding=False)]

    def _configure(self) -> None:
        create = self.kube.create
        quota = [{"flavor": "h100", "guarantee": 8, "limit": 12}]
        alice = [{"user": "alice", "slurmUser": "alice", "uid": 2001, "gid": 2001}]
        flavor = {"resource": worlds.GPU, "nodeSelector": {wellknown.GPU_PRODUCT_LABEL: "H100"}, "gres": "gpu:h100"}
        team = {"quotas": quota, "members": alice, "defaultUser": "alice"}
        nodeset = {"cluster": "main", "flavor": "h100", "max": 2, "resources": {"cpu": "1", "memory": "1Gi"}}
        create(port.FLAVORS, _object(port.FLAVORS, "h100", {**flavor, "default": True}))
        create(port.TEAMS, _object(port.TEAMS, "vision", team))
        create(
            port.SLURMCLUSTERS, _object(port.SLURMCLUSTERS, "main", {"home": {"hostPath": {"path": "/home"}}}, "slurm")
        )
        create(port.NODESETS, _object(port.NODESETS, "h100", nodeset, "slurm"))
        space = _object(port.NAMESPACES, "vision", {})
        space["metadata"]["labels"] = {wellknown.TEAM_LABEL: "vision"}
        create(port.NAMESPACES, space)
        node = {"apiVersion": "v1", "kind": "Node", **worlds.node("g1")}
        create(port.NODES, node)
        self.kube.patch(port.NODES, "g1", {"status": node["status"]}, subresource="status")

    def _worker(self, act: CreateWorker) -> Object:
        pod = worlds.worker(act.node, act.gpus)
        del pod["metadata"]["uid"], pod["metadata"]["creationTimestamp"]
        return {"apiVersion": "v1", "kind": "Pod", **pod}

    def _mirror(self, act: acts.CreateMirror) -> Object:
        meta = act.job["metadata"]
        labels = {wellknown.COMPONENT_LABEL: "mirror", wellknown.MIRROR_OF_LABEL: meta["uid"]}
        owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}]
        made = {"name": "mirror", "namespace": meta["namespace"], "labels": labels, "ownerReferences": owner}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": {"containers": [{"name": "output"}]}}

    def _kubelet(self) -> None:
        """Register workers that exist, stop what is deleted, start what was ungated."""
        known = {node.name for node in self.slurm.nodes()}
        for pod in self.kube.list(port.PODS).items:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            if pod["metadata"].get("deletionTimestamp"):
                self.kube.kubelet_stopped(name, namespace)
            elif name.startswith("h100-") and name not in known:
                self.slurm.add_node(name, "h100", 8)
                running = {"status": {"phase": "Running"}}
                self.kube.patch(port.PODS, name, running, namespace=namespace, subresource="status")
            elif "nodeSelector" in pod["spec"] and not pod["spec"].get("schedulingGates"):
                started = {"state": {"running": {"startedAt": "2027-01-15T08:00:01Z"}}}
                status = {"status": {"phase": "Running", "containerStatuses": [started]}}
                self.kube.patch(port.PODS, name, status, namespace=namespace, subresource="status")
                bound = {"spec": {"nodeName": pod["spec"]["nodeSelector"][wellknown.HOSTNAME_LABEL]}}
                self.kube.patch(port.PODS, name, bound, namespace=namespace, type=PatchType.MERGE)


def _object(kind: Kind, name: str, spec: dict[str, Any], namespace: str | None = None) -> Object:
    version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    meta: dict[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind.kind, "metadata": meta, "spec": spec}


@pytest.fixture
def platform() -> Any:
    made = Platform()
    yield made
    made.ledger.close()


def test_a_job_goes_from_sbatch_to_its_end_and_its_devices_are_charged_in_between(platform: Platform) -> None:
    job = platform.sbatch(4)
    platform.until(lambda: platform.states() == [GrantState.RUNNING])
    assert platform.slurm.job(job).nodes == ("h100-g1",)
    platform.run(2)
    assert platform.slurm.job(job).admin_held, "a running job is held as root (J13)"
    platform.clock.advance(10_000)
    platform.slurm.complete(job)
    platform.run(2)
    assert platform.states() == [GrantState.RUNNING], "COMPLETING keeps the charge (J5)"
    platform.slurm.free(job)
    platform.until(lambda: platform.states() == [GrantState.RELEASED])
    assert not platform.ledger.verify()


def test_gpus_move_from_an_idle_worker_to_a_pod_and_back(platform: Platform) -> None:
    first = platform.sbatch(4)
    platform.until(lambda: platform.states() == [GrantState.RUNNING])
    platform.slurm.complete(first)
    platform.slurm.free(first)
    pod = worlds.pod()
    del pod["metadata"]["uid"], pod["metadata"]["creationTimestamp"]
    platform.kube.create(port.PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, namespace="vision")
    platform.until(lambda: sorted(platform.states()) == [GrantState.RELEASED, GrantState.RUNNING])
    assert [n.name for n in platform.slurm.nodes()] == [], "the worker and its record are gone"
    platform.kube.delete(port.PODS, "web-p1", namespace="vision")
    second = platform.sbatch(8)
    platform.until(lambda: platform.slurm.job(second).nodes == ("h100-g1",))
    assert not platform.ledger.verify()


@pytest.mark.parametrize("taken", [True, False], ids=["slurmctld took it", "it never arrived"])
def test_a_submission_whose_answer_is_lost_ends_as_exactly_one_job(platform: Platform, taken: bool) -> None:
    """J1."""
    platform.slurm.fail_next("submit", OutcomeUnknownError("timed out"), after=taken)
    made = batch.batch_job()
    del made["metadata"]["uid"]
    platform.kube.create(port.JOBS, {"apiVersion": "batch/v1", "kind": "Job", **made}, namespace="vision")
    for _ in range(50):
        platform.run(1)
        platform.clock.advance(400)
        assert len(platform.slurm.jobs()) <= 1
    (job,) = platform.slurm.jobs()
    assert job.nodes == ("h100-g1",)


def test_a_cycle_that_opens_and_settles_an_intent_never_submits_twice(platform: Platform) -> None:
    """The intent was never seen open: it must be known all the same when slurmctld then loses the job (J12)."""
    made = batch.batch_job()
    del made["metadata"]["uid"]
    platform.kube.create(port.JOBS, {"apiVersion": "batch/v1", "kind": "Job", **made}, namespace="vision")
    platform.run(1)
    platform.slurm.lose_last()
    platform.run(5)
    assert len(platform.slurm.jobs()) == 0, "not before it is known to be lost"


def test_while_slurmctld_is_away_nothing_changes_and_then_all_is_caught_up(platform: Platform) -> None:
    """N1."""
    job = platform.sbatch(4)
    platform.until(lambda: platform.states() == [GrantState.RUNNING])
    platform.slurm.go_away(UnknownStateError("connection refused"))
    before = len(platform.ledger.log(limit=1000)), len(platform.kube.list(port.PODS).items)
    platform.cycle.once()
    platform.cycle.once()
    assert (len(platform.ledger.log(limit=1000)), len(platform.kube.list(port.PODS).items)) == before
    platform.slurm.come_back()
    platform.slurm.complete(job)
    platform.slurm.free(job)
    platform.until(lambda: platform.states() == [GrantState.RELEASED])


def test_a_world_at_rest_is_left_alone(platform: Platform) -> None:
    """N15: no write to either system, no entry in the ledger."""
    platform.sbatch(4)
    platform.until(lambda: platform.states() == [GrantState.RUNNING])
    platform.run(4)
    platform.sites.clear()
    before = platform.ledger.last_seq(), len(platform.kube.calls.writes)
    for _ in range(5):
        platform.cycle.once()
    assert (platform.ledger.last_seq(), len(platform.kube.calls.writes)) == before
    assert platform.sites == []


def test_a_reading_older_than_our_last_act_is_not_acted_on(platform: Platform) -> None:
    poller = Poller(platform.slurm, platform.clock, poll_ms=100, busy_poll_ms=50, wake=lambda: None)
    stale: Reading = poller.view(not_before=1e12, wait_s=0.0)
    assert not stale.ok


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "by itself"])
def test_a_worker_that_ends_because_it_was_deleted_did_not_fail(platform: Platform, deleted: bool) -> None:
    """Else a node that has just served pods could have no worker for a while."""
    job = platform.sbatch(4)
    platform.until(lambda: platform.slurm.job(job).nodes == ("h100-g1",))
    if deleted:
        platform.kube.delete(port.PODS, "h100-g1", namespace="slurm")
    ended = {"status": {"phase": "Succeeded"}}
    platform.kube.patch(port.PODS, "h100-g1", ended, namespace="slurm", subresource="status")
    assert len(platform.cycle.once().world.memory.failures) == (0 if deleted else 1)


def test_the_planner_is_told_what_teams_held_before(platform: Platform) -> None:
    told = {(worlds.VISION, worlds.H100): 2.5}
    platform.observer._fairshare = lambda now_ms: told if now_ms == platform.clock.now_ms() else {}
    assert platform.cycle.once().world.history == told
