"""Waiting workloads: one queue for each team of a flavor, in groups of equal shape. Pure.

Within a queue: priority, then age, then id. Workloads of one shape find the same room and the same quota, so of a
group only the first has to be judged; only a shorter time limit can let a later one pass (bridge.admission.keeping).
"""

from typing import NamedTuple

from sortedcontainers import SortedList

from bridge.quota.model import TeamName
from bridge.workloads.model import NodeName, System, Workload, WorkloadId
from bridge.workloads.reasons import Reason

Rank = tuple[int, int, WorkloadId]
"""(minus priority, submitted_ms, id): the order within a queue."""


class Shape(NamedTuple):
    """What decides whether a workload may start, without who it is and how long it runs."""

    team: TeamName
    system: System
    nodes: int
    gpus_per_node: int
    within_nodes: frozenset[NodeName] | None
    preemptible: bool
    endless: bool
    alone: WorkloadId | None  # set for a workload with an earmark, which is judged by itself

    @property
    def gpus(self) -> int:
        """Total devices over all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def share(self) -> tuple[System, int]:
        """Its system and its devices on each node."""
        return self.system, self.gpus_per_node


def shape_of(workload: Workload, *, alone: bool = False) -> Shape:
    """Return a workload's shape; `alone` when it has an earmark."""
    return Shape(
        workload.team,
        workload.system,
        workload.nodes,
        workload.gpus_per_node,
        workload.within_nodes,
        workload.preemptible,
        workload.endless,
        workload.id if alone else None,
    )


def rank_of(workload: Workload) -> Rank:
    """Return the place of a workload in its queue, as a key."""
    return -workload.priority, workload.submitted_ms, workload.id


def limit_ms(workload: Workload) -> int | None:
    """Return how long it runs at most; None: no end can be counted on."""
    if workload.endless or workload.time_limit_s is None:
        return None
    return workload.time_limit_s * 1000


class Group:
    """The waiting workloads of one shape, in order. `limited`: how many have a time limit.

    `refused`, of the quotas numbered `judged`: see bridge.admission.refusals.
    """

    __slots__ = ("judged", "limited", "members", "refused", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.members: SortedList[Rank] = SortedList()
        self.limited = 0
        self.judged = -1
        self.refused: Reason | None = None

    def add(self, workload: Workload) -> None:
        """Add a workload of this shape."""
        self.members.add(rank_of(workload))
        self.limited += limit_ms(workload) is not None

    def discard(self, workload: Workload) -> None:
        """Remove a workload that was added."""
        self.members.remove(rank_of(workload))
        self.limited -= limit_ms(workload) is not None


class Queue:
    """The groups of one team; empty ones are dropped."""

    __slots__ = ("groups", "team")

    def __init__(self, team: TeamName) -> None:
        self.team = team
        self.groups: dict[Shape, Group] = {}

    def add(self, workload: Workload, shape: Shape) -> None:
        """Add a workload of the team."""
        group = self.groups.get(shape)
        if group is None:
            group = self.groups[shape] = Group(shape)
        group.add(workload)

    def discard(self, workload: Workload, shape: Shape) -> None:
        """Remove a workload that was added."""
        group = self.groups[shape]
        group.discard(workload)
        if not group.members:
            del self.groups[shape]

    def position(self, workload: Workload) -> tuple[int, int]:
        """Return (its place in the order counted from 1, how many wait in all)."""
        rank = rank_of(workload)
        before = sum(group.members.bisect_left(rank) for group in self.groups.values())
        return before + 1, sum(len(group.members) for group in self.groups.values())
