"""Evictions over the Gateway: a pod's end with its grace period, as far as disruption budgets allow."""

from dataclasses import dataclass
from enum import StrEnum

from bridge.errors import ConflictError, NotFoundError, RejectedError
from bridge.kube import paths, port
from bridge.kube.port import Gateway, Object


class Outcome(StrEnum):
    """What became of an eviction."""

    BEGUN = "begun"  # the pod is being deleted
    REFUSED = "refused"  # a disruption budget keeps it for now; ask again
    GONE = "gone"  # this very pod does not exist any more


@dataclass(frozen=True, slots=True)
class Evicted:
    """The outcome, with the API server's own sentence for a refusal."""

    outcome: Outcome
    sentence: str = ""


def evict(gateway: Gateway, pod: Object) -> Evicted:
    """Evict exactly this pod (by UID). What could not be asked or was not answered raises, as for any write.

    Looked at first: the API server tries an eviction whose UID is another's again for ten seconds (its
    EvictionsRetry, 20 x 500 ms) before it answers, and whoever asks would wait as long. The UID in the request is for
    a pod that is replaced in between.
    """
    meta = pod["metadata"]
    try:
        there = gateway.get(port.PODS, meta["name"], namespace=meta["namespace"])
    except NotFoundError:
        return Evicted(Outcome.GONE)
    if there["metadata"]["uid"] != meta["uid"]:
        return Evicted(Outcome.GONE)
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
    }
    try:
        gateway.post(paths.one(port.PODS, meta["name"], meta["namespace"], "eviction"), body)
    except (NotFoundError, ConflictError):
        return Evicted(Outcome.GONE)
    except RejectedError as refused:
        return Evicted(Outcome.REFUSED, str(refused))
    return Evicted(Outcome.BEGUN)
