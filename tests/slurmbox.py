"""A real Slurm cluster for tests, in containers of our own image: slurmctld, workers with device files, a login node.

Containers get the capabilities that the pods get; only the workers also make their device files (MKNOD), which the
kubelet does for pods. People: alice (vision), bob (nlp), carol (vision and nlp), mallory (no team).
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Any, Final, Self

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the reaper's image comes from a registry

from docker.errors import NotFound
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

ROOT: Final = Path(__file__).resolve().parents[1]
SLURM_CONF: Final = ROOT / "slurm-conf"
BIN: Final = "/opt/slurm-bridge/bin"
CTL: Final = "slurmctld-0"
ADDRESS: Final = "slurmctld"
SERVICE: Final = "slurmctld.slurm.svc"  # the name that a SlurmCluster in namespace slurm would have

USERS: Final = {"alice": 2001, "bob": 2002, "carol": 2003, "mallory": 2004}
MEMBERS: Final = """\
return {
  flavors = {"a100", "h100"},
  default_flavor = "h100",
  accounts = {
    ["vision"] = { users = {["alice"] = true, ["carol"] = true}, ceilings = {["h100"] = 12} },
    ["nlp"] = { users = {["bob"] = true, ["carol"] = true}, ceilings = {["h100"] = 8, ["a100"] = 4} },
  },
}
"""

_RESET: Final = """
ids=$(squeue --noheader --format %A | sort -u)
[ -z "$ids" ] || scancel $ids
for node in $(sinfo --noheader --Node --states=drain --format %N); do scontrol update nodename=$node state=undrain; done
"""


class SlurmBox:
    """One cluster. `workers` maps a worker's name to (GPU type, GPUs)."""

    def __init__(self, folder: Path, workers: Mapping[str, tuple[str, int]]) -> None:
        self.folder = folder
        self._workers = dict(workers)
        self._suffix = uuid.uuid4().hex[:8]
        self._stack = contextlib.ExitStack()
        self.image = image("slurm")
        self.containers: dict[str, DockerContainer] = {}
        self._network = Network()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            self._write_files()
            self._stack.enter_context(self._network)
            undo.callback(self.close)
            self._start_controller()
            for name, (kind, gpus) in self._workers.items():
                self.start_worker(name, kind, gpus)
            self._start("login", "login-run", ["SETUID", "SETGID", "CHOWN", "KILL"], keys=True)
            self.wait("all workers are idle", lambda: self._idle() == len(self._workers), 60)
            self.wait("the login node works", lambda: self.run("login", "sinfo").returncode == 0, 30)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything."""
        self._stack.close()

    # --- doing things ------------------------------------------------------------------------------------------
    def run(self, where: str, *command: str, user: str = "root", text: str | None = None) -> "Done":
        """Run a command in a container; `text` is its standard input."""
        uid = USERS.get(user, 0)
        name = self.containers[where].get_wrapped_container().id
        home = "/root" if user == "root" else f"/home/{user}"
        line = ["docker", "exec", "-i", "-u", f"{uid}:{uid}", "-w", home, "-e", f"HOME={home}", "-e", f"USER={user}"]
        return subprocess.run(
            [*line, name, *command], input=text, capture_output=True, text=True, check=False, timeout=120
        )

    def ctl(self, *command: str) -> str:
        """Run a command on slurmctld's host as root; it must succeed."""
        done = self.run("slurmctld", *command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def sbatch(self, user: str, *options: str, script: str = "#!/bin/sh\nsleep 300\n") -> "Done":
        """Submit as a user; standard output is the JobId."""
        return self.run("login", "sbatch", "--parsable", *options, user=user, text=script)

    def submitted(self, user: str, *options: str, script: str = "#!/bin/sh\nsleep 300\n") -> str:
        """Submit as a user; it must succeed."""
        done = self.sbatch(user, *options, script=script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def field(self, job: str, name: str) -> str:
        """Return a field of `scontrol show job`."""
        words = self.ctl("scontrol", "--oneliner", "show", "job", job).split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))

    def wait(self, what: str, condition: Callable[[], bool], bound_s: float = 30) -> None:
        """Wait until a condition holds; say which one did not, with the daemons' last words."""
        deadline = time.monotonic() + bound_s
        while not condition():
            assert time.monotonic() < deadline, f"after {bound_s} s still not: {what}\n{self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        """Return the end of every container's log."""
        ends = []
        for name, container in self.containers.items():
            with contextlib.suppress(NotFound):
                log = container.get_wrapped_container().logs(tail=25).decode(errors="replace")
                ends.append(f"--- {name}\n{log}")
        return "\n".join(ends)

    def reset(self) -> None:
        """Cancel every job and lift every drain, so that the next test finds an idle cluster."""
        self.ctl("sh", "-c", _RESET)
        self.wait("all workers are idle", lambda: self._idle() == len(self._workers), 60)

    # --- parts -------------------------------------------------------------------------------------------------
    def start_worker(self, name: str, kind: str, gpus: int, *, devices: int | None = None) -> DockerContainer:
        """Start a worker that is to have `gpus` GPUs and was handed as many device files, or `devices`."""
        files = range(gpus if devices is None else devices)
        make = " && ".join(["true", *(f"mknod -m 666 /dev/nvidia{i} c 195 {i}" for i in files)])
        environment = {
            "SLURMCTLD_ENDPOINT": f"{ADDRESS}:6817",
            "WORKER_CPUS": str(2 * gpus or 2),
            "WORKER_MEMORY_MIB": "2048",
            "WORKER_GRES_TYPE": kind,
            "WORKER_GPUS": str(gpus),
            "WORKER_FEATURES": kind,
        }
        capabilities = ["SETUID", "SETGID", "CHOWN", "KILL", "MKNOD"]
        return self._start(name, f"sh -c '{make} && exec {BIN}/worker-run'", capabilities, keys=True, env=environment)

    def start_rest(self) -> None:
        """Start slurmrestd, as nobody and without the key, as in its pod."""
        self._start("rest", "restd-run", [], conf=True, scratch=True, user="65534:65534")

    def stop(self, name: str) -> None:
        """Remove a container."""
        self.containers.pop(name).get_wrapped_container().remove(force=True)

    def restart(self) -> None:
        """Stop slurmctld in good order and start it again on its state."""
        container = self.containers["slurmctld"].get_wrapped_container()
        container.stop(timeout=60)
        container.start()
        self.wait_for_slurmctld()

    def lose_state(self) -> None:
        """Start slurmctld on an empty state directory."""
        self._kill_and("rm -rf /var/spool/slurmctld/*")

    def keep_state(self) -> None:
        """Remember slurmctld's files as they are now."""
        self.ctl("sh", "-c", "rm -rf /kept && cp -a /var/spool/slurmctld /kept")

    def kill_back_to_kept_state(self) -> None:
        """Kill slurmctld hard, and let what it wrote since `keep_state` be lost."""
        self._kill_and("rm -rf /var/spool/slurmctld/* && cp -a /kept/. /var/spool/slurmctld/")

    def _kill_and(self, command: str) -> None:
        """Stop slurmctld on the spot, change its files, and kill it, so that it writes nothing more; start it again."""
        container = self.containers["slurmctld"].get_wrapped_container()
        self.ctl("sh", "-c", f"kill -STOP $(pidof slurmctld) && {command}")
        container.kill("SIGKILL")
        container.wait(timeout=30)
        container.start()
        self.wait_for_slurmctld()

    def wait_for_slurmctld(self) -> None:
        """Wait until it answers."""
        self.wait("slurmctld answers", lambda: self.run("slurmctld", f"{BIN}/slurmctld-ready").returncode == 0, 60)

    def started(self, name: str) -> str:
        """Return when a container started."""
        container = self.containers[name].get_wrapped_container()
        container.reload()
        return str(container.attrs["State"]["StartedAt"])

    def address(self, name: str) -> str:
        """Return a container's address, as this host reaches it."""
        container = self.containers[name].get_wrapped_container()
        container.reload()
        networks = container.attrs["NetworkSettings"]["Networks"]
        return str(networks[self.network]["IPAddress"])

    def usable(self) -> list[str]:
        """Return the workers that are idle or in use."""
        listed = self.ctl("sinfo", "--noheader", "--Node", "--responding", "--states=idle,mixed,alloc", "--format=%N")
        return sorted(set(listed.split()))

    def refused(self) -> str:
        """Return why the last configuration was refused."""
        return str(self.run("slurmctld", "cat", "/run/slurm/config-refused").stdout)

    def configure(self, name: str, text: str) -> None:
        """Change a file of the mounted configuration, as a changed ConfigMap does."""
        new = self.folder / f".{name}.new"
        new.write_text(text)
        new.rename(self.folder / "conf" / name)

    def slurm_conf(self, **more: str) -> str:
        """Render the cluster's slurm.conf."""
        text = Template((SLURM_CONF / "slurm.conf").read_text()).substitute(
            cluster_name="box", slurmctld_host=CTL, slurmctld_address=ADDRESS
        )
        return text + "".join(f"{name}={value}\n" for name, value in more.items())

    def client_conf(self) -> Path:
        """Write slurm.conf with the key beside it, as the bridge does for libslurm; return the folder."""
        folder = self.folder / "client"
        folder.mkdir(exist_ok=True)
        (folder / "slurm.conf").write_text((self.folder / "conf" / "slurm.conf").read_text())
        key = folder / "slurm.key"
        key.write_bytes((self.folder / "keys" / "slurm.key").read_bytes())
        key.chmod(0o600)
        return folder

    @property
    def network(self) -> str:
        """Name of the network that all containers are in."""
        return str(self._network.name)

    def _idle(self) -> int:
        listed = self.run("slurmctld", "sinfo", "--noheader", "--Node", "--format", "%N %T").stdout.splitlines()
        return sum(1 for line in listed if line.split()[1] == "idle")

    def _write_files(self) -> None:
        for name in ("conf", "keys", "users", "home"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "conf" / "slurm.conf").write_text(self.slurm_conf())
        for name in ("gres.conf", "cgroup.conf", "topology.yaml", "job_submit.lua"):
            shutil.copy(SLURM_CONF / name, self.folder / "conf" / name)
        (self.folder / "conf" / "bridge-members.lua").write_text(MEMBERS)
        (self.folder / "keys" / "slurm.key").write_bytes(os.urandom(1024))
        (self.folder / "keys" / "jwt_hs256.key").write_bytes(os.urandom(32))
        people = [f"{name}:x:{uid}:{uid}:{name}:/home/{name}:/bin/bash\n" for name, uid in USERS.items()]
        groups = [f"{name}:x:{uid}:\n" for name, uid in USERS.items()]
        (self.folder / "users" / "passwd").write_text("".join(people))
        (self.folder / "users" / "group").write_text("".join(groups))

    def _start_controller(self) -> None:
        self._start("slurmctld", "slurmctld-run", ["CHOWN", "SETUID", "SETGID"], keys=True, conf=True, hostname=CTL)
        self.wait_for_slurmctld()

    def _start(
        self,
        name: str,
        command: str,
        capabilities: list[str],
        *,
        keys: bool = False,
        conf: bool = False,
        scratch: bool = False,
        hostname: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> DockerContainer:
        script = command if command.startswith("sh ") else f"{BIN}/{command}"
        container = DockerContainer(self.image)
        container.with_command(f"-g -- {script}")
        container.with_kwargs(
            hostname=hostname or name,
            entrypoint="/usr/bin/tini",
            cap_drop=["ALL"],
            cap_add=capabilities,
            security_opt=["no-new-privileges"],
            **options,
        )
        aliases = (ADDRESS, SERVICE) if name == "slurmctld" else (name,)
        container.with_network(self._network).with_network_aliases(*aliases)
        container.with_volume_mapping(str(self.folder / "users"), "/var/lib/extrausers", "ro")
        container.with_volume_mapping(str(self.folder / "home"), "/home", "rw")
        if keys:
            container.with_volume_mapping(str(self.folder / "keys"), "/keys", "ro")
        if conf:
            container.with_volume_mapping(str(self.folder / "conf"), "/conf", "ro")
        if scratch:  # an empty folder that anybody may write to, as an emptyDir is
            (self.folder / name).mkdir()
            (self.folder / name).chmod(0o777)
            container.with_volume_mapping(str(self.folder / name), "/etc/slurm", "rw")
        for key, value in (env or {"SLURMCTLD_ENDPOINT": f"{ADDRESS}:6817"}).items():
            container.with_env(key, value)
        container.start()
        self.containers[name] = container
        self._stack.callback(_remove, container)
        return container


Done = subprocess.CompletedProcess[str]


def image(name: str) -> str:
    """Return an image of this checkout's content, built when it is not there yet.

    BRIDGE_TEST_IMAGE=slurm-bridge/bridge-test:dev saves the building when only the mounted code changed.
    """
    given = os.environ.get(f"{name.upper().replace('-', '_')}_IMAGE")
    if given:
        return given
    build = [sys.executable, str(ROOT / "deploy" / "images" / "build.py")]
    printed = subprocess.run([*build, "--print-tag", name], capture_output=True, text=True, check=True).stdout.strip()
    there = subprocess.run(["docker", "image", "inspect", printed], capture_output=True, check=False)
    if there.returncode != 0:
        subprocess.run([*build, name], check=True, capture_output=True)
    return printed


def _remove(container: Any) -> None:
    with contextlib.suppress(NotFound):
        container.stop(force=True, delete_volume=True)
