"""Two clusters behind the same port for one suite: the fake, and a real slurmctld with three workers.

Both have w1 (8 h100), w2 (4 h100) and w3 (4 a100). `submit` and `sbatch` take what the job's script ends with.
"""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from bridge.clock import FakeClock
from bridge.slurm import gracesignal, states
from bridge.slurm.adapter import PyslurmAdapter
from bridge.slurm.fake import FakeSlurm
from bridge.slurm.model import GraceSignal, JobSpec, Phase, SlurmJob, SlurmNode
from bridge.slurm.port import JobRef, Slurm

ALICE = 2001
BOUND_S = 30.0
TRAPPED = 7  # exit code of a job that traps USR1


class World(Protocol):
    """A cluster, its port, and what people do to it."""

    slurm: Slurm

    def will_exit(self, job_id: int, code: int) -> None:
        """Say that the job's script ends with this code (the fake's jobs run until they are told to end)."""
        ...

    def sbatch(
        self,
        gpus: int,
        *,
        nodes: int = 1,
        array: Sequence[int] = (),
        options: Sequence[str] = (),
        script_options: Sequence[str] = (),
    ) -> int:
        """Submit as alice, through the submission policy; options on the command line, and in the script."""
        ...

    def settle(self) -> None:
        """Let a script that has just started come to its loop."""
        ...

    def drain_as_admin(self, node: str, reason: str) -> None:
        """Drain as an administrator."""
        ...

    def resume_as_admin(self, node: str) -> None:
        """Lift any drain."""
        ...

    def tick(self) -> None:
        """Let the cluster do what it does by itself."""
        ...


def submit(
    world: World,
    *,
    gpus: int = 1,
    kind: str = "h100",
    nodes: int = 1,
    exits: int | None = None,
    traps: bool = False,
) -> JobRef:
    """Submit through the port. `traps`: its batch shell ends with TRAPPED when it gets USR1."""
    script = "#!/bin/sh\nsleep 600\n" if exits is None else f"#!/bin/sh\nexit {exits}\n"
    if traps:
        script = f"#!/bin/sh\ntrap 'exit {TRAPPED}' USR1\nwhile :; do sleep 0.1; done\n"
    spec = JobSpec(
        key=f"job-{os.urandom(8).hex()}",
        name="contract",
        user="alice",
        uid=ALICE,
        gid=ALICE,
        account="vision",
        script=script,
        gpus_per_node=gpus,
        gpu_type=kind,
        nodes=nodes,
        tasks=nodes,
        time_limit_s=601,
        work_dir="/tmp",
        std_out="/dev/null",
        environment={"PATH": "/usr/bin:/bin"},
    )
    ref = JobRef(world.slurm.submit(spec), spec.key)
    if exits is not None:
        world.will_exit(ref.job_id, exits)
    return ref


