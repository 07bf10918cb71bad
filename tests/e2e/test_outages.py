"""The bridge or slurmctld is away: nothing passes the ledger, nothing that runs is touched, all is caught up."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e import kube, sbridge, shell, slurm
from tests.e2e.waiting import holds, until

AWAY_S = 60
HUNG_S = 20
STATE = "/var/spool/slurmctld"


@pytest.mark.timeout(420)
def test_while_the_bridge_is_stopped_nothing_gpu_starts_and_all_else_goes_on() -> None:
    """Fail closed: held jobs and gated pods need nobody to keep them back. Afterwards all is caught up."""
    running = slurm.sbatch("alice", "--account=vision --gres=gpu:2 --output=/dev/null", "sleep 75")
    kube.apply(kube.pod("e2e-runs", gpus=1, command=["sleep", "600"], namespace="nlp", product="A100"), user="bob")
    slurm.reaches(running, "RUNNING")
    until("the pod runs", lambda: _phase("nlp", "e2e-runs") == "Running")
    sbridge.scale(0)
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:1 --output=/dev/null", "sleep 2")
    kube.apply(kube.pod("e2e-gated", gpus=1, command=["sleep", "1"], namespace="nlp", product="A100"), user="bob")
    plain = slurm.sbatch("alice", "--output=/dev/null", "true")
    kube.apply(kube.pod("e2e-plain", gpus=0, command=["true"], namespace="nlp"), user="bob")

    def objection() -> str:
        if slurm.job(job).state != "PENDING":
            return f"job {job} is {slurm.job(job).state}"
        if _phase("nlp", "e2e-gated") != "Pending":
            return f"pod e2e-gated is {_phase('nlp', 'e2e-gated')}"
        if slurm.job(running).state not in ("RUNNING", "COMPLETING", "COMPLETED"):
            return f"job {running} is {slurm.job(running).state}"
        return "" if _phase("nlp", "e2e-runs") == "Running" else "pod e2e-runs is gone"

    holds("the ledger's gate", objection, AWAY_S)
    slurm.reaches(plain, "COMPLETED")
    assert _phase("nlp", "e2e-plain") == "Succeeded"
    sbridge.scale(1)
    slurm.reaches(job, "COMPLETED", 60)
    until("the gated pod has run", lambda: _phase("nlp", "e2e-gated") == "Succeeded", 60)
    slurm.reaches(running, "COMPLETED")
    told = until("the end that nobody saw is in the ledger", lambda: _ended(running))
    ended = slurm.job(running)
    assert ended.ended_ms is not None
    assert abs(told["workload"]["ended_ms"] - ended.ended_ms) <= 1000


def test_a_slurmctld_that_hangs_changes_nothing_and_heals_by_itself() -> None:
    """N1: told as not reachable; no worker and no pod is touched; a cordon meanwhile takes effect after it (N20)."""
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:2")
    slurm.reaches(job, "RUNNING")
    with _untouched():
        _signal("STOP")
        try:
            until("status says that Slurm is not reachable", lambda: not _slurm_ok(), 60)
            kube.kubectl("cordon", "g2")
            holds("workers stay", lambda: "" if len(kube.workers()) == 2 else "a worker is gone", HUNG_S)
        finally:
            _signal("CONT")
        until("the cordon has drained the worker", lambda: "DRAIN" in slurm.nodes()["h100-g2"]["State"], 60)
        until("status says that Slurm is well", _slurm_ok, 60)
        assert slurm.job(job).state == "RUNNING"


def test_a_restarted_slurmctld_keeps_its_jobs_and_the_platform_its_workers() -> None:
    """N9."""
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:2")
    slurm.reaches(job, "RUNNING")
    with _untouched():
        kube.kubectl("-n", "slurm", "delete", "pod", "slurmctld-0", "--timeout=80s", timeout_s=90)
        until("slurmctld answers", _answers, 90)
        until("status says that Slurm is well", _slurm_ok, 60)
        assert slurm.job(job).state == "RUNNING"
        assert slurm.job(job).restarts == 0
    after = slurm.sbatch("bob", "--account=nlp --gres=gpu:2 --output=/dev/null", "true")
    slurm.reaches(after, "COMPLETED")


@pytest.mark.timeout(420)
def test_a_slurmctld_without_its_state_gets_its_workers_back_and_nothing_is_deleted() -> None:
    """N9: workers register again by themselves; the job that was lost is told as over, and its GPUs are free."""
    kube.apply(kube.pod("e2e-serves", gpus=1, command=["sleep", "600"], namespace="nlp", product="A100"), user="bob")
    until("the pod runs", lambda: _phase("nlp", "e2e-serves") == "Running")
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:8")
    slurm.reaches(job, "RUNNING")
    lost, key = sbridge.explain(job)["workload"]["id"], slurm.job(job).admin_comment.split(" ")[0]
    with _untouched():
        _lose_state()
        until("slurmctld answers", _answers, 90)
        assert not [each for each in slurm.jobs() if each.admin_comment.startswith(key)], "the state was not lost"
        until("both workers are registered again", lambda: all(map(slurm.usable, kube.workers())), 90)
    assert _phase("nlp", "e2e-serves") == "Running"
    until("the lost job's GPUs are free", lambda: not [row for row in sbridge.queue() if row["id"] == lost], 180)
    after = slurm.sbatch("alice", "--account=vision --gres=gpu:8 --output=/dev/null", "true")
    slurm.reaches(after, "COMPLETED", 90)


@contextmanager
def _untouched() -> Iterator[None]:
    """Assert that the worker pods are the same ones afterwards, none made again."""
    before = {pod["metadata"]["uid"] for pod in kube.workers().values()}
    assert len(before) == 2
    yield
    assert {pod["metadata"]["uid"] for pod in kube.workers().values()} == before


def _signal(name: str) -> None:
    done = slurm.beside_slurmctld(f"kill -{name} $(cat /run/slurm/slurmctld.pid)")
    assert done.code == 0, done.said


def _lose_state() -> None:
    """Stop it first, so that it cannot write its state again when it goes."""
    slurm.beside_slurmctld(f"p=$(cat /run/slurm/slurmctld.pid); kill -STOP $p; rm -rf {STATE}/*; kill -KILL $p")


def _answers() -> bool:
    try:
        return bool(slurm.nodes() is not None)
    except shell.CommandError:
        return False


def _slurm_ok() -> bool:
    done = sbridge.call("status")["status"]["slurm"]
    return all(each["ok"] for each in done)


def _phase(namespace: str, name: str) -> str:
    pod = kube.maybe("pod", name, "-n", namespace)
    return str(pod["status"].get("phase")) if pod else "gone"


def _ended(job: str) -> sbridge.Document | None:
    told = sbridge.explain(job)
    return told if told["workload"]["state"] == "ended" else None
