"""What a SlurmCluster and a NodeSet turn into: stable bytes, the right pins, least privilege, no lost state."""

from pathlib import Path
from typing import Any

import pytest

from bridge.cluster import configuration, membership, mirror, names, render, worker
from bridge.cluster.images import Images
from bridge.crd import parse
from bridge.crd.flavor import Flavor
from bridge.crd.nodeset import NodeSet
from bridge.crd.slurmcluster import SlurmCluster
from bridge.crd.team import Team

IMAGES = Images(slurm="reg/slurm:1", login="reg/bridge:1")
SLURM_CONF = """# why
ClusterName=${cluster_name}
SlurmctldHost=${slurmctld_host}(${slurmctld_address})
KillWait=30   # seconds
"""


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*configuration.TEMPLATES, *configuration.VERBATIM):
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "slurm.conf").write_text(SLURM_CONF)
    (tmp_path / "job_submit.lua").write_text("-- ${not_a_variable} $\n")
    monkeypatch.setattr(configuration, "directory", lambda: tmp_path)
    return tmp_path


def cluster(**spec: Any) -> SlurmCluster:
    home = {"hostPath": {"path": "/home"}}
    return parse.cluster({"metadata": {"name": "main", "namespace": "slurm"}, "spec": {"home": home, **spec}})


def team(name: str = "vision", user: str = "alice", uid: int = 2001) -> Team:
    member = {"user": user, "slurmUser": user, "uid": uid, "gid": uid}
    return parse.team({"metadata": {"name": name}, "spec": {"members": [member]}})


def flavor(name: str = "h100", *, default: bool = True) -> Flavor:
    spec = {"resource": "nvidia.com/gpu", "nodeSelector": {"gpu": name}, "gres": f"gpu:{name}", "default": default}
    return parse.flavor({"metadata": {"name": name}, "spec": spec})


def nodeset(**spec: Any) -> NodeSet:
    base = {"cluster": "main", "flavor": "h100", "max": 2, "resources": {"cpu": "1500m", "memory": "2.5Gi"}}
    return parse.nodeset({"metadata": {"name": "h100", "namespace": "slurm"}, "spec": {**base, **spec}})


def rendered(given: SlurmCluster, *teams: Team) -> render.Rendered:
    return render.render(
        given,
        teams=teams or (team(),),
        flavors=(flavor(),),
        ceilings={"vision": {"h100": 12}, "nlp": {"h100": None}},
        images=IMAGES,
    )


def by_kind(given: render.Rendered) -> dict[str, dict[str, Any]]:
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in given.objects}


def worker_pod(**spec: Any) -> dict[str, Any]:
    return worker.pod(node="g1", gpus=8, nodeset=nodeset(**spec), cluster=cluster(), flavor=flavor(), images=IMAGES)


# --- the cluster ------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("templates")
def test_the_same_input_renders_the_same_bytes_whatever_its_order() -> None:
    """N15: an unchanged world makes no write."""
    one, two = team(), team("nlp", "bob", 2002)
    assert rendered(cluster(), one, two) == rendered(cluster(), two, one)


@pytest.mark.usefixtures("templates")
def test_a_new_member_changes_configmaps_only() -> None:
    """N21: a configuration change does not restart slurmctld."""
    before, after = rendered(cluster()), rendered(cluster(), team(), team("nlp", "bob", 2002))
    changed = {name for name, obj in by_kind(after).items() if render.changed(obj, by_kind(before)[name])}
    assert changed == {"ConfigMap/slurm-config", "ConfigMap/slurm-users"}
    assert before.config_hash != after.config_hash


@pytest.mark.usefixtures("templates")
def test_a_changed_parameter_changes_the_configmap_only() -> None:
    """N21: a configuration change does not restart slurmctld."""
    before, after = rendered(cluster()), rendered(cluster(slurmConf={"KillWait": "5"}))
    changed = {name for name, obj in by_kind(after).items() if render.changed(obj, by_kind(before)[name])}
    assert changed == {"ConfigMap/slurm-config"}


@pytest.mark.usefixtures("templates")
def test_an_override_replaces_the_templates_line_whatever_its_case() -> None:
    text = configuration.client_slurm_conf(cluster(slurmConf={"killwait": "5", "MaxArraySize": "9"}))
    assert text.lower().count("killwait=") == 1
    assert "killwait=5\n" in text
    assert "MaxArraySize=9\n" in text
    assert "SlurmctldHost=slurmctld-0(slurmctld.slurm.svc)" in text


@pytest.mark.usefixtures("templates")
def test_lua_is_taken_as_it_is() -> None:
    data = by_kind(rendered(cluster()))["ConfigMap/slurm-config"]["data"]
    assert data["job_submit.lua"] == "-- ${not_a_variable} $\n"


def test_a_template_with_a_variable_that_nobody_fills_stops_the_rendering(templates: Path) -> None:
    (templates / "slurm.conf").write_text("A=${unknown}\n")
    with pytest.raises(KeyError, match="unknown"):
        configuration.client_slurm_conf(cluster())


