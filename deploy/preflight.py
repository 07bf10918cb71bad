"""What a cluster must have before anything is applied to it, told in clear sentences, all of them at once."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.kubectl import DeployError, Kubectl

MINIMUM = (1, 36)  # MutatingAdmissionPolicy is generally available from here on
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"

# What deploy.py writes: (verb, group, resource).
RIGHTS = (
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("create", "admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("create", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "scheduling.k8s.io", "priorityclasses"),
    ("create", "slurmbridge.dev", "teams"),
    ("assign", "slurmbridge.dev", "teams"),
    ("create", "", "namespaces"),
    ("create", "apps", "deployments"),
    ("create", "", "persistentvolumeclaims"),
)


@dataclass(frozen=True)
class Finding:
    """One check: what was found, or (ok False) what is missing and the way out."""

    ok: bool
    text: str


def check(kubectl: Kubectl) -> list[Finding]:
    """Run every check; the ones behind an unreachable API server are left out."""
    first = _guarded(_version, kubectl)
    if not first.ok:
        return [first]
    return [first, *(_guarded(each, kubectl) for each in (_rights, _policies, _gpus, _storage))]


def _guarded(each: Callable[[Kubectl], Finding], kubectl: Kubectl) -> Finding:
    try:
        return each(kubectl)
    except DeployError as error:
        return Finding(ok=False, text=str(error))


def _version(kubectl: Kubectl) -> Finding:
    context = kubectl.context or kubectl.run("config", "current-context").strip()
    try:
        told = json.loads(kubectl.run("get", "--raw", "/version", "--request-timeout=15s"))
    except DeployError as error:
        return Finding(ok=False, text=f"context {context}: the API server does not answer ({error})")
    return judge_version(context, told)


def judge_version(context: str, told: dict[str, Any]) -> Finding:
    """Compare a server's /version with what the policies need."""
    version = (int(told["major"]), int(str(told["minor"]).rstrip("+")))
    if version < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        return Finding(
            ok=False,
            text=f"Kubernetes is {told['gitVersion']}, but admission policies that mutate need {wanted}; upgrade it",
        )
    return Finding(ok=True, text=f"Kubernetes {told['gitVersion']}, context {context}")


def _rights(kubectl: Kubectl) -> Finding:
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": resource}},
        }
        for verb, group, resource in RIGHTS
    ]
    return judge_rights(kubectl.create(reviews))


def judge_rights(answers: list[dict[str, Any]]) -> Finding:
    """Name every right that a SelfSubjectAccessReview denied; an answer that is missing is no right."""
    allowed = {_right(a["spec"]["resourceAttributes"]) for a in answers if a["status"]["allowed"] is True}
    missing = [f"{verb} {resource}.{group}".rstrip(".") for verb, group, resource in RIGHTS
               if (verb, group, resource) not in allowed]  # fmt: skip
    if missing:
        return Finding(ok=False, text=f"you may not {', '.join(missing)}; deploy as a cluster administrator")
    return Finding(ok=True, text="you have the rights that the deployment needs")


def _right(attributes: dict[str, str]) -> tuple[str, str, str]:
    return attributes["verb"], attributes.get("group", ""), attributes["resource"]


def _policies(kubectl: Kubectl) -> Finding:
    served = {r["name"] for r in kubectl.raw("/apis/admissionregistration.k8s.io/v1")["resources"]}
    missing = {"mutatingadmissionpolicies", "validatingadmissionpolicies"} - served
    if missing:
        return Finding(
            ok=False,
            text=f"the API server does not serve {', '.join(sorted(missing))} in admissionregistration.k8s.io/v1; "
            "enable them (they are on by default from 1.36)",
        )
    return Finding(ok=True, text="admission policies are served")


def _gpus(kubectl: Kubectl) -> Finding:
    return judge_gpus(kubectl.items("nodes"))


def judge_gpus(nodes: list[dict[str, Any]]) -> Finding:
    """Count the GPUs that nodes advertise, by resource."""
    totals: dict[str, int] = {}
    for node in nodes:
        for resource, amount in (node.get("status", {}).get("allocatable") or {}).items():
            if resource in ("nvidia.com/gpu", "amd.com/gpu") or resource.startswith("nvidia.com/mig-"):
                totals[resource] = totals.get(resource, 0) + int(amount)
    found = ", ".join(f"{amount} {resource}" for resource, amount in sorted(totals.items()) if amount)
    if not found:
        return Finding(
            ok=False,
            text=f"none of {len(nodes)} nodes advertises nvidia.com/gpu, nvidia.com/mig-* or amd.com/gpu; "
            "install the GPU device plugin first",
        )
    return Finding(ok=True, text=f"GPUs advertised: {found}")


def _storage(kubectl: Kubectl) -> Finding:
    return judge_storage(kubectl.items("storageclasses"))


def judge_storage(classes: list[dict[str, Any]]) -> Finding:
    """Find the default StorageClass: ledger and slurmctld keep their state on its volumes."""
    defaults = [
        each["metadata"]["name"]
        for each in classes
        if (each["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    ]
    if not defaults:
        known = ", ".join(each["metadata"]["name"] for each in classes) or "none"
        return Finding(
            ok=False,
            text=f"no StorageClass is the default one (there are: {known}); annotate one with {_DEFAULT_CLASS}=true",
        )
    return Finding(ok=True, text=f"default StorageClass {defaults[0]}")
