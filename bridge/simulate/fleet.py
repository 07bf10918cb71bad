"""The nodes of a simulation: so many GPUs in equal nodes, or a file of nodes (CSV or YAML)."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from bridge.errors import InvalidInputError
from bridge.simulate import fields
from bridge.simulate.model import Node
from bridge.workloads.model import NodeName

NODE_GPUS: Final = 8
"""GPUs of a node where only their sum is given."""

GPU_LABELS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
_SUFFIX: Final = "/gpu"


def equal(gpus: int, node_gpus: int = NODE_GPUS) -> tuple[Node, ...]:
    """Return nodes of `node_gpus` that hold `gpus` in all; the last one has what is left."""
    if gpus < 1 or node_gpus < 1:
        raise InvalidInputError(f"--gpus={gpus} in nodes of {node_gpus}: give 1 or more of each")
    sizes = [node_gpus] * (gpus // node_gpus) + ([gpus % node_gpus] if gpus % node_gpus else [])
    width = len(str(len(sizes)))
    return tuple(Node(NodeName(f"node-{index + 1:0{width}}"), size) for index, size in enumerate(sizes))


def read(path: Path) -> tuple[Node, ...]:
    """Read nodes; those without GPUs are no part of the fleet. InvalidInputError names what is wrong."""
    found = _objects(path) if path.suffix in (".yaml", ".yml", ".json") else _rows(path)
    nodes = sorted((node for node in found if node.gpus), key=lambda node: node.name)
    names = [node.name for node in nodes]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InvalidInputError(f"{path}: node {twice[0]} is there twice; keep one of them")
    if not nodes:
        raise InvalidInputError(f"{path}: no node with a GPU; give nodes with `gpu` (CSV) or `gpus` (YAML) above 0")
    return tuple(nodes)


def _rows(path: Path) -> Iterator[Node]:
    """Read `sn,gpu,model` or `name,gpus`."""
    for row in fields.table(path, required=()):
        name = row.first("sn", "name", "node")
        if not name:
            raise InvalidInputError(f"{row.where}: no name; give a column sn, name or node, and a value in each row")
        column = "gpu" if "gpu" in row.values else "gpus"
        yield Node(NodeName(name), row.whole(column), row.text("model"))


def _objects(path: Path) -> Iterator[Node]:
    """Read Kubernetes Nodes as `kubectl get nodes -o yaml` prints them, or a short form: name, gpus, model, count."""
    for index, each in enumerate(items(path, "nodes")):
        where = f"{path}: nodes[{index}]"
        metadata = each.get("metadata")
        if isinstance(metadata, Mapping):
            status = each.get("status") or {}
            allocatable = status.get("allocatable") or status.get("capacity") or {}
            gpus = sum(_whole(where, key, value) for key, value in allocatable.items() if key.endswith(_SUFFIX))
            labels = metadata.get("labels") or {}
            model = next((str(labels[label]) for label in GPU_LABELS if label in labels), "")
            yield Node(NodeName(str(metadata.get("name", ""))), gpus, model)
            continue
        name, count = str(each.get("name") or ""), _whole(where, "count", each.get("count", 1))
        if not name or "gpus" not in each:
            raise InvalidInputError(f"{where}: no {'gpus' if name else 'name'}; give both")
        for number in range(count):
            told = f"{name}-{number + 1}" if count > 1 else name
            yield Node(NodeName(told), _whole(where, "gpus", each["gpus"]), str(each.get("model") or ""))


def items(path: Path, key: str) -> Iterable[Mapping[str, Any]]:
    """Return the objects of a YAML file: documents, a `kind: List`, or a list under `key`."""
    found: list[Any] = []
    for document in _documents(path):
        if isinstance(document, Mapping) and isinstance(document.get("items"), list):
            found += document["items"]
        elif isinstance(document, Mapping) and isinstance(document.get(key), list):
            found += document[key]
        elif isinstance(document, list):
            found += document
        elif document is not None:
            found.append(document)
    for each in found:
        if not isinstance(each, Mapping):
            raise InvalidInputError(f"{path}: {each!r} is no object; give a list of {key} with named fields")
    return found


def _documents(path: Path) -> list[Any]:
    try:
        return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}; give a file that exists") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        told = " ".join(str(error).split())
        raise InvalidInputError(f"{path}: is no YAML: {told}") from error


def _whole(where: str, field: str, value: object) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if not 0 <= number <= fields.LARGEST_GPUS:
        raise InvalidInputError(f"{where}: {field}={value!r} is no whole number of 0 or more; correct it")
    return number
