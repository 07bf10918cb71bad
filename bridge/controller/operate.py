"""The operator part: the objects of a SlurmCluster, the files that libslurm needs, statuses of custom resources.

Runs after each cycle and writes only what differs (N15). Nothing here starts, ends, drains or removes work.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from bridge import wellknown
from bridge.cluster import configuration, keys, names, render, users
from bridge.cluster.images import Images
from bridge.cluster.membership import Ceilings
from bridge.controller import statuses
from bridge.controller.cycle import Beat
from bridge.controller.settings import Resources
from bridge.controller.world import Settings
from bridge.crd.slurmcluster import SlurmCluster
from bridge.errors import BridgeError, ConflictError, InvalidInputError, NotFoundError
from bridge.kube import port
from bridge.kube.port import Gateway, Kind, Object, PatchType
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances

_LOG = structlog.get_logger()

KINDS = {
    "ConfigMap": port.CONFIGMAPS,
    "Service": port.SERVICES,
    "StatefulSet": port.STATEFULSETS,
    "Deployment": port.DEPLOYMENTS,
    "PodDisruptionBudget": port.PDBS,
    "Secret": port.SECRETS,
}

RENEW_MS = 60_000
"""Objects are compared with the live ones at least this often, so that a change by hand is put right."""


class Operator:
    """Keeps clusters' objects and statuses. Used by the cycle's thread."""

    def __init__(
        self,
        gateway: Gateway,
        images: Images,
        run_dir: Path,
        users_dir: Path,
        *,
        resources: Callable[[], Resources],
    ) -> None:
        self._gateway = gateway
        self._images = images
        self._run_dir = run_dir
        self._users_dir = users_dir
        self._resources = resources
        self._applied: tuple[object, ...] = ()
        self._applied_ms = 0
        self._conf_dir: Path | None = None
        self._keys: dict[tuple[str, str], keys.Keys] = {}
        self._told: dict[tuple[str, str, str], Object] = {}

    @property
    def conf_dir(self) -> Path | None:
        """Folder with the slurm.conf and slurm.key of the served cluster; None before its keys exist."""
        return self._conf_dir

    @property
    def jwt_keys(self) -> dict[str, bytes]:
        """The key that each cluster's tokens are signed with."""
        return {name: found.jwt for (_, name), found in self._keys.items()}

    def ensure(self, read: Resources, chosen: Settings, now_ms: int) -> None:
        """Apply the served cluster's objects when they changed or a minute has passed; write libslurm's files."""
        cluster = next((c for c in read.clusters if c.metadata.name == chosen.cluster), None)
        if cluster is None:
            return
        made = self._ensure_keys(cluster)
        self._write_users(read)
        rendered = render.render(
            cluster, teams=read.teams, flavors=read.flavors, ceilings=ceilings(chosen), images=self._images
        )
        hashes = tuple(obj["metadata"]["annotations"][wellknown.HASH_ANNOTATION] for obj in rendered.objects)
        if hashes != self._applied or now_ms - self._applied_ms > RENEW_MS:
            for obj in rendered.objects:
                self._apply(obj)
            self._touch(cluster, rendered.config_hash)
            self._applied, self._applied_ms = hashes, now_ms
        self._conf_dir = self._client_files(cluster, made)

    def reconcile(self, beat: Beat) -> None:
        """Follow a cycle: the clusters' objects, then the statuses."""
        world = beat.world
        if not world.kube.ok:
            return
        try:
            self.ensure(self._resources(), world.settings, world.now_ms)
        except BridgeError as error:
            _LOG.error("operate.failed", error=str(error))
        for kind, name, namespace, status in statuses.statuses(beat, self._resources(), self._images):
            self._tell(kind, name, namespace, status, world.now_ms)

    def _ensure_keys(self, cluster: SlurmCluster) -> keys.Keys:
        """Return the cluster's keys; make them only when the Secret positively does not exist, and never again."""
        meta = cluster.metadata
        if (meta.namespace, meta.name) in self._keys:
            return self._keys[meta.namespace, meta.name]
        try:
            secret = self._gateway.get(port.SECRETS, names.KEYS, namespace=meta.namespace)
        except NotFoundError:
            self._refuse_new_keys(meta.namespace)
            wanted = keys.secret(meta.namespace, meta.name, keys.make())
            try:
                secret = self._gateway.create(port.SECRETS, wanted, namespace=meta.namespace)
            except ConflictError:
                secret = self._gateway.get(port.SECRETS, names.KEYS, namespace=meta.namespace)
        self._keys[meta.namespace, meta.name] = keys.read(secret)
        return self._keys[meta.namespace, meta.name]

    def _refuse_new_keys(self, namespace: str) -> None:
        """Never make keys for a slurmctld that exists: new ones would cut its running workers off."""
        try:
            self._gateway.get(port.STATEFULSETS, names.SLURMCTLD, namespace=namespace)
        except NotFoundError:
            return
        raise InvalidInputError(
            f"Secret {namespace}/{names.KEYS} is missing while slurmctld exists; restore it from the pods that mount it"
        )

    def _apply(self, wanted: Object) -> None:
        kind, meta = KINDS[wanted["kind"]], wanted["metadata"]
        try:
            live: Object | None = self._gateway.get(kind, meta["name"], namespace=meta["namespace"])
        except NotFoundError:
            live = None
        if render.changed(wanted, live):
            self._gateway.patch(
                kind, meta["name"], wanted, namespace=meta["namespace"], type=PatchType.APPLY, force=True
            )
            _LOG.info("operate.applied", kind=wanted["kind"], name=meta["name"], namespace=meta["namespace"])

    def _touch(self, cluster: SlurmCluster, config_hash: str) -> None:
        """Annotate slurmctld's pod so that its kubelet refreshes the mounted configuration now, not in a minute."""
        namespace = cluster.metadata.namespace
        try:
            pod = self._gateway.get(port.PODS, names.SLURMCTLD_POD, namespace=namespace)
        except NotFoundError:
            return
        if (pod["metadata"].get("annotations") or {}).get(wellknown.CONFIG_ANNOTATION) != config_hash:
            patch = {"metadata": {"annotations": {wellknown.CONFIG_ANNOTATION: config_hash}}}
            self._gateway.patch(port.PODS, names.SLURMCTLD_POD, patch, namespace=namespace)

    def _client_files(self, cluster: SlurmCluster, made: keys.Keys) -> Path:
        """Write slurm.conf and slurm.key for libslurm in this process, when they differ."""
        folder = self._run_dir / cluster.metadata.namespace / cluster.metadata.name
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / names.SLURM_KEY, made.slurm, 0o600)
        _write(folder / "slurm.conf", configuration.client_slurm_conf(cluster).encode(), 0o644)
        return folder

    def _write_users(self, read: Resources) -> None:
        """Let this process, too, know the members by name: libslurm looks a submitter's uid up."""
        directory = users.directory(read.teams)
        _write(self._users_dir / "passwd", directory.passwd.encode(), 0o644)
        _write(self._users_dir / "group", directory.group.encode(), 0o644)

    def _tell(self, kind: Kind, name: str, namespace: str | None, wanted: Object, now_ms: int) -> None:
        key = (kind.kind, namespace or "", name)
        status = statuses.stamped(wanted, self._told.get(key), now_ms)
        if self._told.get(key) == status:
            return
        try:
            self._gateway.patch(kind, name, {"status": status}, namespace=namespace, subresource="status")
        except NotFoundError:
            return
        except BridgeError as error:
            _LOG.warning("status.failed", kind=kind.kind, name=name, error=str(error))
            return
        self._told[key] = status


def ceilings(chosen: Settings) -> Ceilings:
    """Return the most that each team could ever hold of each of its flavors."""
    empty = Balances(chosen.tree, {})
    return {
        str(team): {
            str(flavor): empty.ceiling(TeamName(team), FlavorName(flavor)) for flavor in chosen.tree.spec(team).quotas
        }
        for team in chosen.tree.teams
    }


def _write(path: Path, content: bytes, mode: int) -> None:
    if path.exists() and path.read_bytes() == content:
        return
    fresh = path.with_suffix(".new")
    fresh.touch(mode=mode)
    fresh.chmod(mode)
    fresh.write_bytes(content)
    fresh.replace(path)
