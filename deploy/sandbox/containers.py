"""The sandbox's Docker objects: network, volumes, registry, nodes. Each is made when absent, started when not."""

import json
from pathlib import Path

from deploy.images import catalog
from deploy.sandbox import layout, node_files
from deploy.sandbox.engine import SandboxError, docker

# A kubelet needs nearly everything, yet `--privileged` fails on machines that lack CAP_SYS_RESOURCE.
NODE_RIGHTS = (
    "--cap-add=ALL",
    "--cap-drop=SYS_RESOURCE",
    "--device-cgroup-rule=a *:* rwm",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
    "--security-opt=systempaths=unconfined",
    "--cgroupns=private",
    "--tmpfs=/run",
    "--tmpfs=/tmp",
)
MIB = 1024 * 1024
GPU_STATE = "/var/lib/fake-gpu/state.json"


def refuse_strangers() -> None:
    """Refuse to build upon containers whose keys are not here: another checkout made them, or its folder is lost."""
    if states() and not layout.STATE_DIR.exists():
        raise SandboxError("containers of another sandbox are here without their keys: run `make sandbox-down` first")


def network() -> layout.Addresses:
    """Return the addresses of the sandbox's network, which is made on the first free subnet."""
    known = docker("network", "ls", "--quiet", "--filter", f"name=^{layout.NETWORK}$").split()
    if not known:
        subnet = _free_subnet()
        docker("network", "create", "--label", layout.LABEL, "--subnet", subnet, layout.NETWORK)
        return layout.Addresses(subnet)
    found = json.loads(docker("network", "inspect", layout.NETWORK))
    return layout.Addresses(found[0]["IPAM"]["Config"][0]["Subnet"])


def _free_subnet() -> str:
    recorded = layout.STATE_DIR / "subnet"  # certificates carry addresses: a lost network must come back as it was
    candidates = [recorded.read_text()] if recorded.exists() else list(layout.SUBNETS)
    identifiers = docker("network", "ls", "--quiet").split()
    used = {
        config.get("Subnet")
        for found in json.loads(docker("network", "inspect", *identifiers))
        for config in found["IPAM"]["Config"] or ()
    }
    for subnet in candidates:
        if subnet not in used:
            layout.STATE_DIR.mkdir(parents=True, exist_ok=True)
            recorded.write_text(subnet)
            return subnet
    raise SandboxError(f"every subnet of the sandbox is in use by another Docker network ({', '.join(candidates)})")


def registry(addresses: layout.Addresses) -> None:
    """Run the registry that the nodes pull from; the host pushes to it on localhost:5000."""
    _volume("sbx-registry")
    _run(
        layout.REGISTRY,
        catalog.IMAGES["registry"].local,
        [
            f"--ip={addresses.registry}",
            "--publish=127.0.0.1:5000:5000",
            "--volume=sbx-registry:/var/lib/registry",
        ],
    )


def node(which: layout.Node, addresses: layout.Addresses) -> None:
    """Run one node with its rendered configuration."""
    changed = _write_files(which, addresses)
    volumes = {"containerd": "/var/lib/containerd", "kubelet": "/var/lib/kubelet"}
    if which.is_control:
        volumes["etcd"] = "/var/lib/etcd"
    mounts = [f"--volume={_folder(which)}:/etc/node:ro", f"--volume={layout.SHARED_VOLUME}:/shared"]
    mounts.append(f"--volume={layout.PKI_DIR / which.name}:{node_files.PKI}:ro")
    if which.is_control:
        mounts.append(f"--volume={layout.PKI_DIR / 'control-plane'}:{node_files.CONTROL_PKI}:ro")
    if Path("/lib/modules").exists():
        mounts.append("--volume=/lib/modules:/lib/modules:ro")
    for suffix, path in volumes.items():
        _volume(f"{which.container}-{suffix}")
        mounts.append(f"--volume={which.container}-{suffix}:{path}")
    routes = " ".join(f"{peer.pod_subnet}={addresses.node(peer)}" for peer in layout.NODES if peer != which)
    environment = {"ROUTES": routes, "BINDS": "/shared/home=/home", "POD_NETWORK": layout.POD_NETWORK}
    variables = [f"--env={key}={value}" for key, value in environment.items()]
    ip = f"--ip={addresses.node(which)}"
    was_running = _run(which.container, catalog.IMAGES["kube"].local, [*NODE_RIGHTS, ip, *mounts, *variables])
    if was_running and changed:
        docker("restart", which.container)
    if which.gpus:
        _install_gpus(which)


