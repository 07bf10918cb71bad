"""The controller through outages: stopped itself, slurmctld hung, killed, without its state; drains of others.

Worker pods are the witness: whatever happens to Slurm, the very same pods (by UID) are there afterwards.
"""

import time
from collections.abc import Iterator
from functools import partial

import pytest

from bridge.kube import port
from bridge.kube.port import Object
from tests import kubebox
from tests.integration import outcome, steps
from tests.integration.bridgebox import WORKERS, BridgeBox, docker
from tests.integration.setting import batch_job
from tests.integration.steps import TEAM, Work
from tests.kubebox import unique

HUNG_S = 12.0  # longer than MessageTimeout, after which a call gives up


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeBox]:
    with BridgeBox(tmp_path_factory.mktemp("controller")) as running:
        yield running


@pytest.fixture
def box(platform: BridgeBox) -> Iterator[BridgeBox]:
    """Give each test a platform at rest, and hold it to leaving one with a clean ledger."""
    platform.wait_calm()
    yield platform
    platform.wait_calm()
    with platform.ledger() as ledger:
        assert not ledger.verify()


def test_while_the_bridge_is_stopped_no_gpu_work_starts_and_all_else_goes_on(box: BridgeBox) -> None:
    """Done-means: running work goes on, CPU work is untouched, afterwards all is caught up."""
    running = begin(box, "--gres=gpu:2")
    began = box.last_seq()
    box.stop()
    work = Work(unique("stopped"))
    submit = partial(box.slurm.submitted, "alice", "--account=vision", "--output=/dev/null")
    cpu = submit(script=steps.script(f"{work.name}-cpu"))
    work.job_ids = [submit("--gres=gpu:4", script=steps.script(work.name))]
    work.scripts, work.intervals = {work.name: 1, f"{work.name}-cpu": 1}, [1]
    box.kube.gateway("alice").create(port.PODS, kubebox.pod(work.name, gpus=1), namespace=TEAM)
    box.wait("the job without GPUs has run", lambda: box.slurm.field(cpu, "JobState") == "COMPLETED")
    box.let_go(running.name)
    box.wait("the running job has ended", lambda: steps.states(box, running) == {"COMPLETED"})
    assert (steps.states(box, work), box.slurm.field(work.job_ids[0], "Reason")) == ({"PENDING"}, "JobHeldUser")
    assert steps.found(box, port.PODS, work.name)["spec"]["schedulingGates"]
    box.start()
    box.wait("the held job has run", lambda: steps.states(box, work) == {"COMPLETED"})
    box.wait("the pod runs", lambda: steps.found(box, port.PODS, work.name)["status"].get("phase") == "Running")
    box.kube.gateway("alice").delete(port.PODS, work.name, namespace=TEAM)
    box.wait_calm()
    # The job that ended meanwhile is charged until Slurm's own end, not until we came back.
    outcome.check_slurm(box, running, box.grants())
    outcome.check_slurm(box, work, box.grants())
    outcome.check_scripts(box, work)
    outcome.check_nothing_adopted(box.entries(began))


def test_a_hung_slurmctld_changes_nothing_and_a_cordon_of_that_time_counts_when_it_is_back(box: BridgeBox) -> None:
    """N1, N9, N20."""
    work, pods = begin(box, "--gres=gpu:2"), uids(box)
    box.slurm.ctl("pkill", "-STOP", "slurmctld")
    try:
        box.wait("the bridge cannot read Slurm", partial(reads, box, ok=False))
        cordon(box, "g2", on=True)
        until = time.monotonic() + HUNG_S
        box.wait("a while has passed", lambda: time.monotonic() > until)
        assert uids(box) == pods
        assert [g.gpus for g in box.grants(holding=True)] == [2]
        assert not steps.tainted(box)
    finally:
        box.slurm.ctl("pkill", "-CONT", "slurmctld")
    box.wait("the cordon counts", lambda: box.slurm_nodes()[WORKERS[1]][1] == "bridge: node cordoned", 20)
    cordon(box, "g2", on=False)
    end(box, work)
    assert uids(box) == pods


