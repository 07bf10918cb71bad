"""A GPU Job applied with kubectl runs in Slurm and behaves as any Job: wait, logs, failure, delete, opting out."""

from tests.e2e import kube, sbridge, slurm
from tests.e2e.waiting import until


def test_a_gpu_job_runs_once_in_slurm_and_completes_like_any_job() -> None:
    """J10: logs are followed to the end. The built-in controller made no pod with GPUs."""
    kube.apply(_job("e2e-train", "for i in 1 2 3; do echo step $i; sleep 1; done"), user="alice")
    until("the mirror pod follows", lambda: _mirror("e2e-train", "Running", "Succeeded"))
    logs = kube.kubectl("-n", "vision", "logs", "-f", "job/e2e-train", user="alice")
    assert logs.split("\n")[-4:-1] == ["step 1", "step 2", "step 3"]
    kube.kubectl("-n", "vision", "wait", "--for=condition=complete", "job/e2e-train", "--timeout=30s", user="alice")
    status = kube.get("job", "e2e-train", "-n", "vision")["status"]
    assert (status["succeeded"], status.get("failed", 0), status.get("active", 0)) == (1, 0, 0)
    assert status["startTime"] <= status["completionTime"]
    assert [job.user for job in slurm.jobs() if job.name == "e2e-train"][-1:] == ["alice"]
    assert _slurm_jobs("e2e-train") == 1
    assert all(kube.gpus(pod) == 0 for pod in kube.items("pods", "-n", "vision"))
    kube.kubectl("-n", "vision", "delete", "job", "e2e-train", "--timeout=30s", user="alice")
    assert _slurm_jobs("e2e-train") == 1


def test_a_job_that_fails_is_failed_and_its_log_stays_readable() -> None:
    """J10."""
    kube.apply(_job("e2e-fails", "echo about to fail; exit 3"), user="alice")
    kube.kubectl("-n", "vision", "wait", "--for=condition=failed", "job/e2e-fails", "--timeout=60s", user="alice")
    until("the mirror has printed all", lambda: _mirror("e2e-fails", "Failed", "Succeeded"))
    assert "about to fail" in kube.kubectl("-n", "vision", "logs", "job/e2e-fails", user="alice")


def test_deleting_a_running_job_cancels_it_in_slurm() -> None:
    """J2 and Q6: the finalizer goes when the end was seen, and does not keep the Job for ever."""
    kube.apply(_job("e2e-endless", "sleep 3600"), user="alice")
    until("it runs in Slurm", lambda: _state("e2e-endless") == "RUNNING")
    kube.kubectl("-n", "vision", "delete", "job", "e2e-endless", "--timeout=45s", user="alice")
    assert _state("e2e-endless") == "CANCELLED"
    until("its grant is over", lambda: not sbridge.queue())
    assert _slurm_jobs("e2e-endless") == 1


def test_a_job_can_stay_in_kubernetes() -> None:
    job = _job("e2e-native", "sleep 2")
    job["metadata"]["labels"] = {"slurmbridge.dev/route": "kubernetes"}
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["image"] = kube.slurm_image()
    job["spec"]["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "A100"}
    job["metadata"]["namespace"] = "nlp"
    kube.apply(job, user="bob")
    kube.kubectl("-n", "nlp", "wait", "--for=condition=complete", "job/e2e-native", "--timeout=60s", user="bob")
    assert _slurm_jobs("e2e-native") == 0


def test_what_cannot_run_in_slurm_is_refused_with_the_field_and_the_way_out() -> None:
    """J11: told on the object that the user made; nothing is dropped silently."""
    job = _job("e2e-volume", "true")
    job["spec"]["template"]["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    kube.apply(job, user="alice")
    told = until("the refusal is told", lambda: _refusal("e2e-volume"))
    assert "spec.template.spec.volumes cannot run in Slurm" in told
    assert "slurmbridge.dev/route=kubernetes" in told
    assert _slurm_jobs("e2e-volume") == 0


def _job(name: str, script: str) -> kube.Object:
    container = {
        "name": "main",
        "image": "slurmbridge.dev/worker",
        "command": ["/bin/sh", "-c", script],
        "resources": {"limits": {kube.GPU: "2"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    meta = {"name": name, "namespace": "vision"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {"backoffLimit": 0, "template": template},
    }


def _mirror(job: str, *phases: str) -> bool:
    pods = kube.items("pods", "-n", "vision", "-l", f"batch.kubernetes.io/job-name={job}")
    return any(pod["status"].get("phase") in phases for pod in pods)


def _slurm_jobs(name: str) -> int:
    """Count the Slurm jobs of the Job's last life; earlier runs of this test have other UIDs, hence other keys."""
    return len(_records(name))


def _state(name: str) -> str:
    records = _records(name)
    return records[-1].state if records else ""


def _records(name: str) -> list[slurm.Job]:
    found = [job for job in slurm.jobs() if job.name == name]
    newest = found[-1].admin_comment.split(" ")[0] if found else ""
    assert len({job.id for job in found if job.admin_comment.split(" ")[0] == newest}) <= 1
    return [job for job in found if job.admin_comment.split(" ")[0] == newest]


def _refusal(name: str) -> str:
    job = kube.get("job", name, "-n", "vision")
    return str(kube.condition(job, "slurmbridge.dev/Admitted").get("message", ""))
