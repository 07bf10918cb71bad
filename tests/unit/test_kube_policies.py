"""The admission policies as files: one idea of a GPU in all of them, and names that agree with the code."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge import wellknown

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "policies"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
GPUS = "(r.startsWith('nvidia.com/gpu') || r.startsWith('nvidia.com/mig-') || r == 'amd.com/gpu')"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def test_the_kustomization_names_every_policy() -> None:
    listed = documents(FOLDER / "kustomization.yaml")[0]["resources"]
    assert sorted(listed) == [path.name for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_policy_fails_closed_and_is_bound(path: Path) -> None:
    policy, binding = documents(path)
    assert policy["apiVersion"] == binding["apiVersion"] == "admissionregistration.k8s.io/v1"
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"] == f"slurm-bridge-{path.stem}"


@pytest.mark.parametrize("path", [p for p in FILES if p.stem != "guard-namespaces"], ids=lambda p: p.stem)
def test_every_policy_has_the_same_idea_of_a_gpu(path: Path) -> None:
    assert " ".join(path.read_text().split()).count(GPUS) == 1


def test_the_names_in_the_policies_are_the_codes() -> None:
    text = "".join(path.read_text() for path in FILES)
    for name in (
        wellknown.TEAM_LABEL,
        wellknown.ROUTE_LABEL,
        wellknown.SUBMITTED_BY,
        wellknown.QUOTA_GATE,
        wellknown.JOB_MANAGED_BY,
        wellknown.JOB_FINALIZER,
        wellknown.CONTROLLER_USERNAME,
        wellknown.WORKER_PRIORITY_CLASS,
        wellknown.COMPONENT_LABEL,
        wellknown.NODESET_LABEL,
        wellknown.WORKER_NODE_LABEL,
        wellknown.MIRROR_OF_LABEL,
    ):
        assert f"'{name}'" in text
