"""What is made outside of a Dockerfile: the Debian file system, Go programs and Python wheels.

They need the network and the host's CA bundle, which must not stay behind in an image; so they are made on the host
or in a throw-away container, kept under .build, and enter the image's build context as files.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from deploy.images import catalog, engine

GO_AT_LEAST = (1, 26)
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
# libslurm 26.05 renamed one function, and one error number that pyslurm names is gone.
PYSLURM_CFLAGS = (
    "-DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf -DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=2078"
)


def base_parent() -> str:
    """Return the image that `base` is built from: BASE_IMAGE where one can be pulled, else our own file system."""
    if os.environ.get("BASE_IMAGE"):
        return os.environ["BASE_IMAGE"]
    script = catalog.IMAGES["base"].directory / "rootfs.sh"
    name = f"{catalog.LOCAL_PREFIX}/rootfs:{catalog.digest_files([script])[:12]}"
    if not engine.image_exists(name):
        target = catalog.BUILD_DIR / "rootfs.tar"
        engine.run(["sh", str(script), str(target)], "base")
        engine.run(["docker", "import", str(target), name], "base")
        target.unlink()
    return name


def go_program(program: catalog.Program) -> Path:
    """Return the folder of the program's binaries, building them if they are not there yet."""
    with engine.exclusively(f"go-{program.name}"):
        if not is_built(program):
            _build_program(program)
    return program.directory


def _build_program(program: catalog.Program) -> None:
    target = program.directory
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    lock = engine.lock_file("go-compiler")
    if host_has_go():
        command = ["env", f"GO_BUILD_LOCK={lock}", "sh", str(program.script), program.version, str(partial)]
        engine.run(command, program.name)
    else:
        _build_in_container(program, partial, lock)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def is_built(program: catalog.Program) -> bool:
    """Whether an earlier run left all of the program's binaries."""
    return all((program.directory / binary).exists() for binary in program.binaries)


def host_has_go() -> bool:
    """Whether the host's own Go compiler is new enough; otherwise one in a container does the work."""
    if not shutil.which("go"):
        return False
    answer = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    return tuple(int(number) for number in re.findall(r"\d+", answer)[:2]) >= GO_AT_LEAST


def _build_in_container(program: catalog.Program, target: Path, lock: Path) -> None:
    scripts = program.script.parent
    cache = catalog.BUILD_DIR / "go-cache"
    cache.mkdir(parents=True, exist_ok=True)
    mounts = [f"{scripts}:/recipes:ro", f"{target}:/out", f"{cache}:/cache", f"{lock.parent}:/locks"]
    environment = {
        "GOPATH": "/cache/path",
        "GOCACHE": "/cache/build",
        "GOPROXY": os.environ.get("GOPROXY", ""),
        "GO_BUILD_LOCK": f"/locks/{lock.name}",
    }
    command = ["sh", f"/recipes/{program.script.name}", program.version, "/out"]
    _run_in_builder("go-builder", mounts, environment, command, program.name)


def wheels(kind: str) -> Path:
    """Return a folder of wheels for the image's Python: `locked` (all of requirements.lock) or `pyslurm`."""
    with engine.exclusively(f"wheels-{kind}"):
        return _pyslurm_wheel() if kind == "pyslurm" else _locked_wheels()


def _locked_wheels() -> Path:
    lock = catalog.ROOT / "requirements.lock"
    target = _wheel_folder(f"locked-{catalog.digest_files([lock])[:12]}")
    if not (target / ".complete").exists():
        download = ["pip", "download", "--require-hashes", "--only-binary", ":all:", "--dest", "/out", "-r", "/lock"]
        with engine.step("wheels of requirements.lock"):
            _run_in_builder("wheel-builder", [f"{target}:/out", f"{lock}:/lock:ro"], {}, download, "wheels")
        (target / ".complete").touch()
    return target


def _pyslurm_wheel() -> Path:
    target = _wheel_folder(f"pyslurm-{catalog.PYSLURM_VERSION}-{catalog.tag('wheel-builder')}")
    if not (target / ".complete").exists():
        script = catalog.IMAGES["wheel-builder"].directory / "pyslurm.sh"
        environment = {"CFLAGS": PYSLURM_CFLAGS}
        command = ["sh", "/recipe.sh", catalog.PYSLURM_VERSION, "/out"]
        mounts = [f"{target}:/out", f"{script}:/recipe.sh:ro"]
        with engine.step(f"wheel of pyslurm {catalog.PYSLURM_VERSION}"):
            _run_in_builder("wheel-builder", mounts, environment, command, "pyslurm")
        (target / ".complete").touch()
    return target


def _wheel_folder(name: str) -> Path:
    folder = catalog.BUILD_DIR / "wheels" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run_in_builder(
    builder: str, mounts: list[str], environment: dict[str, str], command: list[str], log_name: str
) -> None:
    image = catalog.IMAGES[builder].local
    ca = {"PIP_CERT": str(CA_BUNDLE), "SSL_CERT_FILE": str(CA_BUNDLE)} if CA_BUNDLE.exists() else {}
    volumes = [*mounts, *([f"{CA_BUNDLE}:{CA_BUNDLE}:ro"] if CA_BUNDLE.exists() else [])]
    arguments = ["docker", "run", "--rm", "--network", "host"]
    for volume in volumes:
        arguments += ["--volume", volume]
    for key, value in {**ca, **environment}.items():
        arguments += ["--env", f"{key}={value}"]
    engine.run([*arguments, image, *command], log_name)
