"""Every rule of deploy/policies against a real kube-apiserver with a controller-manager, as the users it is about."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge import wellknown
from bridge.errors import RejectedError
from bridge.kube import port
from bridge.kube.gateway import KubeGateway
from bridge.kube.port import Object, PatchType
from tests import kubebox
from tests.kubebox import KubeBox, unique
from tests.kubewait import wait

ROOT = Path(__file__).resolve().parents[2]
BRIDGE = wellknown.CONTROLLER_USERNAME
VISION = {wellknown.TEAM_LABEL: "vision"}
GATE = {"name": wellknown.QUOTA_GATE}


@pytest.fixture(scope="module")
def box() -> Iterator[KubeBox]:
    with KubeBox(controllers=True) as running:
        for path in sorted((ROOT / "deploy" / "policies").glob("*.yaml")):
            if path.name != "kustomization.yaml":
                running.apply_file(path)
        allow(running, "bridge", [rule("*", "*", "*")], BRIDGE)
        everything = [rule(["", "batch", "apps"], "*", "*")]
        allow(running, "tenant", everything, "alice")
        allow(running, "tenant-mallory", everything, "mallory")
        allow(running, "assigner", [*everything, rule("slurmbridge.dev", "teams", "assign", names=["vision"])], "ada")
        running.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision", "labels": VISION}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slurm"}},
        )
        for name in ("vision", "slurm"):
            wait(f"{name} has a service account", partial(has_account, running, name), 60, running.log)
        wait("the policies act", lambda: acting(running))
        yield running


@pytest.fixture
def alice(box: KubeBox) -> KubeGateway:
    return box.gateway("alice")


@pytest.fixture
def bridge(box: KubeBox) -> KubeGateway:
    return box.gateway(BRIDGE)


def rule(groups: str | list[str], resources: str, verbs: str, names: list[str] | None = None) -> Object:
    listed = groups if isinstance(groups, list) else [groups]
    return {
        "apiGroups": listed,
        "resources": [resources],
        "verbs": [verbs],
        **({"resourceNames": names} if names else {}),
    }


def allow(box: KubeBox, name: str, rules: list[Object], user: str) -> None:
    rbac = "rbac.authorization.k8s.io"
    box.apply(
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        },
    )


def acting(box: KubeBox) -> bool:
    """Return whether every policy has reached the API server's admission (it takes about two seconds)."""
    gateway = box.gateway("alice")
    made = gateway.create(port.PODS, gpu_pod(), namespace="vision")
    job = gateway.create(port.JOBS, gpu_job(), namespace="vision")
    if "schedulingGates" not in made["spec"] or "managedBy" not in job["spec"]:
        return False
    forged = {"metadata": {"annotations": {wellknown.SUBMITTED_BY: "bob"}}}
    taken = {"metadata": {"labels": {wellknown.TEAM_LABEL: None}}}
    refused = [
        refuses(lambda: gateway.patch(port.PODS, made["metadata"]["name"], forged, namespace="vision")),
        refuses(lambda: gateway.patch(port.JOBS, job["metadata"]["name"], forged, namespace="vision")),
        refuses(lambda: box.gateway("mallory").patch(port.NAMESPACES, "vision", taken)),
    ]
    if not refused[2]:
        box.gateway().patch(port.NAMESPACES, "vision", {"metadata": {"labels": VISION}})
    return all(refused)


def refuses(write: Callable[[], object]) -> bool:
    try:
        write()
    except RejectedError:
        return True
    return False


def has_account(box: KubeBox, namespace: str) -> bool:
    accounts = port.Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
    return len(box.gateway().list(accounts, namespace=namespace).items) > 0


def gpu_pod(gpus: int = 1, resource: str = "nvidia.com/gpu", **spec: Any) -> Object:
    pod = kubebox.pod(unique("pod"), gpus=gpus, resource=resource)
    return {**pod, "spec": {**pod["spec"], **spec}}


def gpu_job(gpus: int = 1, **spec: Any) -> Object:
    template = {"spec": {**kubebox.pod("x", gpus=gpus)["spec"], "restartPolicy": "Never"}}
    return {"metadata": {"name": unique("job")}, "spec": {"template": template, **spec}}


