"""The quota tree as frozen values. Amounts are whole devices, integers everywhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

TeamName = NewType("TeamName", str)
FlavorName = NewType("FlavorName", str)


@dataclass(frozen=True, slots=True)
class Quota:
    """One team's quota of one flavor. None means no own bound (the ancestors' still bind)."""

    guarantee: int
    limit: int | None = None
    lend_limit: int | None = None


@dataclass(frozen=True, slots=True)
class TeamSpec:
    """A node of the quota tree. A flavor missing from `quotas` is not open to the team."""

    name: TeamName
    parent: TeamName | None = None
    weight: int = 1
    quotas: Mapping[FlavorName, Quota] = field(default_factory=dict)
