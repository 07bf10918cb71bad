"""A guarantee that is lent out comes back: from Slurm jobs and from pods, for sbatch and for a Deployment.

alice's team is guaranteed 8 h100. bob's jobs and a third team's pods hold all 16; then alice asks, twice.
"""

import json
import sys
import time
from collections.abc import Iterator

import pytest

from tests.e2e import kube, sbridge, slurm
from tests.e2e.waiting import until

GRACE_S = 5
TERMINATION_S = 5  # of scripts that end at TERM, and of pods with a grace period of a second
MOVE_S = 40  # a worker is drained, removed, made and registers
BOUND_S = GRACE_S + TERMINATION_S + MOVE_S
WAIT_S = 2 * BOUND_S  # for what is seen through kubectl, whose own slowness is nobody's grace

THIRD = "batch3"
TOLD = "preempted: team vision takes back its guarantee"
SAVING = 'trap "echo saved >> e2e-saved" USR1; echo began >> e2e-saved; while :; do sleep 0.2; done'


@pytest.fixture
def lent() -> Iterator[None]:
    """Give a third team nothing of its own, and bob's no more than 4; take it all back after."""
    before = kube.get("team", "nlp")["spec"]
    quotas = [{**quota, "guarantee": 4} if quota["flavor"] == "h100" else quota for quota in before["quotas"]]
    changed = {**before, "quotas": quotas, "preemption": {"grace": f"{GRACE_S}s"}}
    _team("nlp", changed)
    _team(THIRD, {"parent": "org", "quotas": [{"flavor": "h100", "guarantee": 0}]})
    labels = {kube.TEAM_LABEL: THIRD}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": THIRD, "labels": labels}})
    yield
    kube.kubectl("delete", "namespace", THIRD, "--timeout=60s", timeout_s=90)
    kube.kubectl("delete", "team", THIRD)
    kube.kubectl("replace", "-f", "-", text=_text("nlp", before))


def test_a_guarantee_comes_back_from_jobs_and_pods_for_a_job_and_for_a_deployment(lent: None) -> None:  # noqa: ARG001
    """Rules 9, 10, 12, 13 and 14: within grace and termination, in the stated order, and to nobody else."""
    older, younger = _borrow()
    seq = sbridge.newest()
    job = slurm.sbatch("alice", "--account=vision --nodes=2 --gpus-per-node=4 --output=/dev/null")
    slurm.reaches(job, "RUNNING", WAIT_S)
    _came_back("sbatch", seq, starts=1)
    assert slurm.job(older).state == "RUNNING", "of two jobs the one that loses less makes way"
    assert slurm.job(younger).restarts == 1
    saved = slurm.as_user("bob", "cat e2e-saved").split()  # by now it may have begun again, on what alice left
    assert (saved[:2], saved.count("saved")) == (["began", "saved"], 1), "its signal, once"
    notes = [entry["detail"].get("note", "") for entry in sbridge.entries(seq) if entry["step"] == "release"]
    assert sum(TOLD in note for note in notes) == 3, f"one job and both pods made way: {notes}"
    until("the pods' owner is told", lambda: _events(THIRD, "Preempted"))

    kube.kubectl("-n", THIRD, "scale", "deployment/e2e-third", "--replicas=0")
    slurm.as_user("bob", f"scancel {younger}")
    slurm.as_user("alice", f"scancel {job}")
    until("only bob's older job is left", lambda: len(sbridge.queue()) == 1, WAIT_S)
    beside, last = (slurm.sbatch("bob", "--account=nlp --gres=gpu:4 --output=/dev/null") for _ in range(2))
    slurm.reaches(beside, "RUNNING", WAIT_S)
    slurm.reaches(last, "RUNNING", WAIT_S)
    assert (slurm.job(beside).nodes, slurm.job(last).nodes) == ("h100-g1", "h100-g2")
    seq = sbridge.newest()
    kube.apply(_deployment("e2e-first", "vision", gpus=4, replicas=2), user="alice")
    until("both of alice's replicas are ready", lambda: _ready("vision", "e2e-first") == 2, WAIT_S)
    _came_back("Deployment", seq, starts=2)
    assert [slurm.job(stays).state for stays in (older, beside)] == ["RUNNING", "RUNNING"]
    assert [slurm.job(last).state, slurm.job(last).restarts] == ["PENDING", 1]
    sbridge.verified()


def _borrow() -> tuple[str, str]:
    """Let bob's two jobs have one node, and the third team's two pods the other; return bob's jobs."""
    older = slurm.sbatch("bob", "--account=nlp --gres=gpu:4 --output=/dev/null")
    slurm.reaches(older, "RUNNING")
    time.sleep(2)  # so that less is lost with the other one
    younger = slurm.sbatch("bob", "--account=nlp --gres=gpu:4 --signal=B:USR1@60 --output=/dev/null", SAVING)
    slurm.reaches(younger, "RUNNING")
    kube.apply(_deployment("e2e-third", THIRD, gpus=4, replicas=2))
    until("the third team's replicas are ready", lambda: _ready(THIRD, "e2e-third") == 2, WAIT_S)
    assert {row["team"]: row["used_total"] for row in _quota()} == {"org": 16, "vision": 0, "nlp": 8, THIRD: 8}
    return older, younger


def _came_back(how: str, seq: int, *, starts: int) -> None:
    """From the question to the start nobody else was granted anything (rule 12), and it took no longer than it may."""
    entries = until("its start is in the ledger", lambda: _to_the_start(seq, starts), WAIT_S)
    reserves = [entry for entry in entries if entry["step"] == "reserve"]
    assert {entry["team"] for entry in reserves} == {"vision"}
    asked_ms = min(entry["detail"]["submitted_ms"] for entry in reserves)
    took_s = (entries[-1]["at_ms"] - asked_ms) / 1000
    sys.stdout.write(f"{how}: {took_s:.1f} s from the question to running\n")
    assert took_s <= BOUND_S


def _to_the_start(seq: int, starts: int) -> list[sbridge.Document] | None:
    """Return the journal after an entry up to the given number of vision's starts; None before."""
    entries = sbridge.entries(seq)
    runs = [at for at, entry in enumerate(entries) if (entry["step"], entry["team"]) == ("run", "vision")]
    return entries[: runs[starts - 1] + 1] if len(runs) >= starts else None


def _quota() -> list[sbridge.Document]:
    return [row for row in sbridge.call("quota")["items"] if row["flavor"] == "h100"]


def _events(namespace: str, reason: str) -> bool:
    return any(
        event["reason"] == reason and TOLD in event["message"] for event in kube.items("events", "-n", namespace)
    )


def _team(name: str, spec: kube.Object) -> None:
    kube.kubectl("apply", "-f", "-", text=_text(name, spec))


def _text(name: str, spec: kube.Object) -> str:
    return json.dumps(
        {"apiVersion": "slurmbridge.dev/v1alpha1", "kind": "Team", "metadata": {"name": name}, "spec": spec}
    )


def _deployment(name: str, namespace: str, *, gpus: int, replicas: int) -> kube.Object:
    pod = kube.pod("", gpus=gpus, command=["sleep", "600"], product="H100")
    template = {"metadata": {"labels": {"app": name}}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def _ready(namespace: str, name: str) -> int:
    return int(kube.get("deployment", name, "-n", namespace)["status"].get("readyReplicas", 0))
