"""GPU counts in Slurm's spellings of generic resources and trackable resources. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Final

from bridge.slurm.model import Tres

Gpus = dict[str, int]

_GRES: Final = re.compile(
    r"(?:gres[/:])?gpu"
    r"(?:[:=](?P<kind>(?!\d+(?:\(|$))[^:=(),]+))?"  # a type may begin with a digit ("1g.10gb"), not be a number
    r"(?:[:=](?P<count>\d+))?"
    r"(?:\(.*)?"  # where on the node
)
_COMMA: Final = re.compile(r",(?![^(]*\))")  # not the ones inside of "(IDX:0,2)"
_UNITS_MIB: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def gpus(text: str | None) -> Gpus:
    """Count the GPUs of a request or of a node's resources, by type ("" when it names none).

    "gres/gpu:h100:4", "gres:gpu:2", "gres/gpu=1", "gpu:h100:8(S:0-1)", "gpu:h100:2(IDX:0,3)". A count of 0 is none.
    """
    found: Gpus = {}
    for item in _COMMA.split(text or ""):
        match = _GRES.fullmatch(item.strip())
        if match is None:
            continue
        count = int(match["count"] or 1)
        if count:
            found[match["kind"] or ""] = found.get(match["kind"] or "", 0) + count
    return found


def tracked_gpus(text: str | None) -> Gpus:
    """Count the GPUs in a TRES string, where typed ones appear in the untyped total again: counted once."""
    pairs = dict(item.partition("=")[::2] for item in (text or "").split(",") if "=" in item)
    typed = {name.partition(":")[2]: int(count) for name, count in pairs.items() if name.startswith("gres/gpu:")}
    rest = int(pairs.get("gres/gpu", 0)) - sum(typed.values())
    return {kind: count for kind, count in {**typed, "": rest}.items() if count > 0}


def tres(text: str | None, gpu_counts: Mapping[str, int]) -> Tres:
    """Build a value out of a TRES string ("cpu=4,mem=1.5G,node=1") and GPUs that were counted elsewhere."""
    pairs = dict(item.partition("=")[::2] for item in (text or "").split(",") if "=" in item)
    return Tres(
        gpus=dict(gpu_counts),
        nodes=int(pairs.get("node", 0)),
        cpus=int(pairs.get("cpu", 0)),
        mem_mib=memory_mib(pairs.get("mem", "0")),
    )


def memory_mib(text: str) -> int:
    """Return MiB, rounded up (N14)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    if match is None:
        raise ValueError(f"memory {text!r} is not a number with a unit of K, M, G, T, P")
    return math.ceil(float(match[1]) * _UNITS_MIB[match[2]])
