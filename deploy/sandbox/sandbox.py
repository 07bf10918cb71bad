"""A whole GPU cluster on one machine, each node a Docker container: `sandbox.py up | down | status | exec | gpus`.

`up` may be run at any time: it makes what is missing, starts what is stopped and ends when all of it was seen to work.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from deploy.images import catalog
from deploy.sandbox import cluster, containers, engine, layout, pki

SYSTEM_IMAGES = ("kube", "registry", "pause", "coredns", "fake-gpu", "slurm")
# The nodes need no bridge, but `make deploy` does next: its wheels are fetched and built while Go compiles.
BUILT_IMAGES = (*SYSTEM_IMAGES, "bridge")
PUSHED_IMAGES = ("pause", "coredns", "fake-gpu", "slurm")


def main() -> int:
    """Do what was asked; the exit code is 1 when the sandbox is not as it should be."""
    arguments = _arguments()
    try:
        return int(arguments.action(arguments) or 0)
    except engine.SandboxError as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verbs.add_parser("up", help="build, start and prove the sandbox").set_defaults(action=up)
    verbs.add_parser("down", help="remove all of it; images and build caches stay").set_defaults(action=down)
    verbs.add_parser("status", help="show containers and nodes").set_defaults(action=status)
    execute = verbs.add_parser("exec", help="run a command in a node's container")
    execute.add_argument("node", choices=[node.name for node in layout.NODES])
    execute.add_argument("command", nargs=argparse.REMAINDER)
    execute.set_defaults(action=execute_in_node)
    gpus = verbs.add_parser("gpus", help="change a node's fake GPUs: pull a card, or break one")
    gpus.add_argument("node", choices=[node.name for node in layout.NODES if node.gpus])
    gpus.add_argument("--count", type=int, help="how many are installed (default: as at the start)")
    gpus.add_argument("--unhealthy", type=int, nargs="*", default=[], metavar="N", help="numbers of the broken ones")
    gpus.set_defaults(action=change_gpus)
    return parser.parse_args()


def up(_arguments: argparse.Namespace) -> None:
    """Build, start and prove the sandbox."""
    started = time.monotonic()
    _checked(["sh", str(layout.ROOT / "deploy" / "images" / "bootstrap.sh")])
    containers.refuse_strangers()
    _build([*BUILT_IMAGES])
    with engine.step("network, certificates, volumes"):
        addresses = containers.network()
        pki.ensure(addresses)
        containers.shared_volume()
        _kubectl_binary()
        layout.ENV_FILE.write_text(engine.environment_file())
    with engine.step("registry"):
        containers.registry(addresses)
    _build(["--push", "--prefix", layout.IMAGE_PREFIX, *PUSHED_IMAGES])
    with engine.step("node containers"):
        for node in layout.NODES:
            containers.node(node, addresses)
    cluster.bring_up()
    print(f"sandbox: up in {time.monotonic() - started:.0f} s; to use it: . {layout.ENV_FILE.relative_to(layout.ROOT)}")


def _build(arguments: list[str]) -> None:
    _checked([sys.executable, str(layout.ROOT / "deploy" / "images" / "build.py"), *arguments])


def _checked(command: list[str]) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise engine.SandboxError(f"`{Path(command[1]).name}` did not succeed; its own message is above")


def _kubectl_binary() -> None:
    """Take kubectl out of the nodes' image, so that the host needs none of its own."""
    stamp = layout.BIN_DIR / ".kubectl-from"
    if layout.KUBECTL.exists() and stamp.exists() and stamp.read_text() == catalog.tag("kube"):
        return
    layout.BIN_DIR.mkdir(parents=True, exist_ok=True)
    container = engine.docker("create", catalog.IMAGES["kube"].local).strip()
    try:
        engine.docker("cp", f"{container}:/usr/local/bin/kubectl", str(layout.KUBECTL))
    finally:
        engine.docker("rm", container)
    stamp.write_text(catalog.tag("kube"))


def down(_arguments: argparse.Namespace) -> None:
    """Remove containers, volumes, network and keys."""
    with engine.step("containers, volumes, network removed"):
        containers.remove_all()
    shutil.rmtree(layout.STATE_DIR, ignore_errors=True)
    print("sandbox: gone; images and build caches stay for the next `up`")


def status(_arguments: argparse.Namespace) -> int:
    """Show containers and nodes."""
    states = containers.states()
    print("\n".join(states) or "sandbox: there is none; make one with `up`")
    if not states:
        return 1
    print(engine.kubectl("get", "nodes", "-o", "wide"), end="")
    return 0


def execute_in_node(arguments: argparse.Namespace) -> int:
    """Run a command in a node's container, with this terminal."""
    terminal = ["--tty"] if sys.stdin.isatty() else []
    command = arguments.command or ["bash"]
    return subprocess.run(
        ["docker", "exec", "--interactive", *terminal, f"sbx-{arguments.node}", *command], check=False
    ).returncode


def change_gpus(arguments: argparse.Namespace) -> None:
    """Write what is installed in a node; the device plugin tells the kubelet within a second."""
    node = next(node for node in layout.NODES if node.name == arguments.node)
    count = node.gpus if arguments.count is None else arguments.count
    state = json.dumps({"count": count, "unhealthy": arguments.unhealthy})
    # Renamed into place: the plugin must not read half of it.
    script = 'echo "$1" > /var/lib/fake-gpu/new && mv /var/lib/fake-gpu/new /var/lib/fake-gpu/state.json'
    engine.docker("exec", node.container, "sh", "-c", script, "sh", state)
    print(f"{node.name}: {state}")


if __name__ == "__main__":
    sys.exit(main())
