"""GPU pods: gated at creation, granted, bound; the charge ends with them; nobody gets past the gate."""

from tests.e2e import kube, sbridge
from tests.e2e.waiting import until

GATE = "slurmbridge.dev/quota"


def test_a_gpu_pod_is_bound_after_its_grant_and_freed_when_it_has_ended() -> None:
    """The a100 node has no worker, so nothing but the ledger stands between the pod and its node."""
    kube.apply(kube.pod("e2e-once", gpus=2, command=["sleep", "3"], namespace="nlp", product="A100"), user="bob")
    pod = until("the pod has succeeded", lambda: _phase("nlp", "e2e-once", "Succeeded"))
    assert pod["spec"]["nodeName"] == "g3"
    assert pod["metadata"]["annotations"]["slurmbridge.dev/submitted-by"] == "bob"
    until("the end is in the ledger", lambda: _ended("pod/nlp/e2e-once"))
    assert kube.condition(pod, "slurmbridge.dev/Admitted")["status"] == "True"


def test_a_pod_without_gpus_is_none_of_the_bridges_business() -> None:
    kube.apply(kube.pod("e2e-plain", gpus=0, command=["true"]), user="alice")
    pod = until("the pod has succeeded", lambda: _phase("vision", "e2e-plain", "Succeeded"))
    assert GATE not in str(pod)
    assert sbridge.known("pod/vision/e2e-plain") is None


def test_a_deployment_of_two_gets_its_gpus_and_gives_them_back_when_scaled_to_zero() -> None:
    """Q18: running replicas never exceed what was granted, and scale to zero frees."""
    seq = sbridge.newest()
    kube.apply(_deployment(), user="alice")
    until("two replicas are ready", lambda: _ready() == 2, 90)
    reserved = [entry for entry in sbridge.entries(seq) if entry["step"] == "reserve"]
    assert sum(entry["gpus"] for entry in reserved) == 4
    kube.kubectl("-n", "vision", "scale", "deployment/e2e-web", "--replicas=0", user="alice")
    until("vision holds nothing", lambda: _held("vision") == 0, 60)


def test_nobody_but_the_bridge_takes_the_gate_away() -> None:
    kube.apply(kube.pod("e2e-holder", gpus=4, command=["sleep", "600"], namespace="nlp", product="A100"), user="bob")
    until("all a100s are held", lambda: _phase("nlp", "e2e-holder", "Running"))
    kube.apply(kube.pod("e2e-gated", gpus=1, command=["true"], namespace="nlp", product="A100"), user="bob")
    patch = '{"spec":{"schedulingGates":null}}'
    for user in ("bob", ""):  # "" is the platform's admin
        done = kube.attempt("-n", "nlp", "patch", "pod", "e2e-gated", "-p", patch, user=user)
        assert done.code != 0
        assert "is removed by the bridge alone" in done.err
    sbridge.waits("pod/nlp/e2e-gated", "QuotaExceeded")


def test_a_gpu_pod_cannot_name_its_node_past_the_ledger() -> None:
    pod = kube.pod("e2e-bypass", gpus=1, command=["true"])
    pod["spec"]["nodeName"] = "g3"
    done = kube.attempt("create", "-f", "-", user="alice", text=str(pod).replace("'", '"'))
    assert done.code != 0
    assert "would pass by the scheduler and the quota ledger" in done.err


def _deployment() -> kube.Object:
    pod = kube.pod("", gpus=2, command=["sleep", "600"])
    template = {"metadata": {"labels": {"app": "e2e-web"}}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "e2e-web", "namespace": "vision"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "e2e-web"}}, "template": template},
    }


def _ready() -> int:
    return int(kube.get("deployment", "e2e-web", "-n", "vision")["status"].get("readyReplicas", 0))


def _held(team: str) -> int:
    return sum(row["used_total"] for row in sbridge.call("quota")["items"] if row["team"] == team)


def _phase(namespace: str, name: str, phase: str) -> kube.Object | None:
    pod: kube.Object = kube.get("pod", name, "-n", namespace)
    return pod if pod["status"].get("phase") == phase else None


def _ended(workload: str) -> sbridge.Document | None:
    told = sbridge.explain(workload)
    return told if told["workload"]["state"] == "ended" else None
