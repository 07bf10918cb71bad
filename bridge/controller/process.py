"""The controller process: everything wired together, leadership, and an orderly end."""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from bridge import wellknown
from bridge.api import directory, server
from bridge.api.app import create_app
from bridge.api.identity import Identity
from bridge.api.tokens import TokenAuthenticator
from bridge.capacity.model import CreateWorker
from bridge.clock import SystemClock
from bridge.cluster import mirror, worker
from bridge.cluster.images import Images
from bridge.controller import acts
from bridge.controller.act import Actor
from bridge.controller.config import Config
from bridge.controller.cycle import Cycle
from bridge.controller.deferred import Connect, DeferredSlurm
from bridge.controller.faults import Fault, WatchedSlurm
from bridge.controller.kube_acts import KubeHands
from bridge.controller.observe import Observer
from bridge.controller.operate import Operator
from bridge.controller.poller import Poller
from bridge.controller.slurm_acts import SlurmHands
from bridge.controller.source import BeatSource, Leader
from bridge.errors import BridgeError
from bridge.kube import port
from bridge.kube.events import EventWriter
from bridge.kube.lease import Lease
from bridge.kube.port import Gateway, Object
from bridge.kube.stores import ReflectedStores
from bridge.kube.tokens import review
from bridge.ledger import decay
from bridge.ledger.fairshare import FairShare
from bridge.ledger.journal import open_ledger

_LOG = structlog.get_logger()


