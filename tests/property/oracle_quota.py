"""A second, naive opinion on quota: the balance rule, recomputed from nothing for every question.

Shares no code and no formula with bridge.quota.tree: no pool, no local part, no spilling. A grant of x is allowed
when the balance of every root stays >= 0 and no subtree holds more than its limit; the most that is allowed is found
by trying 1, 2, 3, ...
"""

from collections.abc import Mapping, Sequence

from bridge.quota.model import FlavorName, TeamName, TeamSpec

Used = Mapping[tuple[TeamName, FlavorName], int]


def _below(specs: Sequence[TeamSpec], name: TeamName) -> list[TeamSpec]:
    return [spec for spec in specs if spec.parent == name]


def guarantee(specs: Sequence[TeamSpec], spec: TeamSpec, flavor: FlavorName) -> int:
    if flavor in spec.quotas:
        return spec.quotas[flavor].guarantee
    return sum(guarantee(specs, child, flavor) for child in _below(specs, spec.name))


def total(specs: Sequence[TeamSpec], spec: TeamSpec, flavor: FlavorName, used: Used) -> int:
    return used.get((spec.name, flavor), 0) + sum(
        total(specs, child, flavor, used) for child in _below(specs, spec.name)
    )


def balance(specs: Sequence[TeamSpec], spec: TeamSpec, flavor: FlavorName, used: Used) -> int:
    children = _below(specs, spec.name)
    left = guarantee(specs, spec, flavor) - sum(guarantee(specs, child, flavor) for child in children)
    left -= used.get((spec.name, flavor), 0)
    for child in children:
        coming = balance(specs, child, flavor, used)
        quota = child.quotas.get(flavor)
        if quota is not None and quota.lend_limit is not None:
            coming = min(coming, quota.lend_limit)
        left += coming
    return left


def allowed(specs: Sequence[TeamSpec], flavor: FlavorName, used: Used) -> bool:
    """Return whether this state keeps the balance rule everywhere."""
    for spec in specs:
        if spec.parent is None and balance(specs, spec, flavor, used) < 0:
            return False
        quota = spec.quotas.get(flavor)
        if quota is not None and quota.limit is not None and total(specs, spec, flavor, used) > quota.limit:
            return False
    return True


def most(specs: Sequence[TeamSpec], team: TeamName, flavor: FlavorName, used: Used) -> int:
    """Return the largest grant to `team` that keeps the rule, from a state that keeps it."""
    spec = next(spec for spec in specs if spec.name == team)
    if flavor not in spec.quotas:
        return 0
    asks = 0
    while allowed(specs, flavor, {**used, (team, flavor): used.get((team, flavor), 0) + asks + 1}):
        asks += 1
    return asks
