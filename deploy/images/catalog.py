"""Which images exist, what goes into each, and the tag that follows from it.

An image's tag is a hash of its inputs and of its parent's tag, so an image whose inputs did not change is never built
twice, and a deployment that names a tag names exactly one content.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD_DIR = ROOT / ".build"
LOCAL_PREFIX = "slurm-bridge"

KUBERNETES_VERSION = "v1.37.2"
COREDNS_VERSION = "v1.15.0"
PYSLURM_VERSION = "25.11.2"

IGNORED_NAMES = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache"})


@dataclass(frozen=True)
class Program:
    """A program built from the Go module proxy: `script VERSION OUT` writes its binaries."""

    name: str
    version: str
    binaries: tuple[str, ...]

    @property
    def script(self) -> Path:
        """Where the recipe is."""
        return ROOT / "deploy" / "images" / "go" / f"{self.name}.sh"

    @property
    def directory(self) -> Path:
        """Where the binaries are kept between runs; the recipe's hash is part of it."""
        recipe = [self.script, *self.script.parent.glob(f"{self.name}.go")]
        return BUILD_DIR / "bin" / f"{self.name}-{self.version}-{digest_files(recipe)[:8]}"


@dataclass(frozen=True)
class Image:
    """One image: its parent, the files of the repository it is made of, and what is made outside of its Dockerfile."""

    name: str
    parent: str | None = "base"
    inputs: tuple[str, ...] = ()
    program: Program | None = None
    wheels: tuple[str, ...] = ()
    builder: str | None = None
    internal: bool = False

    @property
    def directory(self) -> Path:
        """Its folder in the repository, which is an input of itself."""
        return ROOT / "deploy" / "images" / self.name.replace("-", "_")

    @property
    def local(self) -> str:
        """The full name under which it is known to the local docker daemon."""
        return f"{LOCAL_PREFIX}/{self.name}:{tag(self.name)}"


KUBERNETES = Program(
    "kubernetes",
    KUBERNETES_VERSION,
    ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"),
)
PACKAGE_INPUTS = ("pyproject.toml", "requirements.lock", "LICENSE", "bridge", "slurm-conf")

IMAGES = {
    image.name: image
    for image in (
        Image("base", parent=None),
        Image("slurm", inputs=("slurm-conf/bin",)),
        Image("bridge", parent="slurm", inputs=PACKAGE_INPUTS, wheels=("locked", "pyslurm"), builder="wheel-builder"),
        Image(
            "bridge-test", parent="bridge", inputs=("requirements.lock",), wheels=("locked",), builder="wheel-builder"
        ),
        Image("kube", program=KUBERNETES),
        Image("fake-gpu"),
        Image("coredns", parent=None, program=Program("coredns", COREDNS_VERSION, ("coredns",))),
        Image("pause", parent=None, program=Program("pause", "v1", ("pause",))),
        Image("registry"),
        Image("postgres"),
        Image("go-builder", internal=True),
        Image("wheel-builder", internal=True),
    )
}
PUBLIC = tuple(name for name, image in IMAGES.items() if not image.internal)


@cache
def tag(name: str) -> str:
    """Return the content hash that the image of this name has as its tag."""
    image = IMAGES[name]
    digest = hashlib.sha256(digest_files(files(image)).encode())
    digest.update((tag(image.parent) if image.parent else "").encode())
    digest.update((tag(image.builder) if image.builder else "").encode())
    digest.update((image.program.directory.name if image.program else "").encode())
    digest.update((PYSLURM_VERSION if "pyslurm" in image.wheels else "").encode())
    digest.update((os.environ.get("BASE_IMAGE", "") if image.name == "base" else "").encode())
    return digest.hexdigest()[:12]


def files(image: Image) -> list[Path]:
    """Return every file of the repository that the image is made of, in a stable order."""
    tops = [image.directory, *(ROOT / relative for relative in image.inputs)]
    return sorted({file for top in tops if top.exists() for file in _walk(top)})


def digest_files(paths: list[Path]) -> str:
    """Hash names, executable bits and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        executable = "x" if os.access(path, os.X_OK) else "-"
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(ROOT)} {executable} {content}\n".encode())
    return digest.hexdigest()


def _walk(top: Path) -> Iterator[Path]:
    if top.is_file():
        yield top
        return
    for path in top.rglob("*"):
        if path.is_file() and not IGNORED_NAMES.intersection(path.parts):
            yield path