def until(world: World, what: str, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline, f"after {BOUND_S} s still not: {what}\n{list(world.slurm.jobs())}"
        world.tick()


def job(world: World, job_id: int) -> SlurmJob:
    """Return a job's record."""
    return next(job for job in world.slurm.jobs() if job.job_id == job_id)


def node(world: World, name: str) -> SlurmNode:
    """Return a node's record."""
    return next(node for node in world.slurm.nodes() if node.name == name)


def phase(world: World, job_id: int) -> Phase:
    """Return a job's phase."""
    record = job(world, job_id)
    return states.phase(record.state, record.flags)


def reaches(world: World, job_id: int, wanted: Phase) -> SlurmJob:
    """Wait for a phase and return the record."""
    until(world, f"job {job_id} is {wanted.value}", lambda: phase(world, job_id) is wanted)
    return job(world, job_id)


class FakeWorld:
    """The fake."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.fake = FakeSlurm(self.clock)
        self.slurm: Slurm = self.fake
        self._exits: dict[int, int] = {}
        for name, kind, gpus in (("w1", "h100", 8), ("w2", "h100", 4), ("w3", "a100", 4)):
            self.fake.add_node(name, kind, gpus)

    def will_exit(self, job_id: int, code: int) -> None:
        self._exits[job_id] = code

    def sbatch(
        self,
        gpus: int,
        *,
        nodes: int = 1,
        array: Sequence[int] = (),
        options: Sequence[str] = (),
        script_options: Sequence[str] = (),
    ) -> int:
        asked = {"": gpus} if gpus else {}
        signal = gracesignal.of_command(" ".join([*script_options, *options]))
        nice = next((int(option.partition("=")[2]) for option in options if option.startswith("--nice=")), 0)
        return self.fake.sbatch(
            user="alice", uid=ALICE, account="vision", gpus=asked, nodes=nodes, array=array, signal=signal, nice=nice
        )

    def settle(self) -> None:
        pass

    def drain_as_admin(self, node: str, reason: str) -> None:
        self.fake.drain_as(node, reason, "admin")

    def resume_as_admin(self, node: str) -> None:
        self.fake.resume_as_admin(node)

    def tick(self) -> None:
        self.clock.advance(1_000)
        for record in self.fake.jobs():
            phase = states.phase(record.state, record.flags)
            if phase is Phase.ENDING:
                self.fake.free(record.job_id)
            elif phase is Phase.RUNNING and (record.job_id, GraceSignal(10, batch=True)) in self.fake.signals:
                self.fake.complete(record.job_id, TRAPPED)
            elif phase is Phase.RUNNING and record.job_id in self._exits:
                self.fake.complete(record.job_id, self._exits[record.job_id])
        self.fake.start_pending()


class RealWorld:
    """A real slurmctld; runs where libslurm is. `conf` is its slurm.conf, with the key beside it."""

    def __init__(self, conf: Path) -> None:
        self._adapter = PyslurmAdapter(conf)
        self.slurm: Slurm = self._adapter
        socket = self._adapter._signer.socket()
        socket.parent.chmod(0o755)  # alice submits through it, too
        self._environment = {
            "PATH": os.environ["PATH"],
            "SLURM_CONF": str(conf),
            "SLURM_SACK_SOCKET": str(socket),
        }

    def close(self) -> None:
        """End the adapter's processes."""
        self._adapter.close()

    def reset(self) -> None:
        """Leave an idle cluster behind."""
        for record in self.slurm.jobs():
            if states.phase(record.state, record.flags) is not Phase.ENDED:
                self._root("scancel", str(record.job_id))
        for record_of_node in self.slurm.nodes():
            if "DRAIN" in record_of_node.flags:
                self.resume_as_admin(record_of_node.name)
        until(self, "no node is busy", lambda: not any(n.busy for n in self.slurm.nodes()))

    def will_exit(self, job_id: int, code: int) -> None:
        pass

    def sbatch(
        self,
        gpus: int,
        *,
        nodes: int = 1,
        array: Sequence[int] = (),
        options: Sequence[str] = (),
        script_options: Sequence[str] = (),
    ) -> int:
        words = [f"--gpus={gpus}"] if gpus else []
        words += [f"--array={','.join(map(str, array))}"] if array else []
        command = ["sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", f"--nodes={nodes}", *words, *options]
        script = "".join(["#!/bin/sh\n", *(f"#SBATCH {option}\n" for option in script_options), "sleep 600\n"])
        as_alice = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", *command]
        done = subprocess.run(
            as_alice,
            input=script,
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
            cwd="/tmp",
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def drain_as_admin(self, node: str, reason: str) -> None:
        self._root("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume_as_admin(self, node: str) -> None:
        self._root("scontrol", "update", f"nodename={node}", "state=undrain")

    def settle(self) -> None:
        time.sleep(1.0)

    def tick(self) -> None:
        time.sleep(0.02)

    def _root(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, env=self._environment)
