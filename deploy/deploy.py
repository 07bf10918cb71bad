"""Deploys the bridge to the current kubectl context, checks what it needs, or takes it out.

    deploy.py check
    deploy.py deploy --image-prefix REGISTRY/PATH [--overlay base|sandbox|FOLDER]
    deploy.py undeploy [--purge]

`deploy` can be run again at any time: images are content-addressed, objects are applied on the server's side.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: `deploy` is the package, not this file
from deploy import overlay, preflight, removal, waiting  # noqa: E402
from deploy.images import catalog  # noqa: E402
from deploy.kubectl import DeployError, Kubectl  # noqa: E402

IMAGES = ("slurm", "bridge")


def main() -> int:
    """Carry out one command; the exit code is 1 when it could not be done."""
    options = _options()
    kubectl = Kubectl(options.context)
    commands: dict[str, Callable[[Kubectl, argparse.Namespace], None]] = {
        "check": lambda kubectl, _options: _check(kubectl),
        "deploy": _deploy,
        "undeploy": _undeploy,
    }
    try:
        commands[options.command](kubectl, options)
    except DeployError as error:
        print(f"deploy: {error}", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "deploy", "undeploy"))
    parser.add_argument("--context", default="", help="kubectl context; default: the current one")
    parser.add_argument("--image-prefix", default="", help="where images are pushed to and pulled from")
    parser.add_argument("--overlay", default="base", help="a folder below deploy/manifests, or a path of your own")
    parser.add_argument("--timeout", type=int, default=300, help="seconds to wait for each rollout")
    parser.add_argument("--purge", action="store_true", help="undeploy: also remove what runs, and the ledger")
    return parser.parse_args()


def _check(kubectl: Kubectl) -> None:
    findings = preflight.check(kubectl)
    for finding in findings:
        print(f"  {'ok' if finding.ok else 'NO'}  {finding.text}")
    missing = sum(not finding.ok for finding in findings)
    if missing:
        raise DeployError(f"{missing} of {len(findings)} checks failed; nothing was changed")


def _deploy(kubectl: Kubectl, options: argparse.Namespace) -> None:
    if not options.image_prefix:
        raise DeployError(
            "--image-prefix is missing; name the registry that the cluster pulls from, as in host:5000/path"
        )
    folder = overlay.directory(options.overlay)
    _step("checking the cluster", lambda: _check(kubectl))
    images = _images(options.image_prefix)
    _step("images", lambda: _push(options.image_prefix))
    if _images(options.image_prefix) != images:
        raise DeployError("files of the images changed while they were being built; run this again")
    _step("custom resource definitions", lambda: _definitions(kubectl))
    _step("admission policies", lambda: _quiet(kubectl.apply(overlay.ROOT / "deploy" / "policies")))
    generated = overlay.generate(folder, images)
    _step(f"manifests ({folder.name})", lambda: _quiet(kubectl.apply(generated)))
    _step("the bridge", lambda: waiting.rollout(kubectl, "slurm-bridge", "slurm-bridge", options.timeout))
    for document in overlay.rendered(kubectl, generated):
        if document["kind"] == "SlurmCluster":
            meta = document["metadata"]
            ready = partial(waiting.cluster, kubectl, meta["namespace"], meta["name"], options.timeout)
            _step(f"Slurm cluster {meta['namespace']}/{meta['name']}", ready)
    print("deployed; try: kubectl get teams,nodesets -A")


def _undeploy(kubectl: Kubectl, options: argparse.Namespace) -> None:
    removal.undeploy(kubectl)
    if options.purge:
        removal.purge(kubectl)


def _images(prefix: str) -> overlay.Images:
    catalog.tag.cache_clear()
    bridge, slurm = (f"{prefix}/{name}:{catalog.tag(name)}" for name in ("bridge", "slurm"))
    return overlay.Images(bridge=bridge, slurm=slurm)


def _push(prefix: str) -> None:
    build = overlay.ROOT / "deploy" / "images" / "build.py"
    done = subprocess.run([sys.executable, str(build), "--push", "--prefix", prefix, *IMAGES], check=False)
    if done.returncode != 0:
        raise DeployError("the images could not be built or pushed; what failed stands above")


def _definitions(kubectl: Kubectl) -> None:
    _quiet(kubectl.apply(overlay.ROOT / "crds"))
    names = [f"crd/{kind}.slurmbridge.dev" for kind in removal.KINDS]
    kubectl.run("wait", "--for=condition=Established", "--timeout=60s", *names)


def _quiet(output: str) -> None:
    """Print how many objects were applied, not one line for each."""
    print(f"  {len(output.splitlines())} objects applied")


def _step(title: str, act: Callable[[], None]) -> None:
    print(f"deploy: {title}", flush=True)
    began = time.monotonic()
    act()
    print(f"  done in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