def test_a_killed_slurmctld_comes_back_with_its_state_and_the_same_workers(box: BridgeBox) -> None:
    """N9. What slurmctld had saved (it does so within seconds) is not lost; the job that runs goes on."""
    work, pods = begin(box, "--gres=gpu:2"), uids(box)
    since_s = time.time()
    box.wait("slurmctld has saved its state", lambda: saved_s(box) > since_s)
    restart_slurmctld(box)
    box.wait("the bridge reads Slurm again", partial(reads, box, ok=True))
    end(box, work)
    assert uids(box) == pods
    outcome.check_slurm(box, work, box.grants())
    outcome.check_scripts(box, work)


def test_lost_state_takes_no_worker_and_lost_work_is_told_as_lost(box: BridgeBox) -> None:
    """N9, J12: workers register again; a stranger under an old JobId gets nothing of the lost job's grant."""
    for _ in range(2):  # so that the JobIds of this test are given again
        end(box, begin(box, "--gres=gpu:1"))
    lost, pods = begin(box, "--gres=gpu:8"), uids(box)
    waiting = Work(unique("waiting"))
    text = f"echo run >> /home/alice/{waiting.name}.runs"
    made = box.kube.gateway("alice").create(port.JOBS, batch_job(waiting.name, 8, text), namespace=TEAM)
    waiting.job_uids, waiting.scripts = [made["metadata"]["uid"]], {waiting.name: 1}
    box.wait("the Job waits in Slurm", lambda: steps.states(box, waiting) == {"PENDING"})
    restart_slurmctld(box, lose_state=True)
    stranger = Work(unique("stranger"))
    options = ("--account=vision", "--output=/dev/null", "--gres=gpu:1")
    box.wait("Slurm takes jobs", lambda: submit_as_stranger(box, stranger, options))
    box.wait("the stranger has run", lambda: steps.states(box, stranger) == {"COMPLETED"})
    box.wait("the lost job's grant is closed", lambda: not box.holds(lost.grant))
    box.wait("the Job is complete", lambda: "Complete" in steps.conditions(steps.found(box, port.JOBS, waiting.name)))
    assert uids(box) == pods
    outcome.check_scripts(box, waiting)
    outcome.check_slurm(box, waiting, box.grants())
    outcome.check_slurm(box, stranger, box.grants())
    (closed,) = [g for g in box.grants() if g.workload == lost.grant]
    assert "lost" in closed.note or "no longer" in closed.note
    for _ in steps.delete_job(box, waiting):
        box.wait("the Job is gone", lambda: steps.gone(box, port.JOBS, waiting.name))


def test_a_foreign_drain_is_never_changed_by_cordon_uncordon_or_restart(box: BridgeBox) -> None:
    """N4."""
    box.slurm.ctl("scontrol", "update", "nodename=h100-g1", "state=drain", "reason=fan broken")
    box.wait("the node is tainted", partial(steps.tainted, box))
    for act in (partial(cordon, box, "g1", on=True), partial(cordon, box, "g1", on=False), partial(again, box)):
        act()
        end(box, begin(box, "--gres=gpu:1"))  # on the other node: cycles have passed, and they saw the act
        assert steps.drain_of(box) == "fan broken"
    box.slurm.ctl("scontrol", "update", "nodename=h100-g1", "state=undrain")
    box.wait("the taint is lifted", lambda: not steps.tainted(box))


def test_a_cordoned_nodes_job_runs_on_and_our_drain_comes_back_while_its_cause_holds(box: BridgeBox) -> None:
    """N4, N5."""
    work = begin(box, "--gres=gpu:2")
    (record,) = steps.of_work(box, work)
    node = record["NodeList"].removeprefix("h100-")
    cordon(box, node, on=True)
    box.wait("it is drained", lambda: box.slurm_nodes()[f"h100-{node}"] == ("draining", "bridge: node cordoned"))
    box.slurm.ctl("scontrol", "update", f"nodename=h100-{node}", "state=undrain")
    box.wait("it is drained again", lambda: box.slurm_nodes()[f"h100-{node}"] == ("draining", "bridge: node cordoned"))
    assert steps.states(box, work) == {"RUNNING"}
    cordon(box, node, on=False)
    box.wait("it is back", lambda: box.slurm_nodes()[f"h100-{node}"] == ("mixed", "none"))
    end(box, work)
    assert len(box.runs(work.name)) == 1