KINDS: Final = (
    port.NODES, port.PODS, port.NAMESPACES, port.JOBS, port.FLAVORS, port.TEAMS, port.SLURMCLUSTERS, port.NODESETS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outside:
    """What the process talks to; tests hand in their own."""

    gateway: Gateway
    lease_gateway: Gateway  # of its own, with short calls: a stuck request elsewhere must not cost the leadership
    connect_slurm: Connect
    fault: Fault


class Process:
    """One controller. `run` returns when leadership is lost or TERM came."""

    def __init__(self, config: Config, outside: Outside) -> None:
        self._config = config
        self._outside = outside
        self._stopping = threading.Event()
        clock = SystemClock()
        self._ledger = open_ledger(config.ledger_url, clock, outside.fault)
        self._watches = ReflectedStores(outside.gateway, KINDS, self._wake)
        fairshare = FairShare(self._ledger, decay.half_life(config.fairshare_half_life))
        self._observer = Observer(self._watches, self._ledger, clock, fairshare.sample)
        self._images = Images(slurm=config.slurm_image, login=config.login_image)
        self._operator = Operator(
            outside.gateway,
            self._images,
            Path(config.run_dir),
            Path(config.users_dir),
            resources=lambda: self._observer.resources,
        )
        self._deferred = DeferredSlurm(outside.connect_slurm)
        slurm = WatchedSlurm(self._deferred, outside.fault)
        self._poller = Poller(slurm, clock, poll_ms=config.poll_ms, busy_poll_ms=config.busy_poll_ms, wake=self._wake)
        hands = KubeHands(
            outside.gateway,
            EventWriter(outside.gateway, clock),
            clock,
            worker=self._worker,
            mirror=self._mirror,
            worker_namespace=lambda: self._observer.settings().cluster_namespace,
            remember=self._watches.remember,
        )
        actor = Actor(self._ledger, SlurmHands(slurm, self._ledger, clock), hands, clock)
        self._lease = Lease(
            outside.lease_gateway,
            wellknown.LEASE_NAME,
            config.namespace,
            config.identity or "slurm-bridge",
            duration_s=config.lease_s,
            lost=self._wake,
            floor=self._ledger.newest_epoch,
        )
        self._source = BeatSource(
            self._ledger,
            clock,
            leader=self._leader,
            failures=lambda: actor.failures,
            wake=self._wake,
            kube_age_s=self._watches.age_s,
        )
        self._cycle = Cycle(
            self._observer,
            self._poller,
            actor,
            clock,
            publish=self._source.publish,
            reconciler=self._operator,
            leading=lambda: self._lease.current() is not None,
        )
        self._clock = clock

    def run(self) -> int:
        """Serve, wait for leadership, cycle; 0 when asked to stop, 1 when leadership was lost."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        handle = server.serve(
            create_app(self._source, self._authenticator()), self._config.api_host, self._config.api_port
        )
        self._watches.start()
        self._lease.start()
        try:
            return self._lead()
        finally:
            self._poller.stop()
            self._watches.stop()
            self._lease.stop()
            handle.stop()
            self._ledger.close()

    def stop(self) -> None:
        """End after the cycle in progress."""
        self._stopping.set()
        self._cycle.stop()

    def _lead(self) -> int:
        term = None
        while term is None and not self._stopping.is_set():
            term = self._lease.wait(1.0)
        if term is None:
            return 0
        self._ledger.open_epoch(term.epoch, term.holder)
        _LOG.info("leading", epoch=term.epoch, holder=term.holder)
        if not self._await(lambda: not self._watches.trouble()):
            return 0
        self._source.kube_version = self._kube_version()
        self._poller.start()
        connector = threading.Thread(target=self._connect, name="connect", daemon=True)
        connector.start()
        self._cycle.run()
        return 0 if self._stopping.is_set() else 1

    def _kube_version(self) -> str:
        """Return what `status` shows of the API server; "" when it does not say just now."""
        try:
            major, minor = self._outside.gateway.version()
        except BridgeError as error:
            _LOG.warning("kubernetes.version", error=str(error))
            return ""
        return f"{major}.{minor}"

    def _await(self, true: Callable[[], bool]) -> bool:
        while not true():
            if self._stopping.wait(0.1):
                return False
        return True

    def _connect(self) -> None:
        """Hand libslurm its files as soon as a SlurmCluster's keys exist."""
        while not self._stopping.is_set():
            conf_dir = self._operator.conf_dir
            if conf_dir is not None:
                self._deferred.use(conf_dir)
                self._poller.poke()
                return
            self._stopping.wait(0.2)

    def _wake(self) -> None:
        if hasattr(self, "_cycle"):
            self._cycle.wake()

    def _worker(self, act: CreateWorker) -> Object:
        read = self._observer.resources
        nodeset = next(n for n in read.nodesets if n.metadata.name == act.nodeset)
        cluster = next(c for c in read.clusters if c.metadata.name == nodeset.spec.cluster)
        flavor = next(f for f in read.flavors if f.metadata.name == nodeset.spec.flavor)
        return worker.pod(
            node=act.node, gpus=act.gpus, nodeset=nodeset, cluster=cluster, flavor=flavor, images=self._images
        )

    def _mirror(self, act: acts.CreateMirror) -> Object:
        cluster = next(
            c for c in self._observer.resources.clusters if c.metadata.name == self._observer.settings().cluster
        )
        labels = act.job["metadata"].get("labels") or {}
        return mirror.pod(
            job=act.job,
            cluster=cluster,
            image=self._images.slurm,
            uid=act.member.uid,
            gid=act.member.gid,
            path=act.path,
            team=labels.get(wellknown.TEAM_LABEL, ""),
        )

    def _leader(self) -> Leader:
        term = self._lease.current()
        return Leader(self._lease.holder(), term.epoch if term else 0, leading=term is not None)

    def _authenticator(self) -> TokenAuthenticator:
        return TokenAuthenticator(
            keys=lambda: self._operator.jwt_keys,
            slurm_user=lambda user: directory.of_slurm_user(self._source.beat.world.settings.tenants, user),
            kubernetes=self._kubernetes_identity,
        )

    def _kubernetes_identity(self, token: str) -> Identity | None:
        found = review(self._outside.gateway, token)
        if found is None:
            return None
        tenants = self._source.beat.world.settings.tenants
        return directory.of_kubernetes_user(tenants, found.username, found.groups)
