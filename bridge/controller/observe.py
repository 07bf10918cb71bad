"""Build the frozen world of one cycle from the reflectors, the poller and the ledger, and keep the watcher's memory."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from bridge import wellknown
from bridge.admission.model import History
from bridge.capacity import readiness
from bridge.clock import Clock
from bridge.controller import cancel, preempt, route, settings, workers
from bridge.controller.poller import Reading
from bridge.controller.world import KubeView, Memory, Settings, SlurmView, World
from bridge.kube import port
from bridge.kube.port import Object
from bridge.ledger.port import Intent, Ledger
from bridge.slurm import states
from bridge.slurm.model import Phase, SlurmNode
from bridge.workloads import pods
from bridge.workloads.model import Grant, NodeName, System, WorkloadId

KeyT = TypeVar("KeyT", bound=str)


class Stores(Protocol):
    """The reflectors' stores, as the observer reads them."""

    def items(self, kind: port.Kind) -> tuple[Object, ...]:
        """Objects of a kind as last known."""
        ...

    def trouble(self) -> str:
        """Why what is known may not be acted on; "" when every kind is synced and fresh."""
        ...

    def gone(self) -> Mapping[str, Object]:
        """Last state of pods deleted a short while ago, by UID."""
        ...


@dataclass(slots=True)
class _Remembered:
    missing_ms: dict[WorkloadId, int] = field(default_factory=dict)
    released_ms: dict[WorkloadId, int] = field(default_factory=dict)
    idle_since_ms: dict[str, int] = field(default_factory=dict)
    failures: dict[NodeName, tuple[int, int]] = field(default_factory=dict)
    failed_uids: set[str] = field(default_factory=set)