def test_an_api_server_that_was_killed_is_lived_through(box: BridgeBox) -> None:
    """N1, on the other side."""
    work, pods = begin(box, "--gres=gpu:2"), uids(box)
    box.kube.kill_api_server()
    box.kube.wait_ready()
    end(box, begin(box, "--gres=gpu:1"))
    end(box, work)
    assert uids(box) == pods


# --- parts -----------------------------------------------------------------------------------------------------
def begin(box: BridgeBox, *options: str) -> Work:
    """Submit a job as alice that runs until it is let go, and wait until it does and is charged."""
    work = Work(unique("runs"))
    text = "#!/bin/sh\n" + steps.waiting_script(work.name)
    work.job_ids = [box.slurm.submitted("alice", "--account=vision", "--output=/dev/null", *options, script=text)]
    work.scripts, work.intervals = {work.name: 1}, [1]
    box.wait("its script runs", lambda: len(box.runs(work.name)) == 1)
    (record,) = steps.of_work(box, work)
    work.grant = outcome.workload_of(record)
    box.wait("it is charged", lambda: any(g.workload == work.grant and g.running_ms for g in box.grants(holding=True)))
    return work


def end(box: BridgeBox, work: Work) -> None:
    """Let a job end, and wait until its charge has."""
    box.let_go(work.name)
    box.wait("the job has ended", lambda: steps.states(box, work) == {"COMPLETED"})
    box.wait("its charge has ended", lambda: not box.holds(work.grant))


def submit_as_stranger(box: BridgeBox, work: Work, options: tuple[str, ...]) -> bool:
    """Return whether slurmctld, just started, took a job."""
    done = box.slurm.sbatch("alice", *options, script=steps.script(work.name))
    work.job_ids = [done.stdout.strip()]
    return done.returncode == 0


def restart_slurmctld(box: BridgeBox, *, lose_state: bool = False) -> None:
    """Kill -9 slurmctld and start it again; without its state, when that is wanted."""
    name = box.slurm.containers["slurmctld"].get_wrapped_container().id
    if lose_state:
        box.slurm.ctl("pkill", "-STOP", "slurmctld")  # so that it cannot write its state once more
        box.slurm.ctl("sh", "-c", "rm -rf /var/spool/slurmctld/*")
    docker("kill", name)
    box.wait("the bridge cannot read Slurm", partial(reads, box, ok=False))
    docker("start", name)
    answers = lambda: box.slurm.run("slurmctld", "scontrol", "ping").stdout.count("UP") > 0  # noqa: E731
    box.wait("slurmctld answers", answers)


def saved_s(box: BridgeBox) -> int:
    """Return when slurmctld last wrote its jobs down."""
    return int(box.slurm.ctl("stat", "--format", "%Y", "/var/spool/slurmctld/job_state"))


def reads(box: BridgeBox, *, ok: bool) -> bool:
    """Return whether the last word of the controller on Slurm's readability is this."""
    words = [line for line in box.log("2000").splitlines() if '"slurm.read"' in line]
    return bool(words) and f'"ok": {str(ok).lower()}' in words[-1]


def uids(box: BridgeBox) -> dict[str, str]:
    """Return the worker pods by name, with their UIDs."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in box.workers()}


def cordon(box: BridgeBox, node: str, *, on: bool) -> Object:
    """Cordon or uncordon a node."""
    return box.kube.gateway().patch(port.NODES, node, {"spec": {"unschedulable": on or None}})


def again(box: BridgeBox) -> None:
    """Kill the controller and start it."""
    box.kill()
    box.start()
    box.wait("it leads", box.ready)
