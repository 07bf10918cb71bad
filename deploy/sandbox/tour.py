"""A walk through the sandbox: sbatch, a Deployment and a kubectl Job get in through one ledger, GPUs move between them.

Every command is shown as a person types it, with what it really prints; every claim is checked. It cleans up what it
made, and what an earlier tour left.
"""

import sys
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from deploy.sandbox import layout, sights
from deploy.sandbox.narration import TourError, as_user, check, document, heading, quiet, say, typed, typed_by, wait

SOURCES = Path(__file__).with_name("tour")
SHEETS = layout.STATE_DIR / "tour"
H100_WORKERS = ("h100-g1", "h100-g2")
NODE_GPUS, JOB_GPUS, REPLICAS, REPLICA_GPUS = 8, 4, 2, 2
SHORT_S, LONG_S = 12, 35  # how long bob's and alice's jobs run

NEXT = """
What to type next (`. .build/sandbox/env` first, in each new terminal):

  sbridge status                    nodes with their holders, teams, health
  sbridge queue --watch             who waits, runs and ends, and why
  sbridge explain JOB|pod/NS/NAME   what happened to one workload, and what it waits for
  kubectl -n slurm exec -it deploy/login -- su alice       then cd; sbatch, srun, squeue, sbridge as alice
  kubectl --as=alice apply -f .build/sandbox/tour/train.yaml
  make replay                       60 jobs and 25 pods of public traces, checked by an independent witness
  make sandbox-down                 take all of it away
"""


def main() -> int:
    """Walk; the exit code is 1 when something is not as told."""
    started = time.monotonic()
    try:
        before()
        alice, bob = sbatch()
        deployment(bob)
        training()
        afterwards(alice)
        _remove()
    except TourError as error:
        print(f"\ntour: {error}\nWhat it made is left to be looked at; the next tour removes it.", file=sys.stderr)
        return 1
    say(f"\nThe tour took {time.monotonic() - started:.0f} s, and everything in it was checked.")
    print(NEXT)
    return 0


def before() -> None:
    """Clean up, then wait until both h100 nodes carry an idle worker."""
    heading("The platform")
    _sheets()
    _remove()
    busy = document("sbridge queue --output json")["items"]
    if busy:
        raise TourError(f"{len(busy)} workloads are there already (`sbridge queue`); let them end, or cancel them")
    wait("both h100 nodes carry an idle Slurm worker", _workers_idle, 90)
    typed("kubectl get nodes -L nvidia.com/gpu.product")
    typed("kubectl -n slurm get pods -o wide")
    typed("sbridge status")
    for name in H100_WORKERS:
        gpus = sights.worker_uses_all(sights.workers()[name])
        check(f"worker {name} is a pod that asked Kubernetes for {gpus} GPUs", gpus == NODE_GPUS)


def sbatch() -> tuple[str, str]:
    """Two jobs through sbatch: one that stays for a while, one that soon gives a whole node back."""
    heading("sbatch: held, granted, running on a worker pod")
    script = f"hostname; ls /dev/nvidia[0-9]*; echo CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES; sleep {LONG_S}"
    said = typed_by("alice", f"sbatch --job-name=tour-alice --account=vision --gres=gpu:{JOB_GPUS} --wrap '{script}'")
    alice = said.split()[-1]
    said = typed_by("bob", f"sbatch --job-name=tour-bob --account=nlp --gres=gpu:{NODE_GPUS} --wrap 'sleep {SHORT_S}'")
    bob = said.split()[-1]
    wait(f"alice's job {alice} runs", lambda: sights.job_field(alice, "JobState") == "RUNNING", 20)
    wait(f"bob's job {bob} runs", lambda: sights.job_field(bob, "JobState") == "RUNNING", 20)
    typed_by("alice", "squeue -a")
    typed("sbridge queue")
    typed("sbridge quota")
    output = sights.job_field(alice, "StdOut")
    wait("alice's job has written its output", lambda: "CUDA" in _home_file("alice", output), 10)
    seen = typed_by("alice", f"cat {output}")
    devices, visible = seen.count("/dev/nvidia"), seen.rpartition("=")[2].split(",")
    check(f"its worker pod was handed {devices} devices by the device plugin", devices == NODE_GPUS, seen)
    check(f"{len(visible)} of them are the job's", len(visible) == JOB_GPUS, seen)
    account = sights.job_field(alice, "UserId"), sights.job_field(alice, "Account")
    check("it runs as alice's own user, in team vision's account", account == ("alice(2001)", "vision"), str(account))
    refused = typed_by("alice", "sbatch --account=nlp --gres=gpu:1 --wrap true", fails=True)
    check("who is no member of a team gets one clear sentence", "is not a member of account nlp" in refused, refused)
    typed("sbridge ledger log --limit 6")
    return alice, bob


