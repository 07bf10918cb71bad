"""The kinds of patch on raw JSON, as far as the in-memory API server needs them. Pure: inputs stay as they are."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bridge.errors import ConflictError, RejectedError
from bridge.kube.port import Object, PatchType

# Lists that are merged by a key in strategic and apply patches; every other list is replaced.
_MERGE_KEYS: Final = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "schedulingGates": "name",
    "taints": "key",
    "ports": "port",
    "ownerReferences": "uid",
}
# Lists of plain values that are united.
_SETS: Final = frozenset({"finalizers"})


def apply(target: Object, patch: Any, how: PatchType) -> Object:
    """Return the patched object. APPLY is a strategic merge: it takes no fields away."""
    match how:
        case PatchType.JSON:
            result = json_patch(target, patch)
        case PatchType.MERGE:
            result = merge(target, patch)
        case PatchType.STRATEGIC | PatchType.APPLY:
            result = strategic(target, patch)
    return dict(copy.deepcopy(result))


def merge(target: Any, patch: Any) -> Any:
    """Merge patch (RFC 7386): null removes, objects merge, everything else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """Merge patch that also merges known lists by their key."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list) and key in _MERGE_KEYS:
            result[key] = _by_key(result.get(key) or [], value, _MERGE_KEYS[key])
        elif isinstance(value, list) and key in _SETS:
            known = result.get(key) or []
            result[key] = [*known, *(item for item in value if item not in known)]
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _by_key(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = {item[key]: item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item[key], None)
        else:
            result[item[key]] = strategic(result.get(item[key]), item)
    return list(result.values())


def json_patch(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """JSON patch (RFC 6902): test, add, remove, replace. One that does not fit the object is a ConflictError."""
    result = copy.deepcopy(target)
    for operation in operations:
        path = operation["path"]
        steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
        if not steps:
            raise RejectedError(f"a patch of the whole document ({path!r}) is not done here")
        _operate(result, steps, operation)
    return result


def _operate(document: Any, steps: list[str], operation: Mapping[str, Any]) -> None:
    word, path = operation["op"], operation["path"]
    parent = document
    for step in steps[:-1]:
        parent = _child(parent, step, word, path)
    last = steps[-1]
    match word:
        case "test":
            if not _has(parent, last) or _child(parent, last, word, path) != operation["value"]:
                raise ConflictError(f"testing value {path} failed: test failed")
        case "add" if isinstance(parent, list):
            parent.insert(len(parent) if last == "-" else int(last), operation["value"])
        case "add":
            parent[last] = operation["value"]
        case "replace":
            _child(parent, last, word, path)
            parent[int(last) if isinstance(parent, list) else last] = operation["value"]
        case "remove":
            _child(parent, last, word, path)
            del parent[int(last) if isinstance(parent, list) else last]
        case _:
            raise RejectedError(f"op {word!r} is not done here; use test, add, remove or replace")


def _has(parent: Any, step: str) -> bool:
    if isinstance(parent, list):
        return step.isdecimal() and int(step) < len(parent)
    return isinstance(parent, Mapping) and step in parent


def _child(parent: Any, step: str, word: str, path: str) -> Any:
    if not _has(parent, step):
        raise ConflictError(f"{word} operation does not apply: {path} does not exist")
    return parent[int(step)] if isinstance(parent, list) else parent[step]
