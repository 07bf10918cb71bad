"""A real etcd and kube-apiserver for tests, in one container of our own kube image, with real certificates and RBAC.

There is no kubelet and no scheduler: pods stay as they were made. With `controllers=True` the controller-manager runs
too (garbage collection, Jobs, Deployments, service accounts).
"""

import contextlib
import functools
import json
import os
import shlex
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the reaper's image comes from a registry

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from bridge.errors import BridgeError
from bridge.kube.gateway import Fault, KubeGateway
from bridge.kube.port import Kind, Object, PatchType
from bridge.kube.transport import LostAnswerError, Transport, from_kubeconfig
from deploy.sandbox.pki import Authority
from tests.kubewait import wait
from tests.slurmbox import image

ALIAS: Final = "kubebox"
PORT: Final = 6443
READY_S: Final = 90.0
_NAMES: Final = ("kubernetes", "kubernetes.default.svc", "localhost", ALIAS, "127.0.0.1", "10.96.0.1")
_ETCD: Final = ("etcd", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=error")
_API: Final = (
    "kube-apiserver",
    "--etcd-servers=http://127.0.0.1:2379",
    f"--secure-port={PORT}",
    "--client-ca-file=/pki/ca.crt",
    "--tls-cert-file=/pki/api.crt",
    "--tls-private-key-file=/pki/api.key",
    "--anonymous-auth=false",
    "--authorization-mode=RBAC",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-account-key-file=/pki/sa.key",
    "--service-account-signing-key-file=/pki/sa.key",
    "--service-cluster-ip-range=10.96.0.0/16",
    "--allow-privileged=true",
    "--v=0",
)
_MANAGER: Final = (
    "kube-controller-manager",
    "--kubeconfig=/pki/manager.kubeconfig",
    "--service-account-private-key-file=/pki/sa.key",
    "--root-ca-file=/pki/ca.crt",
    "--use-service-account-credentials",
    "--leader-elect=false",
)
# Kinds that tests apply and the product has no port for.
_APPLIED: Final = {
    "CustomResourceDefinition": ("apiextensions.k8s.io", "v1", "customresourcedefinitions", False),
    "MutatingAdmissionPolicy": ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", False),
    "MutatingAdmissionPolicyBinding": ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", False),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": (
        "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", False,
    ),
    "ClusterRole": ("rbac.authorization.k8s.io", "v1", "clusterroles", False),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", False),
    "Role": ("rbac.authorization.k8s.io", "v1", "roles", True),
    "RoleBinding": ("rbac.authorization.k8s.io", "v1", "rolebindings", True),
    "Namespace": ("", "v1", "namespaces", False),
    "ServiceAccount": ("", "v1", "serviceaccounts", True),
    "ConfigMap": ("", "v1", "configmaps", True),
    "PriorityClass": ("scheduling.k8s.io", "v1", "priorityclasses", False),
    "Flavor": ("slurmbridge.dev", "v1alpha1", "flavors", False),
    "Team": ("slurmbridge.dev", "v1alpha1", "teams", False),
    "SlurmCluster": ("slurmbridge.dev", "v1alpha1", "slurmclusters", True),
    "NodeSet": ("slurmbridge.dev", "v1alpha1", "nodesets", True),
}  # fmt: skip


class KubeBox:
    """One API server. With a `network` it is also reached there as https://kubebox:6443."""

    def __init__(self, *, controllers: bool = False, network: Network | None = None) -> None:
        self._controllers = controllers
        self._network = network
        self._authority = Authority()
        self._port = _free_port()
        self._stack = contextlib.ExitStack()
        self._container = DockerContainer(image("kube"))
        self._transports: dict[tuple[str, ...], Transport] = {}
        self.url = f"https://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kubebox-")))
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._write_pki(folder)
            programs = [_ETCD, self._api_command(), *([_MANAGER] if self._controllers else [])]
            # Each starts again when it ends: the API server may be quicker than etcd, and tests kill it.
            loops = [f"(while :; do {shlex.join(program)}; sleep 0.3; done) &" for program in programs]
            container = self._container.with_volume_mapping(str(folder), "/pki", "ro")
            container.with_bind_ports(PORT, self._port)
            container.with_tmpfs_mount("/var/lib/etcd").with_kwargs(entrypoint="/usr/bin/tini")
            container.with_command(["-g", "--", "sh", "-c", " ".join([*loops, "wait"])])
            if self._network is not None:
                container.with_network(self._network).with_network_aliases(ALIAS)
            container.start()
            self._stack.callback(container.stop, force=True, delete_volume=True)
            self.wait_ready()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything."""
        self._stack.close()

    # --- asking it ---------------------------------------------------------------------------------------------
    def gateway(self, user: str = "admin", *groups: str, fault: Fault | None = None, read_s: float = 10) -> KubeGateway:
        """Return a gateway that speaks as a user; the default one is in system:masters."""
        return KubeGateway(self.transport(user, *groups), fault=fault, read_s=read_s)

    def transport(self, user: str = "admin", *groups: str) -> Transport:
        """Return the bytes under a gateway, one for each user."""
        if (user, *groups) not in self._transports:
            self._transports[user, *groups] = self._transport(user, *groups)
        return self._transports[user, *groups]

    def _transport(self, user: str, *groups: str) -> Transport:
        with tempfile.NamedTemporaryFile(suffix=".kubeconfig") as file:
            Path(file.name).write_bytes(self.kubeconfig(user, *groups))
            return from_kubeconfig(file.name)

    def kubeconfig(self, user: str = "admin", *groups: str, inside: bool = False) -> bytes:
        """Return a kubeconfig with a client certificate; `inside` is for containers of the same network."""
        if user == "admin" and not groups:
            groups = ("system:masters",)
        return self._authority.kubeconfig(user, groups, f"https://{ALIAS}:{PORT}" if inside else self.url)

    def apply(self, *documents: Object) -> None:
        """Server-side apply as an admin; a CRD is waited for."""
        gateway = self.gateway()
        for document in documents:
            kind, meta = kind_of(document), document["metadata"]
            gateway.patch(
                kind, meta["name"], document, namespace=meta.get("namespace"), type=PatchType.APPLY, force=True
            )
        for document in documents:
            if document["kind"] == "CustomResourceDefinition":
                name = document["metadata"]["name"]
                wait(f"{name} is established", functools.partial(_established, gateway, kind_of(document), name))

    def apply_file(self, path: Path) -> None:
        """Apply every document of a YAML file."""
        self.apply(*(document for document in yaml.safe_load_all(path.read_text()) if document))

    def wait_ready(self) -> None:
        """Wait until the API server answers that it is ready."""
        asked = self.transport()
        wait("the API server is ready", lambda: _ready(asked), READY_S, self.log)

    # --- doing things to it ------------------------------------------------------------------------------------
    def kill_api_server(self) -> None:
        """Kill -9: it starts again by itself; wait_ready tells when."""
        self.run("pkill", "-9", "kube-apiserver")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold the API server: connections stay open and nothing is answered."""
        self.run("pkill", "-STOP", "kube-apiserver")
        try:
            yield
        finally:
            self.run("pkill", "-CONT", "kube-apiserver")

    def run(self, *command: str) -> str:
        """Run a command in the container; it must succeed."""
        name = self._container.get_wrapped_container().id
        done = subprocess.run(
            ["docker", "exec", name, *command], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def host_address(self) -> str:
        """Return the address at which the container reaches this host."""
        route = self.run("ip", "route", "show", "default").split()
        return route[route.index("via") + 1]

    def log(self) -> str:
        """Return the last words of etcd and the API server."""
        return str(self._container.get_wrapped_container().logs(tail=30).decode(errors="replace"))

    # --- parts -------------------------------------------------------------------------------------------------
    def _api_command(self) -> tuple[str, ...]:
        # Without the controller-manager nobody makes the service account that pods would need.
        return _API if self._controllers else (*_API, "--disable-admission-plugins=ServiceAccount")

    def _write_pki(self, folder: Path) -> None:
        certificate, key = self._authority.leaf("kube-apiserver", (), _NAMES)
        manager = self._authority.kubeconfig("system:kube-controller-manager", (), f"https://127.0.0.1:{PORT}")
        signing = rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files = {
            "ca.crt": self._authority.certificate_pem,
            "api.crt": certificate,
            "api.key": key,
            "sa.key": signing,
            "manager.kubeconfig": manager,
        }
        for name, content in files.items():
            (folder / name).write_bytes(content)


def kind_of(document: Object) -> Kind:
    """Return the Kind of a document that tests apply."""
    group, version, plural, namespaced = _APPLIED[document["kind"]]
    return Kind(group, version, plural, document["kind"], namespaced=namespaced)


def unique(prefix: str) -> str:
    """Return a name that nobody else uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def _ready(asked: Transport) -> bool:
    try:
        return asked.send("GET", "/readyz", read_s=5).status == 200
    except (BridgeError, LostAnswerError):
        return False


def _established(gateway: KubeGateway, kind: Kind, name: str) -> bool:
    conditions = (gateway.get(kind, name).get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pod(name: str, *, gpus: int = 0, resource: str = "nvidia.com/gpu", **meta: Any) -> Object:
    """Return a small pod; `meta` goes into its metadata."""
    container: Object = {"name": "main", "image": "none/none:1"}
    if gpus:
        container["resources"] = {"limits": {resource: str(gpus)}}
    return json.loads(  # type: ignore[no-any-return]
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, **meta},
                "spec": {"containers": [container]},
            }
        )
    )