def labels(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def gates(pod: Object) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]


def without_gate(gateway: KubeGateway, pod: Object) -> Object:
    where = f"/spec/schedulingGates/{gates(pod).index(wellknown.QUOTA_GATE)}"
    operations: list[Object] = [{"op": "test", "path": where, "value": GATE}, {"op": "remove", "path": where}]
    name = pod["metadata"]["name"]
    return gateway.patch(port.PODS, name, operations, namespace="vision", type=PatchType.JSON)


# --- pods --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"])
def test_a_gpu_pod_of_a_team_waits_for_the_ledger_and_says_who_asked(alice: KubeGateway, resource: str) -> None:
    made = alice.create(port.PODS, gpu_pod(resource=resource), namespace="vision")
    assert gates(made) == [wellknown.QUOTA_GATE]
    assert labels(made)[wellknown.TEAM_LABEL] == "vision"
    assert annotations(made)[wellknown.SUBMITTED_BY] == "alice"


def test_gpus_of_an_init_container_count_too(alice: KubeGateway) -> None:
    pod = kubebox.pod(unique("pod"))
    pod["spec"]["initContainers"] = [{**kubebox.pod("x", gpus=2)["spec"]["containers"][0], "name": "first"}]
    assert gates(alice.create(port.PODS, pod, namespace="vision")) == [wellknown.QUOTA_GATE]


def test_other_gates_and_labels_of_the_user_stay(alice: KubeGateway) -> None:
    pod = gpu_pod(schedulingGates=[{"name": "example.org/mine"}])
    pod["metadata"]["labels"] = {"app": "x"}
    made = alice.create(port.PODS, pod, namespace="vision")
    assert sorted(gates(made)) == ["example.org/mine", wellknown.QUOTA_GATE]
    assert labels(made) == {"app": "x", **VISION}


@pytest.mark.parametrize("gpus", ["none", "zero"])
def test_a_pod_without_gpus_passes_untouched(alice: KubeGateway, gpus: str) -> None:
    pod = kubebox.pod(unique("pod"))
    if gpus == "zero":
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0"}}
    made = alice.create(port.PODS, pod, namespace="vision")
    assert gates(made) == []
    assert wellknown.TEAM_LABEL not in labels(made)


def test_pods_outside_of_teams_are_left_alone_so_workers_start_at_once(bridge: KubeGateway) -> None:
    made = bridge.create(port.PODS, gpu_pod(priorityClassName="system-cluster-critical"), namespace="slurm")
    assert gates(made) == []


def test_who_asked_and_the_team_cannot_be_forged_at_creation(alice: KubeGateway) -> None:
    pod = gpu_pod()
    pod["metadata"] |= {"labels": {wellknown.TEAM_LABEL: "nlp"}, "annotations": {wellknown.SUBMITTED_BY: "bob"}}
    made = alice.create(port.PODS, pod, namespace="vision")
    assert (labels(made)[wellknown.TEAM_LABEL], annotations(made)[wellknown.SUBMITTED_BY]) == ("vision", "alice")


@pytest.mark.parametrize("user", ["alice", "admin"])
def test_nobody_but_the_bridge_opens_the_gate(box: KubeBox, alice: KubeGateway, user: str) -> None:
    pod = alice.create(port.PODS, gpu_pod(), namespace="vision")
    with pytest.raises(RejectedError, match="removed by the bridge alone"):
        without_gate(box.gateway(user), pod)


def test_the_bridge_pins_and_opens_the_gate(alice: KubeGateway, bridge: KubeGateway) -> None:
    pod = alice.create(port.PODS, gpu_pod(), namespace="vision")
    name = pod["metadata"]["name"]
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]},
        {"op": "test", "path": "/spec/schedulingGates/0", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "add", "path": "/spec/nodeSelector", "value": {wellknown.HOSTNAME_LABEL: "g1"}},
    ]
    opened = bridge.patch(port.PODS, name, operations, namespace="vision", type=PatchType.JSON)
    assert gates(opened) == []
    assert opened["spec"]["nodeSelector"] == {wellknown.HOSTNAME_LABEL: "g1"}


