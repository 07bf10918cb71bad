"""Cordons and drains are kept in step in both directions, each with its owner; workers are the bridge's to move."""

from tests.e2e import kube, quiet, slurm
from tests.e2e.waiting import until


def test_a_cordon_drains_the_worker_and_its_end_brings_it_back_while_the_job_runs_on() -> None:
    """N5."""
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:2")
    worker = slurm.reaches(job, "RUNNING").nodes
    node = kube.workers()[worker]["spec"]["nodeName"]
    kube.kubectl("cordon", node)
    fields = until("the worker is drained", lambda: _drained(worker), 10)
    assert fields["Reason"].startswith("bridge: ")
    assert slurm.job(job).state == "RUNNING"
    kube.kubectl("uncordon", node)
    until("the worker takes jobs again", lambda: slurm.usable(worker), 10)
    assert slurm.job(job).state == "RUNNING"
    assert slurm.job(job).restarts == 0


def test_our_drain_that_somebody_lifts_is_set_again_while_its_cause_holds() -> None:
    """N4."""
    kube.kubectl("cordon", "g1")
    until("the worker is drained", lambda: _drained("h100-g1"), 10)
    slurm.root("scontrol", "update", "nodename=h100-g1", "state=resume")
    until("the worker is drained again", lambda: _drained("h100-g1"), 10)


def test_an_admins_drain_taints_the_node_and_is_never_changed_by_us() -> None:
    """N4 and N6: across a cordon and its end the reason stays; what the admin lifts is untainted."""
    slurm.root("scontrol", "update", "nodename=h100-g1", "state=drain", f"reason={quiet.REASON}")
    until("the node is tainted", lambda: quiet.tainted("g1"), 5)
    kube.kubectl("cordon", "g1")
    kube.kubectl("uncordon", "g1")
    job = slurm.sbatch("alice", "--account=vision --gres=gpu:8 --output=/dev/null", "hostname")
    assert slurm.reaches(job, "COMPLETED").nodes == "h100-g2"
    assert slurm.nodes()["h100-g1"]["Reason"] == quiet.REASON
    assert "DRAIN" in slurm.nodes()["h100-g1"]["State"]
    slurm.root("scontrol", "update", "nodename=h100-g1", "state=resume")
    until("the taint is gone", lambda: not quiet.tainted("g1"), 5)


def test_the_eviction_of_a_worker_is_refused_at_any_age_of_its_job() -> None:
    """N16."""
    slurm.sbatch("alice", "--account=vision --gres=gpu:1")
    for worker in quiet.H100_WORKERS:
        body = (
            '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s","namespace":"slurm"}}' % worker  # noqa: UP031
        )
        path = f"/api/v1/namespaces/slurm/pods/{worker}/eviction"
        done = kube.attempt("create", "--raw", path, "-f", "-", text=body)
        assert done.code != 0
        assert "disruption budget" in done.said
    assert set(kube.workers()) >= set(quiet.H100_WORKERS)


def _drained(worker: str) -> dict[str, str] | None:
    fields = slurm.nodes()[worker]
    return fields if "DRAIN" in fields["State"] else None
