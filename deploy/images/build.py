"""Builds the images, each once: `build.py [--push --prefix PREFIX] [--print-tag NAME] [NAME ...]`.

Needs Python and Docker only (bootstrap.sh beside it installs the rest). Images whose inputs did not change are skipped.
"""

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from deploy.images import artifacts, catalog, engine, publication


def main() -> int:
    """Build what was asked for; the exit code is 1 when a step failed."""
    arguments = _arguments()
    if arguments.print_tag:
        prefix = arguments.prefix or catalog.LOCAL_PREFIX
        print(f"{prefix}/{arguments.print_tag}:{catalog.tag(arguments.print_tag)}")
        return 0
    names = arguments.names or list(catalog.PUBLIC)
    try:
        Build().all(names)
        if arguments.push:
            publication.push(names, arguments.prefix)
    except engine.StepError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(catalog.IMAGES)}; default: all")
    parser.add_argument("--prefix", help="registry and folder to tag for, as localhost:5000/slurm-bridge")
    parser.add_argument("--push", action="store_true", help="push to PREFIX what it does not have yet")
    parser.add_argument(
        "--print-tag", metavar="NAME", choices=catalog.IMAGES, help="print the image's name and tag only"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in catalog.IMAGES]
    if unknown:
        parser.error(f"no image is called {unknown[0]!r}: choose from {', '.join(catalog.IMAGES)}")
    if arguments.push and not arguments.prefix:
        parser.error("--push needs --prefix: say which registry to push to")
    return arguments


class Build:
    """One run: each image and each artifact is made at most once, parents first, the independent ones side by side."""

    def __init__(self) -> None:
        self._futures: dict[str, Future[None]] = {}
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(max_workers=2 * len(catalog.IMAGES))

    def all(self, names: list[str]) -> None:
        """Build these images and what they stand on; a failure is raised once the steps under way have ended."""
        with self._pool:
            for future in [self._start(name) for name in names]:
                future.result()

    def _start(self, name: str) -> Future[None]:
        return self._once(f"image {name}", lambda: self._build(catalog.IMAGES[name]))

    def _once(self, key: str, work: Callable[[], None]) -> Future[None]:
        with self._lock:
            if key not in self._futures:
                self._futures[key] = self._pool.submit(work)
            return self._futures[key]

    def _build(self, image: catalog.Image) -> None:
        if not engine.image_exists(image.local):
            needed = [self._start(name) for name in (image.parent, image.builder) if name]
            made = self._artifacts(image)
            for future in needed:
                future.result()
            with engine.exclusively(f"image-{image.name}"):
                if not engine.image_exists(image.local):
                    with engine.step(f"image {image.name}"):
                        _assemble(image, made)
        engine.run(["docker", "tag", image.local, f"{catalog.LOCAL_PREFIX}/{image.name}:dev"], image.name)

    def _artifacts(self, image: catalog.Image) -> list[tuple[Path, str]]:
        """Make what the image takes from outside of its Dockerfile, as (file, name in the build context)."""
        made: list[tuple[Path, str]] = []
        if image.program:
            folder = self._go(image.program)
            made += [(folder / binary, f"bin/{binary}") for binary in image.program.binaries]
        for kind in image.wheels:
            self._start("wheel-builder").result()
            made += [(wheel, f"wheels/{wheel.name}") for wheel in sorted(self._wheels(kind).glob("*.whl"))]
        return made

    def _go(self, program: catalog.Program) -> Path:
        if not artifacts.is_built(program) and not artifacts.host_has_go():
            self._start("go-builder").result()
        if artifacts.is_built(program):
            return program.directory
        with engine.step(f"go {program.name} {program.version}"):
            return artifacts.go_program(program)

    def _wheels(self, kind: str) -> Path:
        def make() -> None:
            artifacts.wheels(kind)

        self._once(f"wheels {kind}", make).result()
        return artifacts.wheels(kind)


def _assemble(image: catalog.Image, made: list[tuple[Path, str]]) -> None:
    parent = catalog.IMAGES[image.parent].local if image.parent else ""
    if image.name == "base":
        parent = artifacts.base_parent()
    context = catalog.BUILD_DIR / "contexts" / f"{image.name}.tar"
    sources = [(path, str(path.relative_to(catalog.ROOT))) for path in catalog.files(image)]
    engine.write_context(context, [*sources, *made])
    if catalog.tag.__wrapped__(image.name) != catalog.tag(image.name):
        raise engine.StepError(f"{image.name}: its files changed while it was being built; run this again")
    command = ["docker", "build", "--network", "host", "--label", f"slurmbridge.dev/image={image.name}"]
    for key, value in (("PARENT", parent), ("BUILDER", catalog.IMAGES[image.builder].local if image.builder else "")):
        command += ["--build-arg", f"{key}={value}"] if value else []
    dockerfile = image.directory.relative_to(catalog.ROOT) / "Dockerfile"
    engine.run([*command, "--file", str(dockerfile), "--tag", image.local, "-"], image.name, stdin=context)
    context.unlink()


if __name__ == "__main__":
    sys.exit(main())