def test_a_user_may_open_his_own_other_gate(alice: KubeGateway) -> None:
    pod = alice.create(port.PODS, gpu_pod(schedulingGates=[{"name": "example.org/mine"}]), namespace="vision")
    wanted = {"spec": {"schedulingGates": [{"name": wellknown.QUOTA_GATE}]}}
    assert gates(alice.patch(port.PODS, pod["metadata"]["name"], wanted, namespace="vision")) == [wellknown.QUOTA_GATE]


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(
    "change",
    [
        {"labels": {wellknown.TEAM_LABEL: "nlp"}},
        {"labels": {wellknown.TEAM_LABEL: None}},
        {"annotations": {wellknown.SUBMITTED_BY: "bob"}},
        {"annotations": {wellknown.SUBMITTED_BY: None}},
    ],
)
def test_whose_quota_a_pod_uses_cannot_be_changed(alice: KubeGateway, change: Object, subresource: str) -> None:
    pod = alice.create(port.PODS, gpu_pod(), namespace="vision")
    name = pod["metadata"]["name"]
    with pytest.raises(RejectedError, match="cannot be changed; make a new pod instead"):
        alice.patch(port.PODS, name, {"metadata": change}, namespace="vision", subresource=subresource)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"nodeName": "g1"}, "spec.nodeName of a GPU pod would pass by the scheduler"),
        ({"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}, "does not count; ask for GPUs under"),
        ({"priorityClassName": "system-node-critical"}, "spec.priorityClassName system-node-critical would let"),
    ],
)
def test_ways_around_the_ledger_are_refused_with_the_way_out(alice: KubeGateway, spec: Object, sentence: str) -> None:
    with pytest.raises(RejectedError, match=sentence):
        alice.create(port.PODS, gpu_pod(**spec), namespace="vision")


@pytest.mark.parametrize("label", ["component", "nodeset", "node", "mirror-of"])
def test_no_pod_of_a_team_passes_for_one_of_the_bridges(alice: KubeGateway, bridge: KubeGateway, label: str) -> None:
    marked = {"labels": {f"{wellknown.GROUP}/{label}": "worker"}}
    mirror = kubebox.pod(unique("mirror"), labels=marked["labels"])
    with pytest.raises(RejectedError, match="it alone sets them"):
        alice.create(port.PODS, mirror, namespace="vision")
    bridge.create(port.PODS, mirror, namespace="vision")
    plain = alice.create(port.PODS, kubebox.pod(unique("pod")), namespace="vision")["metadata"]["name"]
    for subresource in ("", "status"):
        with pytest.raises(RejectedError, match="it alone sets them"):
            alice.patch(port.PODS, plain, {"metadata": marked}, namespace="vision", subresource=subresource)
    other = {"metadata": {"labels": {"mine": "1"}}}
    assert labels(alice.patch(port.PODS, mirror["metadata"]["name"], other, namespace="vision"))["mine"] == "1"


def test_a_pod_of_a_team_without_gpus_may_name_its_node(alice: KubeGateway) -> None:
    assert alice.create(port.PODS, gpu_pod(gpus=0, nodeName="g1"), namespace="vision")["spec"]["nodeName"] == "g1"


def test_pods_of_a_deployment_wait_too_and_its_controller_asked(box: KubeBox, alice: KubeGateway) -> None:
    name = unique("web")
    pod = kubebox.pod("x", gpus=2)
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    alice.create(port.DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec}, namespace="vision")

    def pods() -> tuple[Object, ...]:
        return alice.list(port.PODS, namespace="vision", label_selector=f"app={name}").items

    wait("two pods exist", lambda: len(pods()) == 2, told=box.log)
    assert all(gates(p) == [wellknown.QUOTA_GATE] for p in pods())
    assert {annotations(p)[wellknown.SUBMITTED_BY] for p in pods()} == {
        "system:serviceaccount:kube-system:replicaset-controller"
    }


