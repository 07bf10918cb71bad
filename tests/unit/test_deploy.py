"""`make deploy`: what is checked first and in which words, what the generated overlay says, what stays on undeploy."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from deploy import overlay, preflight, removal, waiting  # noqa: E402
from deploy.kubectl import DeployError, Kubectl  # noqa: E402


class Recorded(Kubectl):
    """kubectl with canned lists, that remembers what it was told to do."""

    def __init__(self, lists: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__()
        object.__setattr__(self, "lists", lists)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.lists.get(arguments[0], [])  # type: ignore[attr-defined]
        return found

    def json(self, *arguments: str) -> Any:
        assert arguments[0] == "get"
        return self.items(arguments[1])[0]


def test_an_old_server_is_refused_with_both_versions() -> None:
    found = preflight.judge_version("prod", {"major": "1", "minor": "35+", "gitVersion": "v1.35.4"})
    assert not found.ok
    assert "v1.35.4" in found.text
    assert "1.36" in found.text
    assert preflight.judge_version("prod", {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}).ok


def test_each_missing_right_is_named_and_a_missing_answer_is_no_right() -> None:
    answers = [
        {
            "spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": resource}},
            "status": {"allowed": resource != "namespaces"},
        }
        for verb, group, resource in preflight.RIGHTS
        if resource != "deployments"
    ]
    found = preflight.judge_rights(answers)
    assert found == preflight.Finding(
        ok=False, text="you may not create namespaces, create deployments.apps; deploy as a cluster administrator"
    )


def test_gpus_are_counted_by_resource_and_none_is_told() -> None:
    nodes: list[dict[str, Any]] = [
        {"status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "8"}}},
        {"status": {"allocatable": {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "7"}}},
        {"status": {}},
    ]
    assert preflight.judge_gpus(nodes).text == "GPUs advertised: 12 nvidia.com/gpu, 7 nvidia.com/mig-1g.10gb"
    assert not preflight.judge_gpus([{"status": {"allocatable": {"nvidia.com/gpu": "0"}}}]).ok


def test_a_cluster_without_a_default_storage_class_is_told_which_it_has() -> None:
    found = preflight.judge_storage([{"metadata": {"name": "slow"}}])
    assert not found.ok
    assert "slow" in found.text


def test_an_unknown_overlay_names_the_known_ones() -> None:
    with pytest.raises(DeployError, match="base, sandbox"):
        overlay.directory("no-such")


def test_the_generated_overlay_names_every_image_by_its_hash(tmp_path: Path) -> None:
    images = overlay.Images(bridge="reg:5000/x/bridge:abc", slurm="reg:5000/x/slurm:def")
    made = overlay.kustomization(overlay.directory("base"), tmp_path, images)
    assert made["images"] == [{"name": "slurm-bridge/bridge", "newName": "reg:5000/x/bridge", "newTag": "abc"}]
    patch = yaml.safe_load(made["patches"][0]["patch"])
    assert patch["spec"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "SBRIDGE_SLURM_IMAGE", "value": "reg:5000/x/slurm:def"},
        {"name": "SBRIDGE_LOGIN_IMAGE", "value": "reg:5000/x/bridge:abc"},
    ]
    assert (tmp_path / made["resources"][0] / "kustomization.yaml").resolve().is_file()


def test_the_patched_container_and_placeholder_are_the_ones_of_the_base() -> None:
    """A renamed container would leave the controller with the placeholder image."""
    deployment = yaml.safe_load((overlay.MANIFESTS / "base" / "deployment.yaml").read_text())
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert (container["name"], container["image"]) == ("bridge", overlay.PLACEHOLDER)
    names = {entry["name"] for entry in container["env"]}
    assert {"SBRIDGE_SLURM_IMAGE", "SBRIDGE_LOGIN_IMAGE"} <= names


def test_every_variable_of_the_deployment_is_one_that_the_controller_reads() -> None:
    from bridge.controller import config

    deployment = yaml.safe_load((overlay.MANIFESTS / "base" / "deployment.yaml").read_text())
    names = {entry["name"] for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert names <= {f"{config.PREFIX}{field.upper()}" for field in config.Config.model_fields}


def test_the_sandboxs_custom_resources_are_valid_and_fit_together() -> None:
    from bridge.crd import parse

    documents = [
        document
        for file in sorted((overlay.MANIFESTS / "sandbox").glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]
    ours = [d for d in documents if d["apiVersion"].startswith("slurmbridge.dev/")]
    flavors = {parse.flavor(d).metadata.name for d in ours if d["kind"] == "Flavor"}
    teams = {t.metadata.name: t for t in (parse.team(d) for d in ours if d["kind"] == "Team")}
    clusters = {parse.cluster(d).metadata.name for d in ours if d["kind"] == "SlurmCluster"}
    for nodeset in (parse.nodeset(d) for d in ours if d["kind"] == "NodeSet"):
        assert nodeset.spec.flavor in flavors
        assert nodeset.spec.cluster in clusters
    for team in teams.values():
        assert team.spec.parent is None or team.spec.parent in teams
        assert {quota.flavor for quota in team.spec.quotas} <= flavors
    labelled = {
        d["metadata"]["labels"]["slurmbridge.dev/team"]
        for d in documents
        if d["kind"] == "Namespace" and "labels" in d["metadata"]
    }
    assert labelled <= teams.keys()


def test_undeploy_keeps_the_ledger_and_whatever_running_work_stands_on() -> None:
    documents = [
        document
        for file in sorted((overlay.MANIFESTS / "base").glob("*.yaml"))
        if file.name != "kustomization.yaml"
        for document in yaml.safe_load_all(file.read_text())
    ]
    doomed = {d["kind"] for d in documents} - removal.KEPT_KINDS
    assert doomed == {"Deployment", "Service", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def test_undeploy_tells_gated_pods_and_routed_jobs_with_the_way_out() -> None:
    kubectl = Recorded(
        {
            "pods": [
                {"spec": {"schedulingGates": [{"name": "slurmbridge.dev/quota"}]}},
                {"spec": {"schedulingGates": [{"name": "else"}]}},
                {"spec": {}},
            ],
            "jobs": [{"metadata": {"finalizers": ["slurmbridge.dev/slurm-job"]}}, {"metadata": {}}],
        }
    )
    lines = removal.left_waiting(kubectl)
    assert lines[0].startswith("1 GPU pods still carry the gate")
    assert lines[1].startswith("1 Jobs belong to Slurm")
    assert removal.left_waiting(Recorded({})) == []


def test_a_rollout_tells_why_it_waits() -> None:
    deployment = {
        "metadata": {"generation": 2},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}},
        "status": {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1},
    }
    waits = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod = {"status": {"containerStatuses": [{"state": {"waiting": waits}}]}}
    kubectl = Recorded({"deployment": [deployment], "pods": [pod]})
    told = waiting.rollout_state(kubectl, "slurm-bridge", "slurm-bridge")
    assert told == "waiting for slurm-bridge: 0 of 1 ready (ImagePullBackOff: no such image)"


def test_the_status_of_an_older_generation_is_not_ready() -> None:
    """A rollout that the Deployment controller has not seen yet is not taken for done."""
    deployment = {
        "metadata": {"generation": 3},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}},
        "status": {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1},
    }
    assert waiting.rollout_state(Recorded({"deployment": [deployment]}), "slurm-bridge", "slurm-bridge")
    deployment["metadata"] = {"generation": 2}
    assert waiting.rollout_state(Recorded({"deployment": [deployment]}), "slurm-bridge", "slurm-bridge") == ""


def test_a_cluster_is_ready_only_by_its_own_condition() -> None:
    obj: dict[str, Any] = {"metadata": {"generation": 1}}
    kubectl = Recorded({"slurmclusters.slurmbridge.dev": [obj]})
    assert "has not looked" in waiting.cluster_state(kubectl, "slurm", "main")
    condition = {"type": "Ready", "status": "False", "reason": "Starting", "message": "slurmctld does not answer"}
    obj["status"] = {"conditions": [condition]}
    assert waiting.cluster_state(kubectl, "slurm", "main").endswith("slurmctld does not answer")
    condition["status"] = "True"
    assert waiting.cluster_state(kubectl, "slurm", "main") != "", "the status is about an older spec"
    obj["status"]["observedGeneration"] = 1
    assert waiting.cluster_state(kubectl, "slurm", "main") == ""


def test_waiting_ends_in_a_sentence_that_says_for_what() -> None:
    with pytest.raises(DeployError, match="after 0 s still waiting for x"):
        waiting.until(lambda: "waiting for x", 0)
