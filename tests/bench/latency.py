"""`make bench-latency`: what the bridge adds to a start, against plain Slurm and plain Kubernetes in the same run.

    python -m tests.bench.latency [--rounds N]

Jobs: a CPU job passes the bridge's gate untouched, which is plain Slurm; the GPU job is held, granted and released.
Both go to the same slurmctld and the same idle worker, and are timed from before `sbatch` to their first instruction.
Pods: a GPU pod in a namespace of no team is plain Kubernetes; the same pod in a team's namespace is gated, granted and
ungated. Both go to the same node, which has no worker, and are timed from before the creation until a watch shows
the node they are bound to.
"""
# ruff: noqa: T201 -- it talks to a person in a terminal

import argparse
import json
import math
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import kube, sbridge, shell, slurm
from tests.e2e.apiserver import ApiServer, Seen
from tests.e2e.waiting import until

DRIVER = Path(__file__).with_name("driver.py")
PLAIN = "bench-plain"
TEAM = "nlp"  # its guarantee covers the a100s of g3, where no worker stands
PRODUCT, GPUS = "A100", 4
WAITS = ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]
WORKER = "h100-g1"
LEAST = 40
AIM_S = {"job": 0.5, "pod": 0.3}


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds of one kind, with and without the bridge."""

    name: str
    plain: Sequence[float]
    bridge: Sequence[float]

    @property
    def added_s(self) -> float:
        """What the bridge adds to the median."""
        return quantile(self.bridge, 0.5) - quantile(self.plain, 0.5)


def main() -> int:
    """Measure and print; the exit code is 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=LEAST, help="pairs of each kind")
    rounds = parser.parse_args().rounds
    try:
        until("no GPU work is left from before", lambda: not sbridge.queue(), 60)
        jobs = measure_jobs(rounds)
        pods = measure_pods(rounds)
    except (shell.CommandError, shell.PlatformMissingError, AssertionError) as error:
        print(f"bench-latency: {error}", file=sys.stderr)
        return 1
    print(f"\n{'':<26}{'PLAIN p50':>11}{'p99':>9}{'BRIDGE p50':>12}{'p99':>9}{'ADDED p50':>11}")
    for series in (*jobs, pods):
        numbers = [quantile(side, q) * 1000 for side in (series.plain, series.bridge) for q in (0.5, 0.99)]
        print(
            f"{series.name:<26}{numbers[0]:>8.0f} ms{numbers[1]:>6.0f} ms{numbers[2]:>9.0f} ms{numbers[3]:>6.0f} ms"
            f"{series.added_s * 1000:>+8.0f} ms"
        )
    print(f"\nn = {rounds} of each, alternating")
    missed = 0
    for series, kind in ((jobs[-1], "job"), (pods, "pod")):
        met = series.added_s <= AIM_S[kind]
        missed += not met
        print(f"{'PASS' if met else 'FAIL'}  {series.name}: at most {AIM_S[kind] * 1000:.0f} ms more at the median")
    return 1 if missed else 0


def measure_jobs(rounds: int) -> tuple[Series, Series]:
    """Time sbatch itself and sbatch -> running, on a warm worker."""
    until(f"worker {WORKER} is warm", lambda: slurm.usable(WORKER), 90)
    print(f"jobs: {rounds} pairs on {WORKER}", flush=True)
    directory = f"/home/alice/latency-{time.time_ns():x}"
    options = ["--account=vision", "--gres=gpu:1", "--nodes=1"]
    python = ["python3", "-", str(rounds), directory, *options]
    command = ["kubectl", "-n", "slurm", "exec", "-i", "deploy/login", "--", "su", "alice", "-c", " ".join(python)]
    with DRIVER.open() as source:
        driver = subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = driver.communicate(timeout=rounds * 20)
    if driver.returncode != 0:
        raise shell.CommandError(f"the driver in the login pod ended with {driver.returncode}: {err.strip()}")
    pairs = [json.loads(line) for line in out.splitlines()]

    def series(name: str, field: str) -> Series:
        plain, bridge = ([pair[side][field] / 1e9 for pair in pairs] for side in ("plain", "bridge"))
        return Series(name, plain, bridge)

    return series("sbatch answers", "sbatch_ns"), series("sbatch -> job runs", "running_ns")