def deployment(bob: str) -> None:
    """Two replicas of two GPUs: gated until the ledger has GPUs for them, which a drained worker gives back."""
    heading("kubectl apply: a Deployment that waits for its grant, on GPUs that Slurm gives back")
    typed(f"kubectl --as=alice apply -f {SHEETS.relative_to(layout.ROOT)}/web.yaml")
    wait("two pods exist", lambda: len(_web_pods()) == REPLICAS, 10)
    if sights.job_field(bob, "JobState") == "RUNNING":
        typed("kubectl -n vision get pods -l app=tour-web")
        wait("the bridge says why they wait", _web_waits, 10)
        typed("sbridge queue --team vision")
        gated = all(pod["spec"].get("schedulingGates") for pod in _web_pods())
        ended = sights.job_field(bob, "JobState") != "RUNNING"
        check("both nodes are Slurm's, so no replica was let in", gated or ended)
    wait(f"bob's job {bob} ends", lambda: sights.job_field(bob, "JobState") in sights.OVER, SHORT_S + 15)
    wait("the Deployment is ready", _web_ready, 30)
    typed("kubectl -n vision get pods -l app=tour-web -o wide")
    typed("kubectl -n slurm get pods -l slurmbridge.dev/component=worker -o wide")
    typed("sbridge status")
    _check_moved()
    answer = wait("the Service answers", _web_answer, 15)
    say("alice asks the Service from the login pod:")
    typed_by("alice", f"python3 -c {_ASK!r}")
    check("it is served by a pod that sees exactly its two GPUs", answer.count("/dev/nvidia") == REPLICA_GPUS, answer)
    typed("sbridge ledger log --limit 8")


def _check_moved() -> None:
    nodes = {pod["spec"]["nodeName"] for pod in _web_pods()}
    check(f"both replicas run on {', '.join(sorted(nodes))}", len(nodes) == 1)
    worker = f"h100-{next(iter(nodes))}"
    check(f"its worker {worker} was drained and is gone", worker not in sights.workers())
    check("Slurm has forgotten that node", worker not in sights.slurm_nodes())
    for pod in _web_pods():
        name = pod["metadata"]["name"]
        granted_ms = sights.moment_ms(sights.explained(f"pod/vision/{name}"), "granted")
        bound_s = datetime.fromisoformat(sights.scheduled(pod)).timestamp()
        check(f"pod {name} was bound after its grant", bound_s + 1 > granted_ms / 1000, f"{bound_s} {granted_ms}")


def training() -> None:
    """Apply a GPU Job with kubectl: it runs in Slurm, and behaves as any Job does."""
    heading("kubectl apply: a training Job, which runs in Slurm")
    seq, earlier = sights.newest_entry(), len(sights.jobs_named("tour-train"))
    sheets = SHEETS.relative_to(layout.ROOT)
    typed(f"kubectl --as=alice apply -f {sheets}/train.yaml")
    wait("its mirror pod follows the output", _mirror_started, 30)
    typed_by("alice", "squeue -a --name=tour-train")
    logs = typed("kubectl --as=alice -n vision logs -f job/tour-train")
    check("the log was followed to its end", "step 3 of 3" in logs and "done" in logs)
    typed("kubectl --as=alice -n vision wait --for=condition=complete job/tour-train --timeout=30s")
    typed("kubectl --as=alice -n vision get job tour-train")
    typed("sbridge queue --all --team vision")
    uid = document("kubectl -n vision get job tour-train -o json")["metadata"]["uid"]
    typed("kubectl --as=alice -n vision delete job tour-train")
    ever = len(sights.jobs_named("tour-train")) - earlier
    grants = len(sights.grants_after(seq, uid))
    check("exactly one Slurm job ever existed for it, with one grant", (ever, grants) == (1, 1), f"{ever}, {grants}")

    say("Deleting a Job that runs cancels it in Slurm:")
    earlier = sights.jobs_named("tour-endless").count("CANCELLED")
    typed(f"kubectl --as=alice apply -f {sheets}/endless.yaml")
    wait("it runs in Slurm", lambda: "RUNNING" in sights.jobs_named("tour-endless"), 20)
    typed("kubectl --as=alice -n vision delete job tour-endless")
    states = sights.jobs_named("tour-endless")
    cancelled = states.count("CANCELLED") == earlier + 1 and "RUNNING" not in states
    check("its Slurm job is cancelled", cancelled, ", ".join(states))


