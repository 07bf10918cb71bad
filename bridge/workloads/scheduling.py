"""Which nodes a pod's own rules allow: nodeSelector, required node affinity, taints. Kubernetes' semantics."""

from collections.abc import Mapping
from typing import Any

from bridge.workloads.model import NodeName

Object = dict[str, Any]


def allowed_nodes(spec: Object, nodes: Mapping[NodeName, Object]) -> frozenset[NodeName]:
    """Return the nodes that selector, required affinity and tolerations allow."""
    return frozenset(name for name, node in nodes.items() if selects(spec, node) and tolerates(spec, node))


def selects(spec: Object, node: Object) -> bool:
    """Return whether nodeSelector and required node affinity (terms ORed, expressions ANDed) match."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not affinity:
        return True
    name = node["metadata"]["name"]
    return any(_term_matches(term, labels, name) for term in affinity.get("nodeSelectorTerms") or [])


def tolerates(spec: Object, node: Object) -> bool:
    """Return whether every NoSchedule and NoExecute taint of the node is tolerated."""
    taints = (node.get("spec") or {}).get("taints") or []
    hard = [taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(t, taint) for t in spec.get("tolerations") or []) for taint in hard)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint["key"]
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def _term_matches(term: Object, labels: Mapping[str, str], name: str) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_expression(e, labels) for e in expressions) and all(
        _expression(f, {"metadata.name": name}) for f in fields
    )


def _expression(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    match operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt":
            return _compares(operator, labels.get(key), values)
        case _:
            return False


def _compares(operator: str, label: str | None, values: list[str]) -> bool:
    if label is None or not label.lstrip("-").isdigit() or len(values) != 1:
        return False
    return int(label) > int(values[0]) if operator == "Gt" else int(label) < int(values[0])
