"""A tiny Kubernetes and Slurm that react to the worker plan's acts the way the real ones do. Refuses what harms.

One step: the plan's acts (some may get lost), then pods start and stop, workers register, jobs run and end.
Records, drains and the pods' phases behave as seen on Slurm 26.05: a record outlives its worker and goes DOWN, a live
slurmd brings a DOWN node back with its drain, a lost state directory forgets every node until it registers again.
"""

import random
from dataclasses import dataclass, field, replace

from bridge.admission.plan import admit
from bridge.capacity import readiness
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
from bridge.capacity.supply import supplies
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Tree
from bridge.workloads.model import Grant, GrantState, NodeName, System, Workload, WorkloadId

H100, TEAM = FlavorName("h100"), TeamName("vision")
STEP_MS = 100_000
PATIENCE = 6  # steps after which a grant that did not start is voided, as the controller does
TREE = Tree.build([TeamSpec(TEAM, None, quotas={H100: Quota(1000)})])
ADMIN = "ecc errors"


@dataclass
class Record:
    """slurmctld's record of a worker."""

    gpus: int
    down: bool = False
    drain: bool = False
    reason: str = ""
    cpu_until: int = 0  # a job without GPUs, of which the ledger knows nothing, runs until this step

    @property
    def foreign(self) -> bool:
        return self.reason == ADMIN


@dataclass
class Pod:
    """A worker pod."""

    uid: str
    gpus: int
    phase: PodPhase = PodPhase.PENDING


@dataclass
class Node:
    """A node with everything on it."""

    name: NodeName
    nodeset: NodeSetView
    allocatable: int = 8
    cordoned: bool = False
    tainted: bool = False
    pod: Pod | None = None
    record: Record | None = None
    idle_since_ms: int | None = None
    failures: int = 0
    failed_ms: int | None = None