def afterwards(alice: str) -> None:
    """See the first job end, the GPUs go back to Slurm, and the ledger add up."""
    heading("Afterwards")
    wait("alice's sbatch job ends", lambda: sights.job_field(alice, "JobState") in sights.OVER, LONG_S + 15)
    check(f"job {alice} is COMPLETED", sights.job_field(alice, "JobState") == "COMPLETED")
    wait("the ledger has seen its end", lambda: sights.explained(alice)["workload"]["state"] == "ended", 10)
    typed(f"sbridge explain {alice}")
    told = sights.explained(alice)
    # Slurm's clock counts whole seconds, the ledger's milliseconds: 7.000 for a start at 7.4, granted at 7.2.
    times_s = [sights.moment_ms(told, what) // 1000 for what in ("granted", "running", "ended")]
    check("it was granted, ran and ended, in this order", times_s == sorted(times_s), str(times_s))
    typed("kubectl --as=alice -n vision delete deployment/tour-web service/tour-web")
    wait("the node is Slurm's again, with a new worker", _workers_idle, 60)
    typed("sbridge status")
    typed("sbridge usage --from 15m")
    typed("sbridge ledger verify")


_ASK = 'import urllib.request as u; print(u.urlopen("http://tour-web.vision.svc/", timeout=5).read().decode(), end="")'


def _web_answer() -> str:
    try:
        return quiet(as_user("alice", f"python3 -c {_ASK!r}"))
    except TourError:
        return ""  # not yet: kube-proxy learns of the endpoints a moment after they are ready


def _web_ready() -> bool:
    status = document("kubectl -n vision get deployment tour-web -o json")["status"]
    return bool(status.get("readyReplicas") == REPLICAS)


def _web_pods() -> list[sights.Object]:
    return sights.pods("vision", "app=tour-web")


def _web_waits() -> bool:
    rows = document("sbridge queue --team vision --output json")["items"]
    named = [row for row in rows if "tour-web" in row["where"]]
    return len(named) == REPLICAS and all(row["reason"] or row["state"] != "waiting" for row in named)


def _mirror_started() -> bool:
    found = sights.pods("vision", "batch.kubernetes.io/job-name=tour-train")
    return any(pod["status"]["phase"] in ("Running", "Succeeded") for pod in found)


def _workers_idle() -> bool:
    pods, nodes = sights.workers(), sights.slurm_nodes()
    return all(name in pods and nodes.get(name) == "idle" for name in H100_WORKERS)


def _home_file(user: str, path: str) -> str:
    return quiet(as_user(user, f"cat {path} 2>/dev/null || true"))


def _sheets() -> None:
    """Write what is applied, with the image that the nodes have already."""
    variables = document("kubectl -n slurm-bridge get deployment slurm-bridge -o json")["spec"]["template"]["spec"][
        "containers"
    ][0]["env"]
    image = next(each["value"] for each in variables if each["name"] == "SBRIDGE_SLURM_IMAGE")
    SHEETS.mkdir(parents=True, exist_ok=True)
    for source in sorted(SOURCES.glob("*.yaml")):
        (SHEETS / source.name).write_text(source.read_text().replace("$SLURM_IMAGE", image))


def _remove() -> None:
    """Take away what this tour, or an earlier one, made."""
    for user in ("alice", "bob"):
        quiet(as_user(user, f"scancel --user={user} --name=tour-{user}; rm -f slurm-*.out k8s-vision-tour-*.log"))
    quiet(["kubectl", "-n", "vision", "delete", "deployment/tour-web", "service/tour-web", "job/tour-train",
           "job/tour-endless", "--ignore-not-found", "--timeout=40s"])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
