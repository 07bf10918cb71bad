"""The configuration files of one sandbox node, rendered: what its programs are and how each is started. Pure.

The container mounts them at /etc/node; the image knows only how to run what it finds in /etc/node/services.
"""

import json
import shlex

from deploy.sandbox import layout

PKI = "/etc/node/pki"
CONTROL_PKI = "/etc/node/control-pki"
KUBELET_SOCKET = "unix:///run/containerd/containerd.sock"
# Each node would offer all of the machine; four of them must not promise more memory than there is.
SYSTEM_RESERVED_CPU = "500m"
MEMORY_SHARE = 4


def render(node: layout.Node, addresses: layout.Addresses, pause_image: str, memory_mib: int) -> dict[str, str]:
    """Return the text of each file by its path under /etc/node."""
    files = {
        "containerd.toml": _containerd(pause_image),
        f"certs.d/{layout.REGISTRY_HOST}/hosts.toml": _registry_hosts(addresses),
        "cni/10-pods.conflist": _cni(node),
        "resolv.conf": f"nameserver {layout.DNS_SERVICE_IP}\n",
        "kubelet.yaml": json.dumps(_kubelet(memory_mib), indent=1),
        "kube-proxy.yaml": json.dumps(_kube_proxy(node), indent=1),
        "services/50-containerd": _service(["containerd", "--config", "/etc/node/containerd.toml"]),
        "services/60-kubelet": _service(_kubelet_command(node, addresses)),
        "services/70-kube-proxy": _service(["kube-proxy", "--config=/etc/node/kube-proxy.yaml"]),
    }
    if node.is_control:
        files |= {f"services/{name}": _service(command) for name, command in _control_plane(addresses).items()}
    return files


def _service(command: list[str]) -> str:
    return f"#!/bin/sh\nexec {shlex.join(command)}\n"


def _control_plane(addresses: layout.Addresses) -> dict[str, list[str]]:
    etcd_url = "http://127.0.0.1:2379"
    etcd = [
        "etcd",
        "--data-dir=/var/lib/etcd",
        f"--listen-client-urls={etcd_url}",
        f"--advertise-client-urls={etcd_url}",
    ]
    # A sandbox survives a killed etcd without fsync, and is twice as quick; only a power cut could cost it its state.
    etcd += ["--unsafe-no-fsync", "--auto-compaction-retention=1h", "--log-level=warn"]
    manager = ["kube-controller-manager", *_component_flags("kube-controller-manager")]
    manager += [
        f"--service-account-private-key-file={CONTROL_PKI}/sa.key",
        f"--root-ca-file={CONTROL_PKI}/ca.crt",
        f"--cluster-signing-cert-file={CONTROL_PKI}/ca.crt",
        f"--cluster-signing-key-file={CONTROL_PKI}/ca.key",
        "--use-service-account-credentials",
        f"--service-cluster-ip-range={layout.SERVICE_NETWORK}",
        # A dead node is seen after 8 seconds, not 40: people and tests wait for it.
        "--node-monitor-grace-period=8s",
        "--node-monitor-period=1s",
    ]
    return {
        "10-etcd": etcd,
        "20-kube-apiserver": _api_server(addresses, etcd_url),
        "30-kube-controller-manager": manager,
        "40-kube-scheduler": ["kube-scheduler", *_component_flags("kube-scheduler")],
    }


def _component_flags(component: str) -> list[str]:
    kubeconfig = f"{CONTROL_PKI}/{component}.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
    ]


def _api_server(addresses: layout.Addresses, etcd_url: str) -> list[str]:
    return [
        "kube-apiserver",
        f"--etcd-servers={etcd_url}",
        f"--advertise-address={addresses.node(layout.CONTROL)}",
        f"--secure-port={layout.API_PORT}",
        f"--client-ca-file={CONTROL_PKI}/ca.crt",
        f"--tls-cert-file={CONTROL_PKI}/apiserver.crt",
        f"--tls-private-key-file={CONTROL_PKI}/apiserver.key",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-certificate-authority={CONTROL_PKI}/ca.crt",
        f"--kubelet-client-certificate={CONTROL_PKI}/kubelet-client.crt",
        f"--kubelet-client-key={CONTROL_PKI}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer=https://kubernetes.default.svc.{layout.CLUSTER_DOMAIN}",
        f"--service-account-key-file={CONTROL_PKI}/sa.pub",
        f"--service-account-signing-key-file={CONTROL_PKI}/sa.key",
        f"--service-cluster-ip-range={layout.SERVICE_NETWORK}",
        "--allow-privileged=true",
        "--enable-aggregator-routing=true",
        "--default-not-ready-toleration-seconds=30",
        "--default-unreachable-toleration-seconds=30",
    ]


def _kubelet_command(node: layout.Node, addresses: layout.Addresses) -> list[str]:
    labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
    return [
        "kubelet",
        "--config=/etc/node/kubelet.yaml",
        f"--kubeconfig={PKI}/kubelet.kubeconfig",
        f"--hostname-override={node.name}",
        f"--node-ip={addresses.node(node)}",
        *([f"--node-labels={labels}"] if labels else []),
    ]


def _kubelet(memory_mib: int) -> dict[str, object]:
    reserved_mib = memory_mib - memory_mib // MEMORY_SHARE
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "enforceNodeAllocatable": ["pods"],
        "failSwapOn": False,
        "containerRuntimeEndpoint": KUBELET_SOCKET,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{PKI}/kubelet.crt",
        "tlsPrivateKeyFile": f"{PKI}/kubelet.key",
        "clusterDNS": [layout.DNS_SERVICE_IP],
        "clusterDomain": layout.CLUSTER_DOMAIN,
        "resolvConf": "/etc/node/resolv.conf",
        "systemReserved": {"cpu": SYSTEM_RESERVED_CPU, "memory": f"{reserved_mib}Mi"},
        # The container's own file system says nothing useful about space, so pressure on it is not acted on.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "localStorageCapacityIsolation": False,
        "nodeStatusUpdateFrequency": "1s",
        "nodeLeaseDurationSeconds": 4,
        "shutdownGracePeriod": "0s",
    }


def _kube_proxy(node: layout.Node) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": layout.POD_NETWORK,
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": f"{PKI}/kube-proxy.kubeconfig"},
        # Connection tracking limits are the host's to set.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _containerd(pause_image: str) -> str:
    return f"""version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause_image}"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "/etc/node/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
  # A node in a container may not lower its processes' out-of-memory score.
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "/etc/node/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def _registry_hosts(addresses: layout.Addresses) -> str:
    url = f"http://{addresses.registry}:5000"
    return f'server = "{url}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'


def _cni(node: layout.Node) -> str:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni-addresses",  # on tmpfs: no pod survives a restart of the node, nor must its address
    }
    plugins = [
        {"type": "ptp", "ipMasq": False, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}, indent=1)
