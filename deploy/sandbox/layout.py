"""What the sandbox consists of: its nodes, addresses, names and folders. Pure; everything else follows from it."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD_DIR = ROOT / ".build"
STATE_DIR = BUILD_DIR / "sandbox"
PKI_DIR = STATE_DIR / "pki"
KUBECONFIG = STATE_DIR / "kubeconfig"
ENV_FILE = STATE_DIR / "env"
BIN_DIR = BUILD_DIR / "bin"
KUBECTL = BIN_DIR / "kubectl"

LABEL = "slurmbridge.dev/sandbox=true"
CONTEXT = "slurm-bridge-sandbox"
NETWORK = "sbx"
SHARED_VOLUME = "sbx-shared"
REGISTRY = "sbx-registry"
REGISTRY_HOST = "localhost:5000"
IMAGE_PREFIX = f"{REGISTRY_HOST}/slurm-bridge"

# The first that no other Docker network uses is taken, at the first `up`.
SUBNETS = ("172.30.0.0/24", "172.31.250.0/24", "10.201.30.0/24", "192.168.230.0/24")
POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_SERVICE_IP = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"
API_PORT = 6443

# Who owns which home directory; the accounts themselves are the deployment's.
HOMES = {"alice": 2001, "bob": 2002}
PERSISTENT_VOLUMES = 8


@dataclass(frozen=True)
class Node:
    """One Kubernetes node, a Docker container named `sbx-NAME`."""

    name: str
    index: int
    gpus: int = 0
    product: str = ""

    @property
    def container(self) -> str:
        """The container's name."""
        return f"sbx-{self.name}"

    @property
    def is_control(self) -> bool:
        """Whether the control plane runs here too."""
        return self.index == 0

    @property
    def pod_subnet(self) -> str:
        """Where this node's pods get their addresses."""
        return f"10.244.{self.index}.0/24"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the kubelet registers with."""
        return {"nvidia.com/gpu.product": self.product} if self.product else {}


CONTROL = Node("control", 0)
NODES = (CONTROL, Node("g1", 1, 8, "H100"), Node("g2", 2, 8, "H100"), Node("g3", 3, 4, "A100"))


@dataclass(frozen=True)
class Addresses:
    """Fixed addresses inside the Docker network of this sandbox."""

    subnet: str

    def _host(self, number: int) -> str:
        return str(ipaddress.ip_network(self.subnet)[number])

    @property
    def registry(self) -> str:
        """The registry's address."""
        return self._host(5)

    def node(self, node: Node) -> str:
        """Return a node's address."""
        return self._host(10 + node.index)

    @property
    def api_url(self) -> str:
        """The API server, as the nodes and the host reach it."""
        return f"https://{self.node(CONTROL)}:{API_PORT}"
