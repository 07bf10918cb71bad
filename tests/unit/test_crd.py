"""The custom resources: what is accepted, what is refused and how, and that crds/ is up to date."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.crd import conditions, duration, generate, parse
from bridge.crd.model import ConditionStatus
from bridge.errors import InvalidInputError
from bridge.quota.model import Quota

ROOT = Path(__file__).parents[2]


def team(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "vision", "generation": 3, "managedFields": []},
        "spec": {"quotas": [{"flavor": "h100", "guarantee": 8}], **spec},
    }


def member(name: str = "alice", uid: int = 2001) -> dict[str, Any]:
    return {"user": f"{name}@example.org", "slurmUser": name, "uid": uid, "gid": uid}


def cluster(**spec: Any) -> dict[str, Any]:
    home = {"hostPath": {"path": "/home"}}
    return {"metadata": {"name": "main", "namespace": "slurm"}, "spec": {"home": home, **spec}}


def nodeset(**spec: Any) -> dict[str, Any]:
    base = {"cluster": "main", "flavor": "h100", "max": 2, "resources": {"cpu": "2", "memory": "4Gi"}}
    return {"metadata": {"name": "h100", "namespace": "slurm"}, "spec": {**base, **spec}}


def test_the_files_in_crds_are_what_the_models_say() -> None:
    assert generate.stale(ROOT / "crds") == []


def test_a_changed_a_missing_and_a_foreign_file_are_all_called_stale(tmp_path: Path) -> None:
    assert generate.main([str(tmp_path)]) == 0
    assert generate.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "teams.yaml").write_text("x")
    (tmp_path / "flavors.yaml").unlink()
    (tmp_path / "others.yaml").write_text("x")
    assert generate.stale(tmp_path) == ["flavors.yaml", "others.yaml", "teams.yaml"]
    assert generate.main(["--check", str(tmp_path)]) == 1


def test_schemas_are_structural() -> None:
    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict):
            banned = {"$ref", "$defs", "anyOf", "oneOf", "title", "propertyNames", "const"} & node.keys()
            assert not (banned and "properties" not in path.rpartition(".")[2]), (path, banned)
            assert node.get("additionalProperties", {}) is not False, path
            assert None not in node.values(), path
            for key, child in node.items():
                walk(child, f"{path}.{key}")

    for definition in generate.DEFINITIONS:
        walk(generate.manifest(definition)["spec"]["versions"][0]["schema"], definition.kind)


def test_every_field_tells_what_it_is() -> None:
    def walk(schema: dict[str, Any], path: str) -> None:
        for name, child in schema.get("properties", {}).items():
            if path or name in ("spec", "status"):
                assert child.get("description"), f"{path}.{name}"
                walk(child, f"{path}.{name}")
        if "items" in schema:
            walk(schema["items"], f"{path}[]")

    for definition in generate.DEFINITIONS:
        walk(generate.manifest(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "")


def test_a_nodeset_scales_on_max() -> None:
    manifest = yaml.safe_load(generate.files()["nodesets.yaml"])
    scale = manifest["spec"]["versions"][0]["subresources"]["scale"]
    assert scale == {"specReplicasPath": ".spec.max", "statusReplicasPath": ".status.ready"}


def test_a_team_becomes_a_node_of_the_quota_tree() -> None:
    read = parse.team(
        team(parent="org", weight=3, quotas=[{"flavor": "h100", "guarantee": 8, "limit": 12, "lendLimit": 4}])
    )
    spec = read.quota_spec()
    assert (spec.weight, parse.team(team()).quota_spec().weight) == (3, 1)
    assert (spec.name, spec.parent, spec.quotas) == ("vision", "org", {"h100": Quota(8, 12, 4)})
    assert read.account == "vision"
    assert parse.team(team(account="cv")).account == "cv"


@pytest.mark.parametrize(
    ("text", "told_ms"), [("0s", 0), ("90s", 90_000), ("5m", 300_000), ("1h30m", 5_400_000), ("24h", 86_400_000)]
)
def test_a_duration_is_hours_minutes_and_seconds(text: str, told_ms: int) -> None:
    assert duration.milliseconds(parse.team(team(preemption={"grace": text})).spec.preemption.grace) == told_ms


def test_every_default_of_the_schema_is_the_models_default() -> None:
    read = parse.cluster(cluster())
    assert (read.spec.slurmctld.storage.size, read.spec.login.replicas, read.spec.rest_api) == (
        "2Gi",
        1,
        False,
    )
    assert parse.nodeset(nodeset()).spec.idle_after_seconds == 300


@pytest.mark.parametrize(
    ("read", "obj", "sentence"),
    [
        (parse.team, team(quotas=[{"flavor": "h100", "guarantee": 8, "limit": 3}]),
         "Team vision: spec.quotas[0]: limit 3 is below guarantee 8; raise limit or lower guarantee"),
        (parse.team, team(quotas=[{"flavor": "h100", "guarantee": 8, "lendLimit": 9}]),
         "Team vision: spec.quotas[0]: lendLimit 9 is above guarantee 8; no more than that can be lent"),
        (parse.team, team(quotas=[{"flavor": "h100", "guarantee": 1}, {"flavor": "h100", "guarantee": 2}]),
         "Team vision: spec: quotas names flavor h100 twice; keep one entry for each flavor"),
        (parse.team, team(quotas=[{"flavor": "h100", "guarantee": -1}]),
         "Team vision: spec.quotas[0].guarantee=-1 is not valid: input should be >= 0; correct it"),
        (parse.team, team(quotas=[{"flavor": "h100"}]),
         "Team vision: spec.quotas[0].guarantee is missing: it is required; add it"),
        (parse.team, team(weigth=2),
         "Team vision: spec.weigth=2: there is no such field; remove it or correct its name"),
        (parse.team, team(weight=-1),
         "Team vision: spec.weight=-1 is not valid: input should be >= 0; correct it"),
        (parse.team, team(preemption={"grace": "5 minutes"}),
         ("Team vision: spec.preemption.grace: '5 minutes' is no duration; write hours, minutes and seconds, "
          "e.g. 30s, 5m or 1h30m")),
        (parse.team, team(preemption={"minRuntime": "25h"}),
         "Team vision: spec.preemption.minRuntime: 25h is longer than a day; give at most 24h"),
        (parse.team, team(preemption={"withinTeam": "Always"}),
         ("Team vision: spec.preemption.withinTeam='Always' is not valid: input should be 'Never' or 'LowerPriority'; "
          "correct it")),
        (parse.team, team(members=[member()], defaultUser="bob"),
         "Team vision: spec: defaultUser bob is no member's slurmUser; choose one of: alice"),
        (parse.team, team(members=[member(uid=0)]),
         "Team vision: spec.members[0].uid=0 is not valid: input should be >= 1000; correct it"),
        (parse.cluster, cluster(home={}),
         "SlurmCluster slurm/main: spec.home: needs exactly one of hostPath and nfs; keep one"),
        (parse.cluster, cluster(slurmConf={"authtype": "auth/none"}),
         "SlurmCluster slurm/main: spec: slurmConf.authtype is set by the bridge; remove it"),
        (parse.cluster, cluster(slurmConf={"A B": "x"}),
         "SlurmCluster slurm/main: spec: slurmConf.A B is no parameter's name; use letters and digits"),
        (parse.nodeset, nodeset(min=3),
         "NodeSet slurm/h100: spec: min 3 is above max 2; lower min or raise max"),
        (parse.flavor, {"metadata": {"name": "h100"}},
         "Flavor h100: spec.resource is missing: it is required; add it"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_with_field_value_and_way_out(
    read: Any, obj: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidInputError) as error:
        read(obj)
    assert str(error.value) == sentence


def test_a_multi_line_value_cannot_smuggle_a_second_parameter_into_slurm_conf() -> None:
    with pytest.raises(InvalidInputError, match=r"spec\.slurmConf\.KillWait"):
        parse.cluster(cluster(slurmConf={"KillWait": "5\nAuthType=auth/none"}))


def test_an_unchanged_condition_comes_back_byte_for_byte_and_a_changed_one_moves_its_time() -> None:
    """N15: a status patch of an unchanged world is empty."""
    ready = conditions.Fact("Ready", ConditionStatus.TRUE, "Answers", "slurmctld answers")
    first = conditions.merged([], [ready], generation=1, now_ms=1_700_000_000_000)
    assert conditions.merged(first, [ready], generation=1, now_ms=1_700_000_099_000) == first
    told = conditions.merged(
        first, [conditions.Fact("Ready", ConditionStatus.TRUE, "Answers", "other words")],
        generation=2, now_ms=1_700_000_099_000,
    )  # fmt: skip
    assert told[0]["lastTransitionTime"] == first[0]["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    gone = conditions.merged(
        first, [conditions.Fact("Ready", ConditionStatus.UNKNOWN, "Silent")],
        generation=1, now_ms=1_700_000_099_000,
    )  # fmt: skip
    assert gone[0]["lastTransitionTime"] == "2023-11-14T22:14:59Z"
