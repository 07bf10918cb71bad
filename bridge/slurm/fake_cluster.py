"""A Slurm cluster in memory: jobs, nodes, and what users, jobs, time and outages do to them.

What slurmctld would do by itself is done by a test's call (`start_pending`, `complete`, `free`), so that a test decides
when. The port's verbs over it are bridge.slurm.fake.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bridge.clock import Clock
from bridge.errors import NotFoundError
from bridge.slurm import comment, states
from bridge.slurm.model import JobSpec, JobState, Phase, SlurmJob, SlurmNode, Tres

RELEASED: Final = 4_294_901_759  # the priority that slurmctld gives under priority/basic
ROOT: Final = "root"


class FakeCluster:
    """The state of one slurmctld. Thread safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._jobs: dict[int, SlurmJob] = {}
        self._nodes: dict[str, SlurmNode] = {}
        self._next_id = 1

    def add_node(self, name: str, kind: str, gpus: int, cpus: int = 16) -> None:
        """Let a worker register (again); what it was drained for stays."""
        with self._lock:
            known = self._nodes.get(name)
            drain = known.flags & {"DRAIN"} if known else frozenset()
            self._nodes[name] = SlurmNode(
                name=name,
                state="IDLE",
                flags=frozenset({"DYNAMIC_NORM"}) | drain,
                gpus={kind: gpus} if gpus else {},
                gpus_allocated={},
                cpus=cpus,
                mem_mib=cpus * 1024,
                reason=known.reason if known else "",
                reason_user=known.reason_user if known else "",
                reason_ms=known.reason_ms if known else None,
                address=f"10.0.0.{len(self._nodes) + 1}",
                started_ms=self._clock.now_ms(),
                features=(kind,),
            )

    def node_down(self, name: str, reason: str = "Not responding") -> None:
        """Let a worker be gone: its jobs are requeued (held when they are held) and it holds nothing."""
        with self._lock:
            self._nodes[name] = replace(self._node(name), state="DOWN", reason=reason, reason_user=ROOT)
            for job in list(self._jobs.values()):
                if name in job.nodes and states.phase(job.state, job.flags) is Phase.RUNNING:
                    self._requeue(job, held=job.held)
                    self.free(job.job_id)

    def drain_as(self, name: str, reason: str, user: str) -> None:
        """Drain as somebody."""
        with self._lock:
            node = self._node(name)
            self._nodes[name] = replace(
                node, flags=node.flags | {"DRAIN"}, reason=reason, reason_user=user, reason_ms=self._clock.now_ms()
            )

    def resume_as_admin(self, name: str) -> None:
        """Lift a drain, whoever set it. DOWN stays DOWN."""
        with self._lock:
            node = self._node(name)
            self._nodes[name] = replace(node, flags=node.flags - {"DRAIN"}, reason="", reason_user="", reason_ms=None)

    def sbatch(
        self,
        *,
        user: str,
        uid: int,
        account: str,
        gpus: Mapping[str, int],
        nodes: int = 1,
        key: str = "",
        array: Sequence[int] = (),
        time_limit_s: int | None = None,
        name: str = "job",
        **asked: object,
    ) -> int:
        """Submit as a user does: held and marked when `gpus` (in all, by type) are asked for.

        `asked`: further fields of the record, e.g. signal, nice, batch, requeueable.
        """
        with self._lock:
            spec = JobSpec(
                key=key or f"fakekey-{self._next_id:08d}",
                name=name,
                user=user,
                uid=uid,
                gid=uid,
                account=account,
                script="#!/bin/sh\n",
                gpus_per_node=0,
                gpu_type="",
                nodes=nodes,
                time_limit_s=time_limit_s,
            )
            job = self._new_job(spec, gpus)
            self._put(job.job_id, **asked)
            if not gpus:
                self._put(job.job_id, key="", held=False, priority=RELEASED, state_reason="None")
            if array:
                self._put(job.job_id, array_job_id=job.job_id, array_tasks=tuple(array))
            return job.job_id

    def start_pending(self) -> list[int]:
        """Schedule once: start what is released and fits on its pinned nodes (or anywhere, when it has no pin)."""
        with self._lock:
            return [job.job_id for job in sorted(self._jobs.values(), key=lambda j: j.job_id) if self._try_start(job)]

    def complete(self, job_id: int, exit_code: int = 0) -> None:
        """Let a running job's script end; it is COMPLETING until `free`."""
        state = JobState.FAILED if exit_code else JobState.COMPLETED
        with self._lock:
            self._end(job_id, state, exit_code=exit_code)

    def free(self, job_id: int) -> None:
        """Let a COMPLETING job's processes be gone from its nodes."""
        with self._lock:
            job = self._jobs[job_id]
            self._put(
                job_id,
                flags=job.flags - {"COMPLETING"},
                allocated=Tres(),
                nodes=() if job.state is JobState.PENDING else job.nodes,
            )

    def requeue_as_user(self, job_id: int) -> None:
        """Requeue as the owner: it lands held only where root held it before (J13)."""
        with self._lock:
            self._requeue(self._jobs[job_id], held=self._jobs[job_id].held)

    def purge(self, job_id: int) -> None:
        """Let MinJobAge pass for an ended job."""
        with self._lock:
            del self._jobs[job_id]

    def lose_last(self, count: int = 1) -> None:
        """Kill slurmctld hard: the last jobs are lost, and their JobIds are given again (J12)."""
        with self._lock:
            for job_id in sorted(self._jobs)[-count:]:
                del self._jobs[job_id]
            self._next_id -= count

    def lose_state(self) -> None:
        """Start with an empty state directory: no job, no node, JobIds from 1."""
        with self._lock:
            self._jobs.clear()
            self._nodes.clear()
            self._next_id = 1

    def job(self, job_id: int) -> SlurmJob:
        """Return a record."""
        with self._lock:
            return self._jobs[job_id]

    # --- inside ----------------------------------------------------------------------------------------------
    def _node(self, name: str) -> SlurmNode:
        if name not in self._nodes:
            raise NotFoundError(f"node {name}: Invalid node name specified")
        return self._nodes[name]

    def _put(self, job_id: int, **changes: object) -> None:
        self._jobs[job_id] = replace(self._jobs[job_id], **changes)  # type: ignore[arg-type]

    def _new_job(self, spec: JobSpec, gpus: Mapping[str, int]) -> SlurmJob:
        key, _ = comment.parse(comment.render(spec.key, ""))
        job = SlurmJob(
            job_id=self._next_id,
            key=key,
            comment_text="",
            state=JobState.PENDING,
            flags=frozenset(),
            user=spec.user,
            uid=spec.uid,
            account=spec.account,
            partition=spec.partition or "all",
            name=spec.name,
            held=True,
            admin_held=False,
            priority=0,
            requested=Tres(dict(gpus), spec.nodes, spec.tasks * spec.cpus_per_task, spec.mem_mib or 64),
            allocated=Tres(),
            nodes=(),
            submit_ms=self._clock.now_ms(),
            start_ms=None,
            end_ms=None,
            time_limit_s=spec.time_limit_s,
            exit_code=None,
            exit_signal=None,
            restart_count=0,
            state_reason="JobHeldUser",
            requeueable=True,
            work_dir=spec.work_dir,
            std_out=spec.std_out or f"{spec.work_dir}/slurm-{self._next_id}.out",
            comment=spec.comment,
        )
        self._jobs[job.job_id] = job
        self._next_id += 1
        return job

    def _try_start(self, job: SlurmJob) -> bool:
        waiting = states.phase(job.state, job.flags) is Phase.WAITING
        if not waiting or job.held or (job.eligible_ms or 0) > self._clock.now_ms():
            return False
        pool = job.requested_nodes or tuple(self._nodes)
        count = len(job.requested_nodes) or max(1, job.requested.nodes)
        shares = {kind: total // count for kind, total in job.requested.gpus.items()}
        chosen = [name for name in pool if self._fits(name, shares)][:count]
        if len(chosen) < count:
            self._put(job.job_id, state_reason="Resources")
            return False
        held_gpus = {kind or self._kind(chosen[0]): total for kind, total in job.requested.gpus.items()}
        self._put(
            job.job_id,
            state=JobState.RUNNING,
            nodes=tuple(chosen),
            allocated=replace(job.requested, gpus=held_gpus, nodes=count),
            start_ms=self._clock.now_ms(),
            end_ms=None,
            state_reason="None",
        )
        return True

    def _kind(self, node: str) -> str:
        return next(iter(self._nodes[node].gpus), "")

    def _fits(self, name: str, shares: Mapping[str, int]) -> bool:
        node = self._nodes.get(name)
        if node is None or node.state == "DOWN" or "DRAIN" in node.flags:
            return False
        loaded = self._with_load(node)
        free = {kind: total - loaded.gpus_allocated.get(kind, 0) for kind, total in node.gpus.items()}
        return all((sum(free.values()) if not kind else free.get(kind, 0)) >= need for kind, need in shares.items())

    def _with_load(self, node: SlurmNode) -> SlurmNode:
        """Return the record with what jobs hold on it now."""
        held: dict[str, int] = {}
        running, completing = 0, False
        for job in self._jobs.values():
            phase = states.phase(job.state, job.flags)
            if node.name not in job.nodes or phase not in (Phase.RUNNING, Phase.ENDING):
                continue
            running += phase is Phase.RUNNING
            completing = completing or phase is Phase.ENDING
            for kind, total in job.allocated.gpus.items():
                held[kind] = held.get(kind, 0) + total // len(job.nodes)
        flags = node.flags | {"COMPLETING"} if completing else node.flags
        state = "MIXED" if running and node.state == "IDLE" else node.state
        return replace(node, state=state, flags=flags, gpus_allocated=held)

    def _end(self, job_id: int, state: JobState, exit_code: int = 0, exit_signal: int | None = None) -> None:
        job = self._jobs[job_id]
        ran = states.phase(job.state, job.flags) is not Phase.WAITING
        self._put(
            job_id,
            state=state,
            flags=job.flags | {"COMPLETING"} if ran else job.flags,
            end_ms=self._clock.now_ms(),
            exit_code=exit_code,
            exit_signal=exit_signal if ran else None,
        )

    def _requeue(self, job: SlurmJob, *, held: bool = True) -> None:
        self._put(
            job.job_id,
            state=JobState.PENDING,
            flags=job.flags | {"COMPLETING"},
            held=held,
            admin_held=held,
            priority=0 if held else RELEASED,
            start_ms=None,
            end_ms=None,
            restart_count=job.restart_count + 1,
            state_reason="JobHeldAdmin" if held else "BeginTime",
        )
