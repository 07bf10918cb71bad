"""The real controller between a real slurmctld with slurmds and a real kube-apiserver, each in containers.

The controller runs as its Deployment runs it (root without a capability, a read-only image), from a copy of this
checkout's code. It can be killed at any of its writes: `arm` names the site in a file that the process looks at.
"""

import contextlib
import json
import re
import shutil
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import jwt

from bridge import wellknown
from bridge.clock import SystemClock
from bridge.kube import port
from bridge.kube.port import Object
from bridge.ledger.journal import SqlLedger, open_ledger
from bridge.ledger.port import Entry
from bridge.workloads.model import Grant, WorkloadId
from tests.integration import setting
from tests.integration.kubelet import Kubelet
from tests.kubebox import KubeBox
from tests.slurmbox import ROOT, SlurmBox, image

WORKERS: Final = ("h100-g1", "h100-g2")
API_PORT: Final = 8080
BOUND_S: Final = 90.0
PAUSE_S: Final = 0.1  # most conditions ask a container, which costs as much


class BridgeBox:
    """One platform: two GPU nodes of 8, teams vision (alice) and nlp (bob), a controller that the test runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slurm = SlurmBox(folder / "slurm", {})
        self._stack = contextlib.ExitStack()
        self._name = f"bridge-{folder.name}-{time.monotonic_ns()}"
        self.kube: KubeBox
        self.kubelet: Kubelet

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self._stack.close)
            self._stack.enter_context(self.slurm)
            self.kube = self._stack.enter_context(KubeBox(network=self.slurm._network))
            setting.apply(self.kube, self.slurm.folder / "keys")
            self.kubelet = Kubelet(self.kube.gateway(), self.slurm, setting.GPUS)
            self._stack.callback(self.kubelet.stop)
            self.kubelet.start()
            self._create_controllers()
            self.start()
            self.wait_calm()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- the controller ----------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the controller (again), with its ledger as it was left."""
        docker("start", self._name)

    def stop(self) -> None:
        """Stop it as a deleted pod is: TERM."""
        docker("stop", "--time", "20", self._name)

    def kill(self) -> None:
        """Kill -9, unless it is dead."""
        subprocess.run(["docker", "kill", self._name], capture_output=True, check=False, timeout=60)

    @property
    def running(self) -> bool:
        """Return whether its process lives."""
        return self._inspect("{{.State.Running}}") == "true"

    def ready(self) -> bool:
        """Return whether a cycle of this process has seen both systems."""
        address = self._inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
        try:
            with urllib.request.urlopen(f"http://{address}:{API_PORT}/readyz", timeout=5) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def arm(self, site: str) -> None:
        """Have the controller kill itself at this site ("" for none)."""
        (self.folder / "fault" / "armed").write_text(site)

    def sites(self) -> list[str]:
        """Return every write site it has ever named, in order."""
        return re.findall(r"^fault-site (\S+)$", self.log(), re.MULTILINE)

    def log(self, lines: str = "all") -> str:
        """Return what the controller said."""
        done = subprocess.run(
            ["docker", "logs", "--tail", lines, self._name], capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def ledger(self) -> Iterator[SqlLedger]:
        """Open its ledger beside it, to read."""
        opened = open_ledger(f"sqlite:///{self.folder / 'ledger' / 'ledger.db'}", SystemClock())
        try:
            yield opened
        finally:
            opened.close()

    def call(self, method: str, path: str, user: str, body: Object | None = None) -> Any:
        """Call its API with a Slurm token of a user."""
        key = (self.slurm.folder / "keys" / "jwt_hs256.key").read_bytes()
        token = jwt.encode({"sun": user, "exp": int(time.time()) + 600}, key, algorithm="HS256")
        address = self._inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"http://{address}:{API_PORT}{path}",
            data=data,
            method=method,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 -- as above
            return json.loads(answer.read())

    def _inspect(self, what: str) -> str:
        return docker("inspect", "--format", what, self._name).strip()

    # --- waiting -----------------------------------------------------------------------------------------------
    def wait(self, what: str, condition: Callable[[], Any], bound_s: float = BOUND_S) -> Any:
        """Wait for a condition; at the bound, say which one did not come true and what the controller said."""
        deadline_s = time.monotonic() + bound_s
        while not (found := condition()):
            assert time.monotonic() < deadline_s, f"after {bound_s} s still not: {what}\n{self.told()}"
            time.sleep(PAUSE_S)
        return found

    def told(self) -> str:
        """Return what helps to understand a failure."""
        said = [line for line in self.log("4000").splitlines() if not line.startswith("fault-site")]
        nodes = self.slurm.run("slurmctld", "sinfo", "-N", "-h", "-o", "%N %T %E").stdout
        return "\n".join([f"kubelet: {self.kubelet.trouble}", nodes, *said[-40:]])

    def wait_calm(self) -> None:
        """Wait until nothing holds a grant, each node has its worker, and every GPU is the workers'."""
        self.wait("nothing holds, both workers are idle", self.calm)

    def calm(self) -> bool:
        """Return whether the platform is at rest."""
        if self.slurm_nodes() != dict.fromkeys(WORKERS, ("idle", "none")):
            return False
        if {p["metadata"]["name"]: p["status"].get("phase") for p in self.workers()} != dict.fromkeys(
            WORKERS, "Running"
        ):
            return False
        try:
            with self.ledger() as ledger:
                rows = {row.node: row.worker for row in ledger.capacity_rows()}
                return not ledger.grants(holding=True) and rows == setting.GPUS
        except sqlite3.OperationalError:
            return False  # not made yet

    # --- looking -----------------------------------------------------------------------------------------------
    def slurm_nodes(self) -> dict[str, tuple[str, str]]:
        """Return each Slurm node's state and reason, as sinfo says."""
        told = self.slurm.run("slurmctld", "sinfo", "--noheader", "--Node", "--format", "%N|%T|%E").stdout
        return {name: (state, reason) for name, state, reason in (line.split("|") for line in told.splitlines())}

    def slurm_jobs(self) -> list[dict[str, str]]:
        """Return the fields of every job record of slurmctld."""
        told = self.slurm.run("slurmctld", "scontrol", "--oneliner", "show", "jobs").stdout
        return [job_fields(line) for line in told.splitlines() if line.startswith("JobId=")]

    def last_seq(self) -> int:
        """Return the number of the ledger's newest entry."""
        with self.ledger() as ledger:
            return ledger.last_seq()

    def entries(self, after_seq: int) -> Sequence[Entry]:
        """Return the ledger's entries after one."""
        with self.ledger() as ledger:
            return ledger.log(after_seq=after_seq, limit=10_000)

    def grants(self, *, holding: bool = False) -> Sequence[Grant]:
        """Return all grants that ever were, or those that hold."""
        with self.ledger() as ledger:
            return ledger.grants(holding=holding)

    def holds(self, workload: WorkloadId | None) -> bool:
        """Return whether a workload is charged or reserved for."""
        return any(grant.workload == workload for grant in self.grants(holding=True))

    def workers(self) -> Sequence[Object]:
        """Return the worker pods."""
        label = f"{wellknown.COMPONENT_LABEL}=worker"
        return self.kube.gateway().list(port.PODS, label_selector=label).items

    def runs(self, name: str) -> list[str]:
        """Return the lines that a script of this name has appended: one for each time that it ran."""
        file = self.slurm.folder / "home" / "alice" / f"{name}.runs"
        return file.read_text().splitlines() if file.exists() else []

    def let_go(self, name: str) -> None:
        """Let scripts of this name end, that wait to be told."""
        (self.slurm.folder / "home" / "alice" / f"{name}.go").touch()

    # --- parts --------------------------------------------------------------------------------------------------
    def _create_controllers(self) -> None:
        self._write_folders()
        self._create_container(self._name, {"SBRIDGE_IDENTITY": "bridge-0"})

    def _write_folders(self) -> None:
        source = self.folder / "source"
        for name in ("bridge", "slurm-conf"):  # a copy: the checkout may change while tests run
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        for name in ("ledger", "fault", "kubeconfig"):
            (self.folder / name).mkdir()
        self.arm("")
        config = self.folder / "kubeconfig" / "config"
        config.write_bytes(self.kube.kubeconfig(wellknown.CONTROLLER_USERNAME, inside=True))

    def _create_container(self, name: str, settings: dict[str, str]) -> None:
        environment = {
            "PYTHONPATH": "/src",
            "KUBECONFIG": "/kube/config",
            "SBRIDGE_FAULT": "file:/fault/armed",
            "SBRIDGE_SLURM_IMAGE": "none/slurm",
            "SBRIDGE_LOGIN_IMAGE": "none/login",
            "SBRIDGE_API_PORT": str(API_PORT),
            **settings,
        }
        mounts = {"ledger": "/var/lib/slurm-bridge", "fault": "/fault:ro", "kubeconfig": "/kube:ro", "source": "/src"}
        line = ["create", "--name", name, "--network", self.slurm.network, "--read-only", "--cap-drop", "ALL"]
        line += ["--security-opt", "no-new-privileges", "--workdir", "/src"]
        for place in ("/run", "/tmp", "/var/lib/extrausers"):
            line += ["--tmpfs", place]
        for folder, place in mounts.items():
            line += ["--volume", f"{self.folder / folder}:{place}"]
        for setting_name, value in environment.items():
            line += ["--env", f"{setting_name}={value}"]
        line += ["--entrypoint", "/usr/bin/tini"]
        docker(*line, image("bridge"), "--", "python3", "-m", "bridge.controller")
        self._stack.callback(docker, "rm", "--force", "--volumes", name)


def docker(*arguments: str) -> str:
    """Run docker; it must succeed."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"docker {arguments[0]}: {done.stderr}"
    return done.stdout


def job_fields(line: str) -> dict[str, str]:
    """Split one line of `scontrol --oneliner show jobs`; AdminComment may have spaces in it."""
    comment = re.search(r"AdminComment=(.*?)(?= [A-Z]\w+=|$)", line)
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return {**fields, "AdminComment": comment.group(1) if comment else ""}