# --- Jobs --------------------------------------------------------------------------------------------------------
def test_a_gpu_job_goes_to_slurm_as_its_user_and_the_job_controller_leaves_it(alice: KubeGateway) -> None:
    job = alice.create(port.JOBS, gpu_job(parallelism=2, completions=2), namespace="vision")
    other = alice.create(port.JOBS, gpu_job(gpus=0), namespace="vision")
    assert job["spec"]["managedBy"] == wellknown.JOB_MANAGED_BY
    assert job["metadata"]["finalizers"] == [wellknown.JOB_FINALIZER]
    assert labels(job)[wellknown.TEAM_LABEL] == "vision"
    assert annotations(job)[wellknown.SUBMITTED_BY] == "alice"

    def pods(name: str) -> tuple[Object, ...]:
        return alice.list(port.PODS, namespace="vision", label_selector=f"job-name={name}").items

    wait("the other Job, made later, has its pod", lambda: pods(other["metadata"]["name"]))
    assert pods(job["metadata"]["name"]) == ()


def test_a_job_that_opts_out_stays_with_kubernetes_and_its_pods_wait(alice: KubeGateway) -> None:
    wanted = gpu_job()
    wanted["metadata"]["labels"] = {wellknown.ROUTE_LABEL: wellknown.ROUTE_KUBERNETES}
    job = alice.create(port.JOBS, wanted, namespace="vision")
    assert "managedBy" not in job["spec"]
    assert "finalizers" not in job["metadata"]

    def pods() -> tuple[Object, ...]:
        selector = f"job-name={job['metadata']['name']}"
        return alice.list(port.PODS, namespace="vision", label_selector=selector).items

    wait("its pod exists", pods)
    assert gates(pods()[0]) == [wellknown.QUOTA_GATE]


