"""An overlay with this checkout's images set: a generated kustomization that kubectl applies as it stands."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.kubectl import DeployError, Kubectl

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = ROOT / "deploy" / "manifests"
GENERATED = ROOT / ".build" / "deploy"
PLACEHOLDER = "slurm-bridge/bridge"  # in deploy/manifests/base/deployment.yaml


@dataclass(frozen=True)
class Images:
    """Full references, with content-hash tags."""

    bridge: str
    slurm: str


def directory(name: str) -> Path:
    """Return the folder of an overlay, by its name below deploy/manifests or by its path."""
    for candidate in (MANIFESTS / name, Path(name)):
        if (candidate / "kustomization.yaml").is_file():
            return candidate.resolve()
    known = ", ".join(sorted(path.parent.name for path in MANIFESTS.glob("*/kustomization.yaml")))
    raise DeployError(
        f"overlay {name!r} does not exist; choose from {known}, or name a folder with a kustomization.yaml"
    )


def generate(overlay: Path, images: Images) -> Path:
    """Write the kustomization that sets the images, and return its folder."""
    target = GENERATED / overlay.name
    target.mkdir(parents=True, exist_ok=True)
    (target / "kustomization.yaml").write_text(yaml.safe_dump(kustomization(overlay, target, images), sort_keys=False))
    return target


def kustomization(overlay: Path, target: Path, images: Images) -> dict[str, Any]:
    """Build the kustomization: the overlay, the controller's image, and the images that it gives to others."""
    name, _, tag = images.bridge.rpartition(":")
    environment = [
        {"name": "SBRIDGE_SLURM_IMAGE", "value": images.slurm},
        {"name": "SBRIDGE_LOGIN_IMAGE", "value": images.bridge},
    ]
    container = {"name": "bridge", "env": environment}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "slurm-bridge", "namespace": "slurm-bridge"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(overlay, target)],
        "images": [{"name": PLACEHOLDER, "newName": name, "newTag": tag}],
        "patches": [{"patch": yaml.safe_dump(patch, sort_keys=False)}],
    }


def rendered(kubectl: Kubectl, folder: Path) -> list[dict[str, Any]]:
    """Return every object of a kustomization."""
    text = kubectl.run("kustomize", str(folder))
    return [document for document in yaml.safe_load_all(text) if document]
