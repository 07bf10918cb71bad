"""kubectl Jobs to Slurm jobs: what maps, what is refused with the field and the way out, the status told."""

from typing import Any

import pytest

from bridge.errors import InvalidInputError
from bridge.quota.model import FlavorName, TeamName
from bridge.slurm.model import JobSpec
from bridge.workloads import batchjobs, jobstatus, quantities
from bridge.workloads.flavors import Flavors, FlavorSpec
from bridge.workloads.jobstatus import JobPhase, JobTold
from bridge.workloads.reasons import Waiting
from bridge.workloads.tenants import Member, Tenant

GPU = "nvidia.com/gpu"
ALICE = Member("alice", "alice", 2001, 2001)
VISION = Tenant(TeamName("vision"), "vision", (ALICE,), "alice")
FLAVORS = Flavors.of([FlavorSpec(FlavorName("h100"), GPU, {}, "h100", default=True)])
NOW_MS = 1_800_000_000_000


def job(container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **body: Any) -> dict[str, Any]:
    made = {
        "name": "main",
        "image": batchjobs.WORKER_IMAGE,
        "command": ["python3", "-c", "print('hi')"],
        "resources": {"limits": {GPU: 2}},
        **(container or {}),
    }
    template = {"containers": [made], "restartPolicy": "Never", "securityContext": {}, **(pod or {})}
    return {
        "metadata": {"name": "train", "namespace": "vision", "uid": "0123456789abcdef"},
        "spec": {"completions": 1, "parallelism": 1, "template": {"spec": template}, **body},
    }


def spec(j: dict[str, Any]) -> JobSpec | Waiting:
    return batchjobs.spec(j, VISION, ALICE, FLAVORS)


def test_a_job_becomes_one_slurm_job_as_its_user_keyed_by_its_uid() -> None:
    made = spec(job({"resources": {"limits": {GPU: 2, "memory": "1500Mi"}, "requests": {"cpu": "1500m"}}}))
    assert isinstance(made, JobSpec)
    assert (made.key, made.user, made.uid, made.account) == ("job-0123456789abcdef", "alice", 2001, "vision")
    assert (made.gpus_per_node, made.gpu_type, made.cpus_per_task, made.mem_mib) == (2, "h100", 2, 1500)
    assert made.script == "#!/bin/bash\nexec python3 -c 'print('\"'\"'hi'\"'\"')'\n"


def test_its_environment_is_its_own_and_references_expand_as_in_a_pod() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$$(A)-$(NONE)"}]
    made = spec(job({"env": env, "args": ["$(B)"]}))
    assert isinstance(made, JobSpec)
    assert made.environment["B"] == "1-$(A)-$(NONE)"
    assert set(made.environment) == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "A", "B"}


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (job({"command": []}), "containers[0].command"),
        (job({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}), "containers[0].volumeMounts"),
        (job({"env": [{"name": "S", "valueFrom": {"secretKeyRef": {}}}]}), "env[S].valueFrom"),
        (job({"workingDir": "x"}), "workingDir='x'"),
        (job(pod={"volumes": [{"name": "v"}]}), "spec.template.spec.volumes"),
        (job(pod={"initContainers": [{"name": "i"}]}), "spec.template.spec.initContainers"),
        (job(pod={"hostNetwork": True}), "spec.template.spec.hostNetwork"),
        (job(pod={"securityContext": {"runAsUser": 0}}), "spec.template.spec.securityContext"),
        (job(completions=3), "spec.completions=3"),
        (job(podFailurePolicy={"rules": []}), "spec.podFailurePolicy"),
    ],
)
def test_what_cannot_run_in_slurm_is_refused_by_field_with_a_way_out(made: dict[str, Any], field: str) -> None:
    refused = spec(made)
    assert isinstance(refused, Waiting)
    assert field in refused.text
    assert refused.final


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 300), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400), ("1-2:30:05", 95405)],
)
def test_slurm_times_parse_as_sbatch_does(text: str, seconds: int) -> None:
    assert quantities.slurm_time_s(text) == seconds


def test_bad_quantities_and_times_name_the_value() -> None:
    with pytest.raises(InvalidInputError, match="'1x'"):
        quantities.amount("1x")
    with pytest.raises(InvalidInputError, match="'soon'"):
        quantities.slurm_time_s("soon")


def test_a_job_runs_then_completes_in_the_two_steps_that_validation_wants() -> None:
    j = job()
    running = jobstatus.patch(j, JobTold(JobPhase.RUNNING, "Granted", "Slurm job 7 on w1", NOW_MS), NOW_MS)
    assert running is not None
    assert (running["active"], running["ready"]) == (1, 1)
    j["status"] = running
    assert jobstatus.patch(j, JobTold(JobPhase.RUNNING, "Granted", "Slurm job 7 on w1", NOW_MS), NOW_MS + 999) is None
    done = jobstatus.patch(j, JobTold(JobPhase.SUCCEEDED, "Completed", "", NOW_MS, NOW_MS + 60_000), NOW_MS + 61_000)
    assert done is not None
    first, second = jobstatus.steps(j, done)
    assert "completionTime" not in first
    assert [c["type"] for c in first["conditions"]] == ["slurmbridge.dev/Admitted", "SuccessCriteriaMet"]
    assert [c["type"] for c in second["conditions"]][-1] == "Complete"
    assert (second["active"], second["succeeded"]) == (0, 1)
    j["status"] = done
    assert jobstatus.patch(j, JobTold(JobPhase.RUNNING), NOW_MS + 70_000) is None


def test_a_refused_job_fails_with_the_reason_and_no_failed_pod_is_invented() -> None:
    j = job(completions=3)
    refused = spec(j)
    assert isinstance(refused, Waiting)
    status = jobstatus.patch(j, jobstatus.refused(refused), NOW_MS)
    assert status is not None
    assert (status["failed"], status["active"]) == (0, 0)
    assert {c["type"]: c["reason"] for c in status["conditions"]}["Failed"] == "Unsupported"