class Observer:
    """Looks once per cycle. Used by one thread."""

    def __init__(
        self, stores: Stores, ledger: Ledger, clock: Clock, fairshare: Callable[[int], History] | None = None
    ) -> None:
        """`fairshare` tells decayed use at a time; without it nobody has any."""
        self._stores = stores
        self._ledger = ledger
        self._clock = clock
        self._fairshare = fairshare
        self._memory = _Remembered()
        self._settings_key: tuple[str, ...] = ()
        self._known_intents: dict[str, Intent] | None = None
        self._open_intents: set[str] = set()
        self._settings: Settings | None = None
        self._resources: settings.Resources | None = None

    @property
    def resources(self) -> settings.Resources:
        """The custom resources of the last look."""
        self.settings()
        if self._resources is None:
            raise AssertionError("settings() reads the resources")
        return self._resources

    def look(self, reading: Reading) -> World:
        """Return everything that the next plan is made from."""
        now_ms = self._clock.now_ms()
        chosen = self.settings()
        grants = tuple(self._ledger.grants(holding=True))
        intents = self._intents()
        kube = self._kube(chosen)
        memory = self._memory
        missing_ms: dict[WorkloadId, int] = {}  # filled below, before anybody else sees the view
        released_ms: dict[WorkloadId, int] = {}
        slurm = SlurmView(
            cluster=chosen.cluster,
            ok=reading.ok,
            read_ms=reading.read_ms,
            jobs=reading.jobs,
            nodes={node.name: node for node in reading.nodes},
            error=reading.error,
            missing_ms=missing_ms,
            released_ms=released_ms,
        )
        watched = {g.workload for g in grants if g.system is System.SLURM} | set(route.missing(intents))
        watched |= set(preempt.watched(intents))
        watched |= {i.workload for i in cancel.asked(intents.values()) if not i.workload.startswith("pod/")}
        self._watch_jobs(slurm, watched, {g.workload for g in grants}, now_ms)
        self._watch_workers(kube, slurm, grants, now_ms)
        missing_ms.update(memory.missing_ms)
        released_ms.update(memory.released_ms)
        remembered = Memory(dict(memory.idle_since_ms), dict(memory.failures))
        rows = {row.node: row for row in self._ledger.capacity_rows()}
        history: History = self._fairshare(now_ms) if self._fairshare is not None else {}
        return World(now_ms, kube, slurm, chosen, grants, intents, rows, remembered, history)

    def read_intents_again(self) -> None:
        """Drop what is known of closed intents: this cycle opens or settles some, maybe both in one."""
        self._known_intents = None

    def _intents(self) -> Mapping[str, Intent]:
        """Return every intent; the closed ones are read again only after a cycle or a caller changed some."""
        still_open = {intent.id: intent for intent in self._ledger.intents(open_only=True)}
        if self._known_intents is None or still_open.keys() != self._open_intents:
            self._known_intents = {intent.id: intent for intent in self._ledger.intents(open_only=False)}
            self._open_intents = set(still_open)
        return self._known_intents

    def settings(self) -> Settings:
        """Parse the custom resources again when one of them changed."""
        kinds = (port.FLAVORS, port.TEAMS, port.SLURMCLUSTERS, port.NODESETS)
        found = [self._stores.items(kind) for kind in kinds]
        key = tuple(f"{o['metadata']['uid']}/{o['metadata'].get('generation')}" for items in found for o in items)
        going = tuple(o["metadata"]["uid"] for items in found for o in items if o["metadata"].get("deletionTimestamp"))
        if self._settings is None or (*key, *going) != self._settings_key:
            self._resources = settings.resources(*found)
            self._settings = settings.settings(self._resources)
            self._settings_key = (*key, *going)
        return self._settings

    def _kube(self, chosen: Settings) -> KubeView:
        trouble = self._stores.trouble()
        resources = chosen.flavors.resources
        kept = tuple(pod for pod in self._stores.items(port.PODS) if _concerns(pod, resources))
        return KubeView(
            ok=not trouble,
            nodes={NodeName(n["metadata"]["name"]): n for n in self._stores.items(port.NODES)},
            namespaces={n["metadata"]["name"]: n for n in self._stores.items(port.NAMESPACES)},
            pods=kept,
            jobs=tuple(job for job in self._stores.items(port.JOBS) if route.ours(job)),
            gone=self._stores.gone(),
            worker_namespace=chosen.cluster_namespace,
            error=trouble,
        )

    def _watch_jobs(self, slurm: SlurmView, watched: set[WorkloadId], granted: set[WorkloadId], now_ms: int) -> None:
        """Remember since when good reads have lacked a job, or shown it released and pending."""
        memory = self._memory
        if not slurm.ok:
            memory.missing_ms.clear()
            return
        tasks = slurm.tasks
        absent = {identity for identity in watched if identity not in tasks}
        released = {
            identity
            for identity, task in tasks.items()
            if identity in granted
            and not task.job.held
            and states.phase(task.job.state, task.job.flags) is Phase.WAITING
        }
        _since(memory.missing_ms, absent, now_ms)
        _since(memory.released_ms, released, now_ms)

    def _watch_workers(self, kube: KubeView, slurm: SlurmView, grants: tuple[Grant, ...], now_ms: int) -> None:
        """Remember since when a worker has been idle, and how often in a row workers failed on a node."""
        if not (kube.ok and slurm.ok):
            return
        used = {node for grant in grants for node in grant.placement if grant.system is System.SLURM}
        idle = set()
        for pod in workers.every(kube):
            name, node = pod["metadata"]["name"], NodeName(workers.labels(pod)[wellknown.WORKER_NODE_LABEL])
            record = slurm.nodes.get(name)
            if node not in used and (record is None or not record.busy):
                idle.add(name)
            self._count_failure(pod, node, now_ms, usable=record is not None and _usable(record))
        _since(self._memory.idle_since_ms, idle, now_ms)

    def _count_failure(self, pod: Object, node: NodeName, now_ms: int, *, usable: bool) -> None:
        """Count a worker that ended by itself; one that ends because it was deleted did not fail."""
        memory, uid = self._memory, pod["metadata"]["uid"]
        if pods.deleting(pod):
            return
        if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
            if uid not in memory.failed_uids:
                memory.failed_uids.add(uid)
                count, _ = memory.failures.get(node, (0, 0))
                memory.failures[node] = (count + 1, now_ms)
        elif usable:
            memory.failures.pop(node, None)


def _usable(record: SlurmNode) -> bool:
    return record.state in readiness.USABLE_STATES and readiness.UNUSABLE_FLAGS.isdisjoint(record.flags)


def _since(since: dict[KeyT, int], now_true: set[KeyT], now_ms: int) -> None:
    """Keep, for each key that is true now, when it became so; forget the others."""
    for key in [key for key in since if key not in now_true]:
        del since[key]
    for key in now_true:
        since.setdefault(key, now_ms)


def _concerns(pod: Object, resources: Iterable[str]) -> bool:
    """Return whether a pod asks for GPUs or is one of ours."""
    component = workers.labels(pod).get(wellknown.COMPONENT_LABEL)
    return component in ("worker", "mirror") or pods.request(pod, resources) is not None
