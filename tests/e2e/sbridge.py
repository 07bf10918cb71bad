"""The bridge through its command, as the platform's admin."""

import json
from typing import Any

from tests.e2e import kube, shell
from tests.e2e.waiting import until

Document = dict[str, Any]


def call(*arguments: str) -> Any:
    """Return the JSON answer of `sbridge`."""
    return json.loads(shell.run(["sbridge", *arguments, "--output", "json"]))


def attempt(*arguments: str) -> shell.Completed:
    """Run `sbridge` where a refusal is an answer too."""
    return shell.attempt(["sbridge", *arguments])


def explain(workload: str) -> Document:
    """Explain one workload."""
    found: Document = call("explain", workload)
    return found


def known(workload: str) -> Document | None:
    """Explain a workload, None while the bridge has not seen it."""
    done = attempt("explain", workload, "--output", "json")
    if done.code == 0:
        found: Document = json.loads(done.out)
        return found
    if done.code == 4:
        return None
    raise shell.CommandError(f"`{done.command}` ended with {done.code}: {done.said}")


def waits(workload: str, reason: str, timeout_s: float = 30) -> Document:
    """Wait until the bridge gives this reason for a workload."""

    def seen() -> Document | None:
        found = known(workload)
        return found if found and found["workload"]["reason"] == reason else None

    return until(f"sbridge explains {workload} with {reason}", seen, timeout_s)


def queue() -> list[Document]:
    """Return what waits, runs or ends."""
    found: list[Document] = call("queue")["items"]
    return found


def nodes() -> dict[str, Document]:
    """Return the nodes with their columns."""
    return {row["node"]: row for row in call("status")["nodes"]}


def newest() -> int:
    """Return the number of the newest journal entry."""
    return int(call("status")["status"]["ledger_seq"])


def entries(after: int) -> list[Document]:
    """Return every journal entry after one, page by page."""
    found: list[Document] = []
    while True:
        page = call("ledger", "log", "--after", str(after), "--limit", "1000")
        found += page["items"]
        if not page["items"]:
            return found
        after = page["next_after"]


def verified() -> None:
    """Fail unless the ledger adds up."""
    done = attempt("ledger", "verify")
    assert done.code == 0, f"sbridge ledger verify: {done.said}"


def scale(replicas: int) -> None:
    """Stop or start the bridge, and wait for it."""
    kube.kubectl("-n", "slurm-bridge", "scale", "deployment/slurm-bridge", f"--replicas={replicas}")
    if replicas:
        rollout = ("rollout", "status", "deployment/slurm-bridge", "--timeout=90s")
        kube.kubectl("-n", "slurm-bridge", *rollout, timeout_s=100)
        until("sbridge answers", lambda: attempt("status").code == 0, 60)
    else:
        selector = "app.kubernetes.io/name=slurm-bridge"
        until("the bridge's pod is gone", lambda: not kube.items("pods", "-n", "slurm-bridge", "-l", selector), 60)