def test_a_job_of_another_manager_is_left_to_it(alice: KubeGateway) -> None:
    job = alice.create(port.JOBS, gpu_job(managedBy="kueue.x-k8s.io/multikueue"), namespace="vision")
    assert job["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"
    assert "finalizers" not in job["metadata"]


def test_jobs_without_gpus_or_outside_of_teams_pass_untouched(alice: KubeGateway) -> None:
    for namespace, gpus in (("vision", 0), ("slurm", 1)):
        job = alice.create(port.JOBS, gpu_job(gpus=gpus), namespace=namespace)
        assert "managedBy" not in job["spec"]


@pytest.mark.parametrize(
    ("namespace", "gpus", "route", "sentence"),
    [
        ("vision", 0, "", "this one asks for none; remove spec.managedBy"),
        ("slurm", 1, "", "namespace slurm belongs to no team"),
        ("vision", 1, "kubernetes", "keep one of the two"),
    ],
)
def test_managed_by_slurm_where_slurm_would_not_run_it_is_refused(
    alice: KubeGateway, namespace: str, gpus: int, route: str, sentence: str
) -> None:
    wanted = gpu_job(gpus=gpus, managedBy=wellknown.JOB_MANAGED_BY)
    if route:
        wanted["metadata"]["labels"] = {wellknown.ROUTE_LABEL: route}
    with pytest.raises(RejectedError, match=sentence):
        alice.create(port.JOBS, wanted, namespace=namespace)


def test_who_asked_for_a_job_cannot_be_forged_or_changed(alice: KubeGateway) -> None:
    wanted = gpu_job()
    wanted["metadata"] |= {"annotations": {wellknown.SUBMITTED_BY: "bob"}, "labels": {wellknown.TEAM_LABEL: "nlp"}}
    job = alice.create(port.JOBS, wanted, namespace="vision")
    assert annotations(job)[wellknown.SUBMITTED_BY] == "alice"
    for change in ({"annotations": {wellknown.SUBMITTED_BY: "bob"}}, {"labels": {wellknown.TEAM_LABEL: None}}):
        for subresource in ("", "status"):
            with pytest.raises(RejectedError, match="make a new Job instead"):
                alice.patch(
                    port.JOBS,
                    job["metadata"]["name"],
                    {"metadata": change},
                    namespace="vision",
                    subresource=subresource,
                )


@pytest.mark.parametrize("subresource", ["", "status"])
def test_a_user_cannot_let_go_of_a_job_whose_slurm_job_may_still_run(alice: KubeGateway, subresource: str) -> None:
    job = alice.create(port.JOBS, gpu_job(), namespace="vision")
    name = job["metadata"]["name"]
    alice.delete(port.JOBS, name, namespace="vision")
    with pytest.raises(RejectedError, match="removed by the bridge when the Slurm job has ended"):
        alice.patch(port.JOBS, name, {"metadata": {"finalizers": None}}, namespace="vision", subresource=subresource)
    assert alice.get(port.JOBS, name, namespace="vision")["metadata"]["finalizers"] == [wellknown.JOB_FINALIZER]


@pytest.mark.parametrize("user", [BRIDGE, "admin"])
def test_the_bridge_and_in_need_an_admin_let_a_job_go(box: KubeBox, alice: KubeGateway, user: str) -> None:
    job = alice.create(port.JOBS, gpu_job(), namespace="vision")
    name = job["metadata"]["name"]
    alice.delete(port.JOBS, name, namespace="vision")
    box.gateway(user).patch(port.JOBS, name, {"metadata": {"finalizers": None}}, namespace="vision")
    assert name not in [j["metadata"]["name"] for j in alice.list(port.JOBS, namespace="vision").items]


# --- namespaces --------------------------------------------------------------------------------------------------
def namespace(name: str, team: str | None) -> Object:
    return {"metadata": {"name": name, "labels": {wellknown.TEAM_LABEL: team} if team else {}}}


@pytest.mark.parametrize("user", ["ada", "admin"])
def test_who_holds_assign_on_a_team_gives_and_takes_its_namespaces(box: KubeBox, user: str) -> None:
    gateway, name = box.gateway(user), unique("ns")
    gateway.create(port.NAMESPACES, namespace(name, "vision"))
    gateway.patch(port.NAMESPACES, name, {"metadata": {"labels": {wellknown.TEAM_LABEL: None}}})
    made = gateway.patch(port.NAMESPACES, name, {"metadata": {"labels": VISION}})
    assert labels(made)[wellknown.TEAM_LABEL] == "vision"


def test_without_assign_nobody_gives_a_namespace_to_a_team(box: KubeBox) -> None:
    with pytest.raises(RejectedError, match=r"slurmbridge\.dev/team=vision: mallory may not give"):
        box.gateway("mallory").create(port.NAMESPACES, namespace(unique("ns"), "vision"))
    with pytest.raises(RejectedError, match=r"slurmbridge\.dev/team=nlp: ada may not give"):
        box.gateway("ada").create(port.NAMESPACES, namespace(unique("ns"), "nlp"))


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("team", ["nlp", None])
def test_without_assign_nobody_takes_a_namespace_from_its_team(
    box: KubeBox, team: str | None, subresource: str
) -> None:
    change = {"metadata": {"labels": {wellknown.TEAM_LABEL: team}}}
    with pytest.raises(RejectedError, match=r"slurmbridge\.dev/team=.*: mallory may not"):
        box.gateway("mallory").patch(port.NAMESPACES, "vision", change, subresource=subresource)


def test_other_labels_of_a_namespace_are_free(box: KubeBox) -> None:
    name = unique("ns")
    box.gateway().create(port.NAMESPACES, namespace(name, "vision"))
    made = box.gateway("mallory").patch(port.NAMESPACES, name, {"metadata": {"labels": {"a": "b"}}})
    assert labels(made)["a"] == "b"


# --- the policies themselves -------------------------------------------------------------------------------------
def test_the_type_checker_of_the_api_server_finds_nothing(box: KubeBox) -> None:
    policies = port.Kind(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        namespaced=False,
    )

    def checked() -> list[Object]:
        found = box.gateway().list(policies).items
        return [p["status"] for p in found if (p.get("status") or {}).get("observedGeneration")]

    wait("all are checked", lambda: len(checked()) == 3, told=box.log)
    assert [s["typeChecking"] for s in checked() if s.get("typeChecking")] == []
