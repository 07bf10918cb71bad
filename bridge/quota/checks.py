"""What makes a set of teams no quota tree, one clear sentence each. Pure.

A fault names the teams that must be left out so that the others can go on: one bad Team object must not stop
the rest. Children go with their parent, because a promise without the parent's backing is none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and the teams that cannot take part until it is put right."""

    text: str
    leaves_out: frozenset[TeamName]


def faults(specs: Sequence[TeamSpec], *, left_out: frozenset[TeamName] = frozenset()) -> tuple[Fault, ...]:
    """Everything wrong with `specs`; `left_out` are teams that exist but were set aside for faults of their own."""
    found = [*_duplicates(specs)]
    for spec in sorted(specs, key=lambda s: s.name):
        found += [Fault(text, frozenset({spec.name})) for text in _own(spec)]
    by_name = {spec.name: spec for spec in specs}
    found += _unknown_parents(by_name, left_out)
    found += _cycles(by_name)
    found += _broken_promises(by_name)
    return tuple(found)


def children_of(specs: Iterable[TeamSpec]) -> dict[TeamName | None, list[TeamName]]:
    """Children by parent, each list in name order."""
    children: dict[TeamName | None, list[TeamName]] = {}
    for spec in sorted(specs, key=lambda s: s.name):
        children.setdefault(spec.parent, []).append(spec.name)
    return children


def _duplicates(specs: Sequence[TeamSpec]) -> list[Fault]:
    counts = Counter(spec.name for spec in specs)
    return [
        Fault(f'team "{name}" is defined {count} times; keep one of them', frozenset({name}))
        for name, count in sorted(counts.items())
        if count > 1
    ]


def _own(spec: TeamSpec) -> list[str]:
    """Faults that show in the team's own numbers."""
    found = []
    if not spec.name:
        found.append("a team has an empty name; give it one")
    if spec.weight < 0:
        found.append(f'team "{spec.name}": weight is {spec.weight}; give 0 or more')
    for flavor, quota in sorted(spec.quotas.items()):
        found += [f'team "{spec.name}": quotas[{flavor}].{text}' for text in _amounts(quota)]
    return found


def _amounts(quota: Quota) -> list[str]:
    found = []
    if quota.guarantee < 0:
        found.append(f"guarantee is {quota.guarantee}; give 0 or more whole GPUs")
    if quota.limit is not None and quota.limit < max(0, quota.guarantee):
        found.append(
            f"limit is {quota.limit}, below its guarantee {quota.guarantee}; raise the limit, lower the guarantee "
            "or leave the limit out"
        )
    if quota.lend_limit is not None and quota.lend_limit < 0:
        found.append(f"lendLimit is {quota.lend_limit}; give 0 or more, or leave it out to lend everything")
    return found


def _unknown_parents(by_name: Mapping[TeamName, TeamSpec], left_out: frozenset[TeamName]) -> list[Fault]:
    found = []
    for name, spec in sorted(by_name.items()):
        if spec.parent is None or spec.parent in by_name:
            continue
        if spec.parent in left_out:
            text = f'team "{name}": its parent "{spec.parent}" is left out for a fault of its own; repair that first'
        else:
            text = f'team "{name}": parent "{spec.parent}" does not exist; create that team or change parent'
        found.append(Fault(text, frozenset({name})))
    return found


def _cycles(by_name: Mapping[TeamName, TeamSpec]) -> list[Fault]:
    """Each cycle once. Teams that merely hang below one have a parent that is left out."""
    found, done = [], set[TeamName]()
    for start in sorted(by_name):
        trail: list[TeamName] = []
        name: TeamName | None = start
        while name is not None and name in by_name and name not in done and name not in trail:
            trail.append(name)
            name = by_name[name].parent
        if name is not None and name in trail:
            ring = trail[trail.index(name) :]
            chain = " -> ".join([*ring, name])
            found.append(Fault(f"teams {chain} are each other's parents; give one of them no parent", frozenset(ring)))
        done.update(trail)
    return found


def _broken_promises(by_name: Mapping[TeamName, TeamSpec]) -> list[Fault]:
    """Guarantees of children that sum to more than the parent's own: the last ones by name are left out."""
    children = children_of(by_name.values())
    roots = [name for name, spec in by_name.items() if spec.parent is None or spec.parent not in by_name]
    found = []
    for flavor in sorted({flavor for spec in by_name.values() for flavor in spec.quotas}):
        promised: dict[TeamName, int] = {}
        for name in reversed(_downwards(roots, children)):
            below = {child: promised[child] for child in children.get(name, ())}
            quota = by_name[name].quotas.get(flavor)
            promised[name] = sum(below.values()) if quota is None else quota.guarantee
            if quota is not None and sum(below.values()) > quota.guarantee >= 0:
                found.append(_broken_promise(name, flavor, quota.guarantee, below))
    return found


def _broken_promise(name: TeamName, flavor: FlavorName, guarantee: int, below: Mapping[TeamName, int]) -> Fault:
    listing = ", ".join(f"{child} {gpus}" for child, gpus in below.items() if gpus)
    total = sum(below.values())
    text = (
        f'team "{name}": quotas[{flavor}].guarantee is {guarantee}, its children\'s sum to {total} ({listing}); '
        f"raise it to {total} or lower theirs"
    )
    left, over = guarantee, set[TeamName]()
    for child, gpus in below.items():
        if gpus > max(0, left):
            over.add(child)
        else:
            left -= gpus
    return Fault(text, frozenset(over))


def _downwards(roots: Iterable[TeamName], children: Mapping[TeamName | None, list[TeamName]]) -> list[TeamName]:
    """Every team that hangs on a root, parents first."""
    order = sorted(roots)
    for name in order:  # grows while it is walked
        order.extend(children.get(name, ()))
    return order