def measure_pods(rounds: int) -> Series:
    """Time creation -> bound, with capacity in place."""
    print(f"pods: {rounds} pairs on the {PRODUCT} node", flush=True)
    kube.kubectl("create", "namespace", PLAIN)
    try:
        until("the new namespace is usable", lambda: kube.maybe("serviceaccount", "default", "-n", PLAIN), 30)
        until(f"no worker stands on the {PRODUCT} node", _no_worker, 120)
        binder = _Binder(ApiServer(), kube.slurm_image())
        taken: dict[str, list[float]] = {PLAIN: [], TEAM: []}
        for turn in range(rounds):
            first, second = (PLAIN, TEAM) if turn % 2 else (TEAM, PLAIN)
            for namespace in (first, second):
                taken[namespace].append(binder.bound_s(namespace, f"latency-{turn}"))
            binder.remove()
        return Series("pod created -> bound", taken[PLAIN], taken[TEAM])
    finally:
        kube.kubectl("delete", "namespace", PLAIN, "--timeout=90s", timeout_s=100)
        kube.kubectl("-n", TEAM, "delete", "pods", "-l", "slurmbridge.dev/test=e2e", "--timeout=60s", timeout_s=70)


def _no_worker() -> bool:
    return not any(pod["spec"].get("nodeName") == "g3" for pod in kube.workers().values())


class _Binder:
    """Creates pods one at a time and sees in a watch when each is bound, and when it is gone."""

    def __init__(self, api: ApiServer, image: str) -> None:
        self._api, self._image = api, image
        self._events: queue.Queue[Seen] = queue.Queue()
        self._made: list[tuple[str, str, str]] = []  # namespace, name, uid
        version = api.get("/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        threading.Thread(target=self._follow, args=(version,), name="watch", daemon=True).start()

    def _follow(self, version: str) -> None:
        for seen in self._api.watch("/api/v1/pods", version=version, timeout_s=1800):
            self._events.put(seen)

    def bound_s(self, namespace: str, name: str) -> float:
        """Create a pod and time it."""
        body = kube.pod(name, gpus=1, command=WAITS, namespace=namespace, product=PRODUCT, image=self._image)
        before = time.time_ns()
        uid = self._api.post(f"/api/v1/namespaces/{namespace}/pods", body)["metadata"]["uid"]
        bound = self._await(uid, lambda seen: bool(seen.object["spec"].get("nodeName")), f"{namespace}/{name} is bound")
        self._made.append((namespace, name, uid))
        return (bound.at_ns - before) / 1e9

    def remove(self) -> None:
        """Take the pods away, and wait until all GPUs are counted as free."""
        for namespace, name, _ in self._made:
            self._api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=2")
        until("the pods are gone", self._gone, 30, poll_s=0.1)
        self._made.clear()
        until("all GPUs are free again", lambda: sbridge.nodes()["g3"]["idle"] == GPUS, 30)

    def _gone(self) -> bool:
        left = {pod["metadata"]["uid"] for pod in self._api.get("/api/v1/pods")["items"]}
        return not any(uid in left for _, _, uid in self._made)

    def _await(self, uid: str, wanted: Callable[[Seen], bool], what: str) -> Seen:
        deadline = time.monotonic() + 30
        while (left := deadline - time.monotonic()) > 0:
            try:
                seen = self._events.get(timeout=left)
            except queue.Empty:
                break
            if seen.object.get("metadata", {}).get("uid") == uid and wanted(seen):
                return seen
        raise AssertionError(f"within 30 s the watch did not show that pod {what}")


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that `part` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


if __name__ == "__main__":
    sys.exit(main())