def _folder(which: layout.Node) -> Path:
    return layout.STATE_DIR / "nodes" / which.name


def _write_files(which: layout.Node, addresses: layout.Addresses) -> bool:
    """Write the node's files; return whether any is another than before."""
    pause = f"{layout.IMAGE_PREFIX}/pause:{catalog.tag('pause')}"
    folder, changed = _folder(which), False
    for mount_point in ("pki", "control-pki"):
        (folder / mount_point).mkdir(parents=True, exist_ok=True)
    for name, text in node_files.render(which, addresses, pause, _memory_mib()).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed = True
        path.chmod(0o755 if name.startswith("services/") else 0o644)
    return changed


def _memory_mib() -> int:
    return int(docker("info", "--format", "{{.MemTotal}}")) // MIB


def _install_gpus(which: layout.Node) -> None:
    """Put in the node's fake GPUs, unless somebody already changed what is installed."""
    state = json.dumps({"count": which.gpus, "unhealthy": []})
    script = 'mkdir -p /var/lib/fake-gpu; [ -e "$1" ] || echo "$2" > "$1"'
    docker("exec", which.container, "sh", "-c", script, "sh", GPU_STATE, state)


def healthy_gpus(which: layout.Node) -> int:
    """Return how many of the GPUs that are installed in a node are healthy."""
    state = json.loads(docker("exec", which.container, "cat", GPU_STATE))
    return int(state["count"]) - len({index for index in state["unhealthy"] if index < state["count"]})


def shared_volume() -> None:
    """Make the volume that every node sees, with the home directories and the persistent volumes in it."""
    _volume(layout.SHARED_VOLUME)
    commands = ["mkdir -p /shared/home /shared/pv", "chmod 755 /shared/home"]
    commands += [f"install -d -m 700 -o {uid} -g {uid} /shared/home/{user}" for user, uid in layout.HOMES.items()]
    commands += [f"mkdir -p -m 777 /shared/pv/{number}" for number in range(1, layout.PERSISTENT_VOLUMES + 1)]
    mount = f"--volume={layout.SHARED_VOLUME}:/shared"
    image = catalog.IMAGES["kube"].local
    docker("run", "--rm", "--network=none", mount, "--entrypoint=sh", image, "-ec", "\n".join(commands))


def _volume(name: str) -> None:
    docker("volume", "create", "--label", layout.LABEL, name)  # an existing one stays as it is


def _run(name: str, image: str, options: list[str]) -> bool:
    """Make the container run; return whether it did already."""
    found = docker("ps", "--all", "--filter", f"name=^{name}$", "--format", "{{.Image}} {{.State}}").split()
    if found and found[0] != image:  # an older build: the state is on volumes, so the container can be replaced
        docker("rm", "--force", name)
        found = []
    if not found:
        common = ["--label", layout.LABEL, "--name", name, "--hostname", name, "--network", layout.NETWORK]
        docker("run", "--detach", *common, *options, image)
    elif found[1] != "running":
        docker("start", name)
    return bool(found) and found[1] == "running"


def remove_all() -> None:
    """Remove every container, volume and network of the sandbox, found by their label."""
    selector = ("--quiet", "--filter", f"label={layout.LABEL}")
    if containers := docker("ps", "--all", *selector).split():
        docker("rm", "--force", "--volumes", *containers)
    if volumes := docker("volume", "ls", *selector).split():
        docker("volume", "rm", *volumes)
    if networks := docker("network", "ls", *selector).split():
        docker("network", "rm", *networks)


def states() -> list[str]:
    """Return one line for each container of the sandbox."""
    shown = docker(
        "ps", "--all", "--filter", f"label={layout.LABEL}", "--format", "{{.Names}}\t{{.Status}}\t{{.Image}}"
    )
    return sorted(shown.splitlines())
