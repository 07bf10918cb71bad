"""Pods to workloads: effective requests, flavors, life and times."""

from typing import Any

import pytest

from bridge import wellknown
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads import pods, scheduling
from bridge.workloads.flavors import Flavors, FlavorSpec
from bridge.workloads.model import NodeName, System, Workload
from bridge.workloads.reasons import Reason, Waiting
from bridge.workloads.tenants import Member, Tenant, Tenants

GPU = "nvidia.com/gpu"
PRODUCT = wellknown.GPU_PRODUCT_LABEL
FLAVORS = Flavors.of(
    [
        FlavorSpec(FlavorName("h100"), GPU, {PRODUCT: "H100"}, "h100", default=True),
        FlavorSpec(FlavorName("a100"), GPU, {PRODUCT: "A100"}, "a100"),
    ]
)
TENANTS = Tenants.of([Tenant(TeamName("vision"), "vision", (Member("alice", "alice", 2001, 2001),), "alice")])
NAMESPACES = {"vision": {"metadata": {"name": "vision", "labels": {wellknown.TEAM_LABEL: "vision"}}}}
NODES = {
    NodeName("g1"): {"metadata": {"name": "g1", "labels": {PRODUCT: "H100"}}, "spec": {}},
    NodeName("g3"): {"metadata": {"name": "g3", "labels": {PRODUCT: "A100"}}, "spec": {}},
}


def pod(gpus: int = 2, *, gates: bool = True, **spec: Any) -> dict[str, Any]:
    body = {
        "containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}],
        **({"schedulingGates": [{"name": wellknown.QUOTA_GATE}]} if gates else {}),
        **spec,
    }
    meta = {"name": "p", "namespace": "vision", "uid": "u1", "creationTimestamp": "2026-12-01T12:00:00Z"}
    return {"metadata": meta, "spec": body, "status": {"phase": "Pending"}}


def translate(p: dict[str, Any]) -> Workload | Waiting:
    return pods.workload(p, NAMESPACES, NODES, TENANTS, FLAVORS)


def test_a_pod_without_selector_means_the_default_flavor_and_its_namespace_team() -> None:
    found = translate(pod(2))
    assert isinstance(found, Workload)
    assert (found.team, found.flavor, found.gpus, found.system) == ("vision", "h100", 2, System.KUBERNETES)
    assert found.id == "pod/u1"


def test_a_selector_names_its_flavor_and_bounds_the_nodes() -> None:
    found = translate(pod(1, nodeSelector={PRODUCT: "A100"}))
    assert isinstance(found, Workload)
    assert found.flavor == "a100"
    assert found.within_nodes == frozenset({NodeName("g3")})


def test_an_unknown_product_is_refused_with_the_known_flavors() -> None:
    found = translate(pod(1, nodeSelector={PRODUCT: "B300"}))
    assert isinstance(found, Waiting)
    assert found.reason is Reason.NO_SUCH_FLAVOR
    assert "a100, h100" in found.text


def test_the_effective_request_is_the_larger_of_containers_and_any_init_container() -> None:
    p = pod(2)
    p["spec"]["containers"].append({"name": "d", "resources": {"limits": {GPU: "1"}}})
    p["spec"]["initContainers"] = [
        {"name": "i", "resources": {"limits": {GPU: "4"}}},
        {"name": "s", "restartPolicy": "Always", "resources": {"limits": {GPU: "1"}}},
    ]
    assert pods.request(p, [GPU]) == pods.PodRequest(GPU, 4)
    p["spec"]["initContainers"][0]["resources"]["limits"][GPU] = "2"
    assert pods.request(p, [GPU]) == pods.PodRequest(GPU, 4)


def test_life_runs_from_gate_to_stopped_containers_and_deletion_alone_ends_nothing() -> None:
    p = pod()
    assert pods.life(p) is pods.PodLife.GATED
    p["spec"]["schedulingGates"] = []
    assert pods.life(p) is pods.PodLife.STARTING
    p["status"]["containerStatuses"] = [{"state": {"running": {"startedAt": "2026-12-01T12:00:05Z"}}}]
    p["metadata"]["deletionTimestamp"] = "2026-12-01T12:01:00Z"
    assert pods.life(p) is pods.PodLife.RUNNING
    assert pods.ended_ms(p) is None
    ended = {"startedAt": "2026-12-01T12:00:05Z", "finishedAt": "2026-12-01T12:01:05Z"}
    p["status"] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
    assert pods.life(p) is pods.PodLife.ENDED
    assert (pods.ended_ms(p) or 0) - (pods.started_ms(p) or 0) == 60_000


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "DoesNotExist"}, True),
        ({"key": "a", "operator": "Gt", "values": ["0"]}, True),
        ({"key": "a", "operator": "Lt", "values": ["1"]}, False),
        ({"key": "a", "operator": "Nonsense"}, False),
    ],
)
def test_node_affinity_follows_kubernetes(expression: dict[str, Any], matches: bool) -> None:
    node = {"metadata": {"name": "n", "labels": {"a": "1"}}}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    assert scheduling.selects(spec, node) is matches


def test_an_untolerated_taint_keeps_a_pod_off_and_a_toleration_lets_it_on() -> None:
    node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}
    assert not scheduling.tolerates({}, node)
    assert scheduling.tolerates({"tolerations": [{"operator": "Exists"}]}, node)
    assert scheduling.tolerates({"tolerations": [{"key": "k", "value": "v"}]}, node)
    assert not scheduling.tolerates({"tolerations": [{"key": "k", "value": "w"}]}, node)
