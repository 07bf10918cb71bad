"""What the bridge relies on in a Gateway: the same tests over the in-memory API server and a real kube-apiserver."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from bridge.clock import SystemClock
from bridge.errors import ConflictError, InvalidInputError, NotFoundError
from bridge.kube import port, tokens
from bridge.kube.events import EventWriter
from bridge.kube.eviction import Outcome, evict
from bridge.kube.fake import FakeKube
from bridge.kube.port import EventType, ExpiredError, Gateway, Kind, Object, PatchType, WatchEvent
from tests import kubebox
from tests.kubebox import unique


@pytest.fixture(params=["fake", "real"])
def gateway(request: pytest.FixtureRequest) -> Gateway:
    return FakeKube() if request.param == "fake" else request.getfixturevalue("kube_box").gateway()


@pytest.fixture
def ns(gateway: Gateway) -> str:
    name = unique("ns")
    gateway.create(port.NAMESPACES, {"metadata": {"name": name}})
    return name


def configmap(name: str, **meta: Any) -> Object:
    return {"metadata": {"name": name, **meta}, "data": {"a": "1"}}


def job(name: str, **meta: Any) -> Object:
    template = {"spec": {**kubebox.pod("x")["spec"], "restartPolicy": "Never"}}
    return {"metadata": {"name": name, **meta}, "spec": {"template": template, "managedBy": "example.org/x"}}


def names(gateway: Gateway, kind: Kind, namespace: str, selector: str = "") -> set[str]:
    found = gateway.list(kind, namespace=namespace, label_selector=selector).items
    return {obj["metadata"]["name"] for obj in found}


def watched(
    gateway: Gateway, kind: Kind, version: str, ns: str, done: Callable[[WatchEvent], bool]
) -> list[WatchEvent]:
    """Return the events up to the one that is looked for; a watch of 10 s bounds it."""
    seen = []
    for event in gateway.watch(kind, version, namespace=ns, timeout_s=10):
        if event.type is not EventType.BOOKMARK:
            seen.append(event)
        if done(event):
            return seen
    raise AssertionError(f"the watch ended before it came: {[(e.type, e.object['metadata']) for e in seen]}")


# --- reading -----------------------------------------------------------------------------------------------------
def test_an_empty_list_is_a_list_with_a_version(gateway: Gateway, ns: str) -> None:
    found = gateway.list(port.PODS, namespace=ns)
    assert found.items == ()
    assert found.resource_version.isdecimal()


def test_listed_objects_say_what_they_are(gateway: Gateway, ns: str) -> None:
    gateway.create(port.JOBS, job("a"), namespace=ns)
    (found,) = gateway.list(port.JOBS, namespace=ns).items
    assert (found["apiVersion"], found["kind"]) == ("batch/v1", "Job")


def test_a_list_is_of_its_namespace_and_labels(gateway: Gateway, ns: str) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {})):
        gateway.create(port.CONFIGMAPS, configmap(name, labels=labels), namespace=ns)
    assert names(gateway, port.CONFIGMAPS, ns, "x=1") == {"a"}
    assert names(gateway, port.CONFIGMAPS, ns, "x") == {"a", "b"}
    assert {"a", "b", "c"} <= names(gateway, port.CONFIGMAPS, ns)
    assert names(gateway, port.CONFIGMAPS, unique("nowhere")) == set()


def test_an_absent_object_is_not_found(gateway: Gateway, ns: str) -> None:
    with pytest.raises(NotFoundError, match="absent"):
        gateway.get(port.PODS, "absent", namespace=ns)


@pytest.mark.parametrize("name", ["", "a/b", ".."])
def test_what_is_no_name_is_refused_before_it_becomes_a_path(gateway: Gateway, ns: str, name: str) -> None:
    with pytest.raises((InvalidInputError, NotFoundError)):
        gateway.get(port.PODS, name, namespace=ns)


def test_the_version_is_one_that_has_the_policies(gateway: Gateway) -> None:
    assert gateway.version() >= (1, 36)


# --- creating ----------------------------------------------------------------------------------------------------
def test_a_created_object_has_an_identity(gateway: Gateway, ns: str) -> None:
    made = gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"]) == ("a", ns)
    assert meta["uid"]
    assert meta["resourceVersion"].isdecimal()
    assert gateway.get(port.CONFIGMAPS, "a", namespace=ns)["metadata"]["uid"] == meta["uid"]


def test_a_name_is_taken_once(gateway: Gateway, ns: str) -> None:
    gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)
    with pytest.raises(ConflictError, match="already exists"):
        gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)


def test_a_name_is_generated(gateway: Gateway, ns: str) -> None:
    wanted = {"metadata": {"generateName": "a-"}}
    made = {gateway.create(port.CONFIGMAPS, wanted, namespace=ns)["metadata"]["name"] for _ in range(3)}
    assert len(made) == 3
    assert all(name.startswith("a-") for name in made)


def test_an_object_without_a_namespace_is_refused_here(gateway: Gateway) -> None:
    with pytest.raises(InvalidInputError, match="'a' is in a namespace: name it"):
        gateway.create(port.CONFIGMAPS, configmap("a"))


# --- patching ----------------------------------------------------------------------------------------------------
def test_a_merge_patch_sets_and_removes(gateway: Gateway, ns: str) -> None:
    gateway.create(port.CONFIGMAPS, configmap("a", labels={"x": "1"}), namespace=ns)
    change = {"metadata": {"labels": {"x": None, "y": "2"}}, "data": {"b": "2"}}
    made = gateway.patch(port.CONFIGMAPS, "a", change, namespace=ns)
    assert made["metadata"]["labels"] == {"y": "2"}
    assert made["data"] == {"a": "1", "b": "2"}


def test_a_patch_of_an_older_version_or_another_uid_conflicts(gateway: Gateway, ns: str) -> None:
    first = gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)["metadata"]
    gateway.patch(port.CONFIGMAPS, "a", {"data": {"b": "2"}}, namespace=ns)
    for meta in ({"resourceVersion": first["resourceVersion"]}, {"uid": "another"}):
        with pytest.raises(ConflictError):
            gateway.patch(port.CONFIGMAPS, "a", {"metadata": meta, "data": {"c": "3"}}, namespace=ns)
    assert "c" not in gateway.get(port.CONFIGMAPS, "a", namespace=ns)["data"]


def test_a_patch_that_changes_nothing_makes_no_version(gateway: Gateway, ns: str) -> None:
    gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)
    first = gateway.get(port.CONFIGMAPS, "a", namespace=ns)["metadata"]["resourceVersion"]
    made = gateway.patch(port.CONFIGMAPS, "a", {"data": {"a": "1"}}, namespace=ns)
    assert made["metadata"]["resourceVersion"] == first


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/b", "value": "1"},
        {"op": "test", "path": "/nothing/here", "value": "1"},
        {"op": "remove", "path": "/data/b"},
    ],
)
def test_a_json_patch_that_does_not_fit_changes_nothing(gateway: Gateway, ns: str, operation: Object) -> None:
    gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)
    operations = [{"op": "add", "path": "/data/c", "value": "3"}, operation]
    with pytest.raises(ConflictError):
        gateway.patch(port.CONFIGMAPS, "a", operations, namespace=ns, type=PatchType.JSON)
    assert gateway.get(port.CONFIGMAPS, "a", namespace=ns)["data"] == {"a": "1"}


def test_one_json_patch_pins_and_opens_a_gated_pod(gateway: Gateway, ns: str) -> None:
    pod = kubebox.pod("a")
    pod["spec"]["schedulingGates"] = [{"name": "x/one"}, {"name": "x/two"}]
    made = gateway.create(port.PODS, pod, namespace=ns)
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "test", "path": "/spec/schedulingGates/1", "value": {"name": "x/two"}},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
        {"op": "add", "path": "/spec/nodeSelector", "value": {"kubernetes.io/hostname": "g1"}},
    ]
    opened = gateway.patch(port.PODS, "a", operations, namespace=ns, type=PatchType.JSON)
    assert opened["spec"]["schedulingGates"] == [{"name": "x/one"}]
    assert opened["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "g1"}


def test_a_strategic_patch_keeps_other_conditions(gateway: Gateway, ns: str) -> None:
    gateway.create(port.PODS, kubebox.pod("a"), namespace=ns)
    for name, status in (("x/one", "True"), ("x/two", "True"), ("x/one", "False")):
        made = gateway.patch(
            port.PODS,
            "a",
            {"status": {"conditions": [{"type": name, "status": status, "reason": "R"}]}},
            namespace=ns,
            type=PatchType.STRATEGIC,
            subresource="status",
        )
    told = {c["type"]: c["status"] for c in made["status"]["conditions"]}
    assert told == {"x/one": "False", "x/two": "True"}


def test_status_and_the_rest_are_written_separately(gateway: Gateway, ns: str) -> None:
    gateway.create(port.JOBS, job("a"), namespace=ns)
    both = {"spec": {"suspend": True}, "status": {"active": 1, "startTime": "2026-01-01T00:00:00Z"}}
    made = gateway.patch(port.JOBS, "a", both, namespace=ns, subresource="status")
    assert made["status"]["active"] == 1
    assert not made["spec"].get("suspend")
    made = gateway.patch(port.JOBS, "a", {"status": {"active": 5}, "spec": {"suspend": True}}, namespace=ns)
    assert made["status"]["active"] == 1
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["generation"] == 2


def test_apply_makes_and_changes(gateway: Gateway, ns: str) -> None:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", **configmap("a")}
    first = gateway.patch(port.CONFIGMAPS, "a", wanted, namespace=ns, type=PatchType.APPLY, force=True)
    wanted["data"] = {"a": "2"}
    second = gateway.patch(port.CONFIGMAPS, "a", wanted, namespace=ns, type=PatchType.APPLY, force=True)
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert second["data"] == {"a": "2"}
    again = gateway.patch(port.CONFIGMAPS, "a", wanted, namespace=ns, type=PatchType.APPLY, force=True)
    assert again["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_a_patch_of_an_absent_object_is_not_found(gateway: Gateway, ns: str) -> None:
    with pytest.raises(NotFoundError):
        gateway.patch(port.CONFIGMAPS, "absent", {"data": {}}, namespace=ns)


# --- deleting ----------------------------------------------------------------------------------------------------
def test_a_delete_is_of_the_very_object(gateway: Gateway, ns: str) -> None:
    uid = gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)["metadata"]["uid"]
    with pytest.raises(ConflictError):
        gateway.delete(port.CONFIGMAPS, "a", namespace=ns, uid="another")
    gateway.delete(port.CONFIGMAPS, "a", namespace=ns, uid=uid)
    with pytest.raises(NotFoundError):
        gateway.delete(port.CONFIGMAPS, "a", namespace=ns, uid=uid)


def test_a_finalizer_keeps_an_object_until_it_is_taken_off(gateway: Gateway, ns: str) -> None:
    gateway.create(port.JOBS, job("a", finalizers=["example.org/keep"]), namespace=ns)
    gateway.delete(port.JOBS, "a", namespace=ns)
    assert gateway.get(port.JOBS, "a", namespace=ns)["metadata"]["deletionTimestamp"]
    operations = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": "example.org/keep"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    gateway.patch(port.JOBS, "a", operations, namespace=ns, type=PatchType.JSON)
    with pytest.raises(NotFoundError):
        gateway.get(port.JOBS, "a", namespace=ns)


def test_a_pod_on_a_node_is_only_asked_to_go_and_one_on_none_goes_at_once(gateway: Gateway, ns: str) -> None:
    bound = kubebox.pod("bound")
    bound["spec"]["nodeName"] = "g1"
    gateway.create(port.PODS, bound, namespace=ns)
    gateway.create(port.PODS, kubebox.pod("waiting"), namespace=ns)
    for name in ("bound", "waiting"):
        gateway.delete(port.PODS, name, namespace=ns)
    going = gateway.get(port.PODS, "bound", namespace=ns)
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    assert names(gateway, port.PODS, ns) == {"bound"}
    gateway.delete(port.PODS, "bound", namespace=ns, grace_s=0)  # as its kubelet does when the containers ended
    assert names(gateway, port.PODS, ns) == set()


def test_an_eviction_is_refused_while_a_budget_protects_the_pod(gateway: Gateway, ns: str) -> None:
    pod = kubebox.pod("a", labels={"app": "x"})
    pod["spec"]["nodeName"] = "g1"
    made = gateway.create(port.PODS, pod, namespace=ns)
    gateway.patch(
        port.PODS,
        "a",
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        namespace=ns,
        type=PatchType.STRATEGIC,
        subresource="status",
    )
    budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}}}
    gateway.create(port.PDBS, budget, namespace=ns)
    refused = evict(gateway, made)
    assert refused.outcome is Outcome.REFUSED
    assert "disruption budget" in refused.sentence
    assert "deletionTimestamp" not in gateway.get(port.PODS, "a", namespace=ns)["metadata"]
    gateway.delete(port.PDBS, "b", namespace=ns)
    assert evict(gateway, made).outcome is Outcome.BEGUN
    assert gateway.get(port.PODS, "a", namespace=ns)["metadata"]["deletionTimestamp"]


def test_only_this_very_pod_is_evicted(gateway: Gateway, ns: str) -> None:
    made = gateway.create(port.PODS, kubebox.pod("a"), namespace=ns)
    stranger = {"metadata": {**made["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    assert evict(gateway, stranger).outcome is Outcome.GONE
    assert "deletionTimestamp" not in gateway.get(port.PODS, "a", namespace=ns)["metadata"]
    nobody = {"metadata": {**made["metadata"], "name": "b"}}
    assert evict(gateway, nobody).outcome is Outcome.GONE


# --- watching ----------------------------------------------------------------------------------------------------
def test_a_watch_tells_everything_after_its_version_in_order(gateway: Gateway, ns: str) -> None:
    gateway.create(port.CONFIGMAPS, configmap("before"), namespace=ns)
    version = gateway.list(port.CONFIGMAPS, namespace=ns).resource_version
    gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)
    gateway.patch(port.CONFIGMAPS, "a", {"data": {"a": "2"}}, namespace=ns)
    gateway.delete(port.CONFIGMAPS, "a", namespace=ns)
    seen = watched(gateway, port.CONFIGMAPS, version, ns, lambda e: e.type is EventType.DELETED)
    mine = [e for e in seen if e.object["metadata"]["name"] == "a"]
    assert [e.type for e in mine] == [EventType.ADDED, EventType.MODIFIED, EventType.DELETED]
    versions = [int(e.object["metadata"]["resourceVersion"]) for e in mine]
    assert versions == sorted(set(versions))
    assert "before" not in [e.object["metadata"]["name"] for e in seen]


def test_a_watch_tells_what_happens_while_it_runs(gateway: Gateway, ns: str) -> None:
    version = gateway.list(port.CONFIGMAPS, namespace=ns).resource_version
    timer = threading.Timer(0.3, lambda: gateway.create(port.CONFIGMAPS, configmap("late"), namespace=ns))
    timer.start()
    watched(gateway, port.CONFIGMAPS, version, ns, lambda e: e.object["metadata"].get("name") == "late")
    timer.join()


def test_a_watch_ends_by_itself_at_its_timeout(gateway: Gateway, ns: str) -> None:
    version = gateway.list(port.PODS, namespace=ns).resource_version
    assert [e.type for e in gateway.watch(port.PODS, version, namespace=ns, timeout_s=1)] in ([], [EventType.BOOKMARK])


def test_a_watch_of_a_forgotten_version_says_so(request: pytest.FixtureRequest, gateway: Gateway, ns: str) -> None:
    old = gateway.list(port.CONFIGMAPS, namespace=ns).resource_version
    gateway.create(port.CONFIGMAPS, configmap("a"), namespace=ns)
    if isinstance(gateway, FakeKube):
        gateway.compact()
    else:
        box = request.getfixturevalue("kube_box")
        box.run("sh", "-c", compacting(gateway.list(port.CONFIGMAPS).resource_version))
        box.kill_api_server()  # its own cache still knows the old versions
        box.wait_ready()
    with pytest.raises(ExpiredError):
        watched(gateway, port.CONFIGMAPS, old, ns, lambda _: True)


def compacting(version: str) -> str:
    return f"ETCDCTL_API=3 etcdctl compact {version}"


# --- events ----------------------------------------------------------------------------------------------------
def test_events_are_accepted_about_things_in_namespaces_and_not(gateway: Gateway, ns: str) -> None:
    pod = gateway.create(port.PODS, kubebox.pod("a"), namespace=ns)
    node = gateway.create(port.NODES, {"metadata": {"name": unique("node")}})
    writer = EventWriter(gateway, SystemClock())
    for about in (pod, node):
        writer.emit(about, "Seen", "it is there", warning=False)
    for about, namespace in ((pod, ns), (node, "default")):
        told = [e["involvedObject"]["uid"] for e in gateway.list(port.EVENTS, namespace=namespace).items]
        assert about["metadata"]["uid"] in told


# --- tokens ------------------------------------------------------------------------------------------------------
def test_a_token_of_an_account_is_made_and_recognized(gateway: Gateway, ns: str) -> None:
    accounts = Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
    gateway.create(accounts, {"metadata": {"name": "robot"}}, namespace=ns)
    token = tokens.service_account_token(gateway, ns, "robot", lifespan_s=600)
    found = tokens.review(gateway, token)
    assert found is not None
    assert found.username == f"system:serviceaccount:{ns}:robot"
    assert "system:serviceaccounts" in found.groups


def test_a_strangers_token_is_nobodys(gateway: Gateway) -> None:
    assert tokens.review(gateway, "nonsense") is None