@dataclass
class World:
    """Nodes, grants (with the step at which each ends once it runs), time."""

    rng: random.Random
    nodes: dict[NodeName, Node]
    grants: dict[WorkloadId, Grant] = field(default_factory=dict)
    ends: dict[WorkloadId, int] = field(default_factory=dict)
    reserved: dict[WorkloadId, int] = field(default_factory=dict)
    started: set[WorkloadId] = field(default_factory=set)
    step: int = 0
    made: int = 0

    @property
    def now_ms(self) -> int:
        return self.step * STEP_MS

    def jobs(self, name: NodeName, system: System, state: GrantState = GrantState.RUNNING) -> list[Grant]:
        return [g for g in self.grants.values() if g.system is system and g.state is state and name in g.placement]

    def busy(self, node: Node) -> bool:
        """Any job in Slurm's eyes."""
        cpu = node.record is not None and node.record.cpu_until > self.step
        return cpu or bool(self.jobs(node.name, System.SLURM))

    def views(self) -> list[NodeView]:
        return [self._view(node) for node in self.nodes.values()]

    def _view(self, node: Node) -> NodeView:
        busy = self.busy(node)
        slurm = None
        if node.record is not None:
            flags = frozenset({"DRAIN"}) if node.record.drain else frozenset()
            state = "DOWN" if node.record.down else "MIXED" if busy else "IDLE"
            ours = node.record.reason.startswith("bridge: ")
            slurm = SlurmView(node.name, state, flags, node.record.reason, ours, busy, gpus=node.record.gpus)
        pod = node.pod
        worker = None
        if pod is not None:
            worker = WorkerView(node.name, pod.uid, pod.phase, pod.gpus, slurm, node.idle_since_ms)
        return NodeView(
            node.name,
            H100,
            node.nodeset,
            node.allocatable,
            cordoned=node.cordoned,
            taint_ours=node.tainted,
            worker=worker,
            slurm_record=None if pod else slurm,
            pods_granted=sum(g.placement[node.name] for g in self.jobs(node.name, System.KUBERNETES)),
            worker_failures=node.failures,
            last_failure_ms=node.failed_ms,
        )

    # The plan's acts.

    def apply(self, action: Action) -> None:
        """Carry out one act; an act that harms somebody fails the test."""
        node = self.nodes[action.node]
        match action:
            case CreateWorker(gpus=gpus):
                assert node.pod is None, "a second worker on one node"
                assert not self.jobs(node.name, System.KUBERNETES), "a worker beside pods"
                assert 0 < gpus <= node.allocatable
                node.pod, node.idle_since_ms = Pod(f"uid-{self.step}-{node.name}", gpus), None
            case DeleteWorker(uid=uid):
                assert node.pod is not None
                assert node.pod.uid == uid
                assert not self.busy(node), "a busy worker deleted"
                stopped = node.pod.phase in (PodPhase.PENDING, PodPhase.FAILED)
                assert stopped or (node.record is not None and node.record.drain), "a worker deleted undrained"
                node.pod.phase = PodPhase.TERMINATING
            case TaintNode():
                node.tainted = True
            case UntaintNode():
                node.tainted = False
            case DrainWorker() | UndrainWorker() | ForgetNode():
                self._to_slurm(node, action)

    def _to_slurm(self, node: Node, action: DrainWorker | UndrainWorker | ForgetNode) -> None:
        if node.record is None:
            return  # it went meanwhile: the real one answers "unknown node"
        assert not node.record.foreign, "somebody else's drain was touched"
        match action:
            case DrainWorker(reason=reason):
                node.record.drain, node.record.reason = True, reason
            case UndrainWorker():
                assert not node.record.down, "a DOWN node brought back"
                node.record.drain, node.record.reason = False, ""
            case ForgetNode():
                assert not self.busy(node), "a record with jobs deleted"
                assert node.pod is None
                node.record = None

    # What happens by itself.

    def evolve(self) -> None:
        """Let one step of time pass."""
        self.step += 1
        for name in [name for name, end in self.ends.items() if end <= self.step]:
            self.end(name)
        for node in self.nodes.values():
            self._age(node)
        for grant in [g for g in self.grants.values() if g.state is GrantState.RESERVED]:
            if not readiness.pending(grant, self.views()):
                self.grants[grant.workload] = replace(grant, state=GrantState.RUNNING)
                self.ends[grant.workload] = self.step + self.rng.randint(1, 4)
                self.started.add(grant.workload)
            elif self.step - self.reserved[grant.workload] > PATIENCE:
                self.end(grant.workload)
        for node in self.nodes.values():
            used = any(self.jobs(node.name, System.SLURM, state) for state in (GrantState.RESERVED, GrantState.RUNNING))
            idle = node.pod is not None and node.record is not None and not used and not self.busy(node)
            node.idle_since_ms = (node.idle_since_ms or self.now_ms) if idle else None

    def end(self, name: WorkloadId) -> None:
        self.grants.pop(name)
        self.ends.pop(name, None)

    def _age(self, node: Node) -> None:
        pod = node.pod
        gone = pod is None or pod.phase in (PodPhase.FAILED, PodPhase.TERMINATING)
        if gone and node.record is not None:
            for grant in self.jobs(node.name, System.SLURM):
                self.end(grant.workload)  # its slurmd is dead: NODE_FAIL
            node.record.down, node.record.reason = True, node.record.reason or "Not responding"
            node.record.cpu_until = 0
        if pod is None:
            return
        if pod.phase is PodPhase.TERMINATING:
            node.pod = None
        elif pod.phase is PodPhase.PENDING:
            pod.phase = PodPhase.RUNNING
        elif pod.phase is PodPhase.RUNNING:
            node.failures = 0
            if node.record is None:
                for grant in self.jobs(node.name, System.SLURM):
                    self.end(grant.workload)  # slurmctld lost its state: what it does not know is killed
                node.record = Record(pod.gpus)
            node.record.down, node.record.gpus = False, pod.gpus
            node.record.reason = "" if node.record.reason == "Not responding" else node.record.reason

    # What people and accidents do.

    def disturb(self) -> None:
        """Do one thing that the plan did not ask for."""
        node = self.rng.choice(list(self.nodes.values()))
        what = self.rng.choice([self._people, self._people, self._pods, self._daemons])
        what(node)

    def _people(self, node: Node) -> None:
        """Cordon, drain, resume: by an admin. Or run something without GPUs."""
        record = node.record
        match self.rng.randrange(4):
            case 0:
                node.cordoned = not node.cordoned
            case 1 if record is not None and not record.foreign:
                record.drain, record.reason = True, ADMIN
            case 2 if record is not None:
                record.drain, record.reason = False, ""  # his own, or ours by hand
            case 3 if record is not None and not record.drain and not record.down:
                record.cpu_until = self.step + 4
            case _:
                pass

    def _pods(self, node: Node) -> None:
        """Let a worker fail or be evicted."""
        pod = node.pod
        if pod is None or pod.phase is PodPhase.TERMINATING:
            return
        pod.phase = self.rng.choice([PodPhase.FAILED, PodPhase.TERMINATING])
        if pod.phase is PodPhase.FAILED:
            node.failures, node.failed_ms = node.failures + 1, self.now_ms

    def _daemons(self, node: Node) -> None:
        """Change what the device plugin says, lose slurmctld's state, or restart the bridge."""
        match self.rng.randrange(3):
            case 0:
                node.allocatable = self.rng.choice([0, 6, 8, 8])
            case 1:
                for each in self.nodes.values():
                    each.record = None
            case _:
                for each in self.nodes.values():
                    each.idle_since_ms = None

    def submit(self, many: int) -> None:
        """Submit random work and admit what the real admission admits."""
        asks = []
        for _ in range(many):
            self.made += 1
            system = self.rng.choice(list(System))
            count = self.rng.choice([1, 1, 2]) if system is System.SLURM else 1
            gpus = self.rng.choice([1, 2, 4, 8])
            asks.append(Workload(WorkloadId(f"w{self.made}"), system, TEAM, H100, count, gpus, self.now_ms))
        grants = list(self.grants.values())
        nodes = supplies(self.views(), grants, now_ms=self.now_ms)
        for placed in admit(asks, TREE, grants, nodes, flavors=[H100]).admitted:
            w = placed.workload
            self.reserved[w.id] = self.step
            self.grants[w.id] = Grant(w.id, 1, TEAM, H100, w.system, w.gpus, GrantState.RESERVED, placed.placement)


def new(rng: random.Random) -> World:
    """Four nodes in a node set with a minimum and a maximum, one in a set of its own."""
    wide, lone = NodeSetView("wide", min=rng.choice([0, 1]), max=rng.choice([2, 4])), NodeSetView("lone")
    nodes = [Node(NodeName(f"n{index}"), wide if index < 4 else lone) for index in range(5)]
    return World(rng, {node.name: node for node in nodes})
