"""Divides whole things by demand: GPUs among teams, nodes among partitions. Pure."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TypeVar

from bridge.simulate.model import Node

Name = TypeVar("Name", bound=str)


def divide(total: int, demand: Mapping[Name, int]) -> dict[Name, int]:
    """Divide `total` units by demand with largest remainders; the sum is `total`.

    Whoever has any demand gets one unit at least, while there are as many; then the largest give.
    """
    wanting = {name: amount for name, amount in sorted(demand.items()) if amount > 0}
    shares = dict.fromkeys(sorted(demand), 0)
    if not wanting:
        return shares
    whole = sum(wanting.values())
    exact = {name: Fraction(amount * total, whole) for name, amount in wanting.items()}
    by_size = sorted(wanting, key=lambda name: (-wanting[name], name))
    if len(by_size) > total:
        return shares | dict.fromkeys(by_size[:total], 1)
    shares |= {name: max(1, int(share)) for name, share in exact.items()}
    left = total - sum(shares.values())
    for name in sorted(wanting, key=lambda name: (int(exact[name]) - exact[name], name))[: max(0, left)]:
        shares[name] += 1
    while (left := total - sum(shares.values())) < 0:
        giving = [name for name in by_size if shares[name] > 1]
        shares[max(giving, key=lambda name: (shares[name] - exact[name], shares[name], name))] -= 1
    return shares


def partition(nodes: Iterable[Node], wanted: Mapping[Name, int]) -> dict[Name, list[Node]]:
    """Give each node, largest first, to whoever is furthest below its wanted GPUs. Nobody's when nobody wants any."""
    parts: dict[Name, list[Node]] = {name: [] for name in sorted(wanted)}
    short = {name: gpus for name, gpus in sorted(wanted.items()) if gpus > 0}
    for node in sorted(nodes, key=lambda node: (-node.gpus, node.name)):
        if short:
            name = max(sorted(short), key=lambda name: (not parts[name] and short[name] > 0, short[name]))
            parts[name].append(node)
            short[name] -= node.gpus
    return parts