@pytest.mark.usefixtures("templates")
def test_slurmctlds_state_outlives_its_statefulset() -> None:
    """N21: never without its state."""
    spec = by_kind(rendered(cluster()))["StatefulSet/slurmctld"]["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    mounted = {m["name"]: m["mountPath"] for m in spec["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounted[spec["volumeClaimTemplates"][0]["metadata"]["name"]] == "/var/spool/slurmctld"


@pytest.mark.usefixtures("templates")
def test_slurmctld_is_reached_by_an_address_that_outlives_its_pod() -> None:
    service = by_kind(rendered(cluster()))["Service/slurmctld"]
    assert service["spec"].get("clusterIP") != "None"
    labels = by_kind(rendered(cluster()))["StatefulSet/slurmctld"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


@pytest.mark.usefixtures("templates")
def test_slurmrestd_runs_only_when_asked_for() -> None:
    assert "Deployment/slurmrestd" not in by_kind(rendered(cluster()))
    assert {"Deployment/slurmrestd", "Service/slurmrestd"} <= by_kind(rendered(cluster(restApi=True))).keys()


@pytest.mark.usefixtures("templates")
def test_no_container_has_more_than_it_needs() -> None:
    pods = [
        obj["spec"]["template"]["spec"]
        for obj in rendered(cluster(restApi=True)).objects
        if obj["kind"] in ("StatefulSet", "Deployment")
    ]
    for pod in [*pods, worker_pod()["spec"]]:
        assert pod["automountServiceAccountToken"] is False
        assert not pod.get("hostNetwork")
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert set(context["capabilities"].get("add", [])) <= {"SETUID", "SETGID", "CHOWN", "KILL"}
            assert "memory" in container["resources"]["limits"]


# --- workers ----------------------------------------------------------------------------------------------
def test_a_worker_is_pinned_to_its_node_and_holds_all_its_gpus() -> None:
    pod = worker_pod()
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["g1"]}]}
    ]
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "8"
    assert pod["metadata"]["name"] == pod["spec"]["hostname"] == "h100-g1"


def test_a_worker_may_be_made_on_a_cordoned_node_and_stays_on_a_lost_one() -> None:
    """N5: a worker made on a cordoned node exists. N1: an unreachable node alone deletes nothing."""
    keys = {t["key"]: t for t in worker_pod()["spec"]["tolerations"]}
    assert keys["node.kubernetes.io/unschedulable"]["effect"] == "NoSchedule"
    for lost in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        assert "tolerationSeconds" not in keys[lost]
    assert "slurmbridge.dev/drained" in keys


def test_a_workers_memory_is_rounded_down_and_its_cpus_up() -> None:
    """N14."""
    assert worker.memory_mib(nodeset()) == 2560
    assert worker.memory_mib(nodeset(resources={"cpu": "1", "memory": "1000000000"})) == 953
    assert worker.cpus(nodeset()) == 2
    assert worker.cpus(nodeset(cpus=16)) == 16


@pytest.mark.usefixtures("templates")
def test_a_worker_is_protected_before_its_first_job() -> None:
    """N16: the budget stands with the cluster, selects every worker, and allows no eviction at any count."""
    budget = by_kind(rendered(cluster()))["PodDisruptionBudget/slurm-workers"]["spec"]
    pod = worker_pod()
    assert budget["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert budget["minAvailable"] >= 1_000_000
    assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert pod["spec"]["priorityClassName"] == "slurm-bridge-worker"


# --- members ----------------------------------------------------------------------------------------------
def test_the_members_file_lists_accounts_users_types_and_ceilings() -> None:
    text = membership.lua(
        (team("nlp", "bob", 2002), team()), (flavor(), flavor("a100", default=False)),
        {"vision": {"h100": 12, "a100": None}, "nlp": {"gone": 3}},
    )  # fmt: skip
    assert text == (
        "-- Written by the bridge from Teams and Flavors; changes here are overwritten.\n"
        "return {\n"
        '  flavors = {"a100", "h100"},\n'
        '  default_flavor = "h100",\n'
        "  accounts = {\n"
        '    ["nlp"] = {\n'
        '      users = {["bob"] = true},\n'
        "      ceilings = {},\n"
        "    },\n"
        '    ["vision"] = {\n'
        '      users = {["alice"] = true},\n'
        '      ceilings = {["a100"] = -1, ["h100"] = 12},\n'
        "    },\n"
        "  },\n"
        "}\n"
    )


def test_a_team_without_its_place_in_the_tree_is_no_account() -> None:
    assert '["nlp"]' not in membership.lua((team("nlp", "bob", 2002),), (flavor(),), {})


# --- mirrors ----------------------------------------------------------------------------------------------
def test_a_mirror_is_found_by_its_jobs_selector_and_runs_as_the_jobs_user() -> None:
    """J10: kubectl logs job/NAME works."""
    job = {"metadata": {"name": "train", "namespace": "vision", "uid": "0000-1111"}}
    pod = mirror.pod(
        job=job, cluster=cluster(), image="reg/slurm:1", uid=2001, gid=2001, path="/home/alice/x.log", team="vision"
    )
    assert pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == "0000-1111"
    assert pod["metadata"]["namespace"] == "vision"
    assert pod["spec"]["securityContext"]["runAsUser"] == 2001
    container = pod["spec"]["containers"][0]
    assert container["command"][-2:] == ["/home/alice/x.log", "/run/slurm-bridge/ended"]
    assert all("gpu" not in resource for resource in container["resources"]["requests"])
    assert all(mount.get("readOnly") for mount in container["volumeMounts"])


def test_mirrors_of_two_jobs_of_one_name_have_two_names() -> None:
    assert names.mirror("train", "uid-1") != names.mirror("train", "uid-2")
    assert len(names.mirror("t" * 200, "uid")) <= 63
