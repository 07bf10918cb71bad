"""Nodes as admission sees them, and where on them a workload goes. Pure.

A node serves one system at a time: Slurm through its worker, which holds every GPU of the node, or pods.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridge.quota.model import FlavorName
from bridge.workloads.model import Grant, NodeName, System, Workload

Placement = Mapping[NodeName, int]


@dataclass(frozen=True, slots=True)
class NodeSupply:
    """One node: what it has and who holds it. `slurm` and `pods` are devices granted, started or not."""

    name: NodeName
    flavor: FlavorName
    total: int  # allocatable devices now
    usable: bool = True
    cause: str = ""  # why it is not usable, or not for Slurm
    slurm: int = 0
    pods: int = 0
    unmanaged: int = 0
    worker_gpus: int | None = None  # devices that its live worker holds
    slurm_ok: bool = True  # False: its worker is drained or down by somebody else, or it can have none

    def room(self, system: System) -> int:
        """Devices that a new grant of `system` may take here now."""
        if not self.usable:
            return 0
        if system is System.KUBERNETES:
            return 0 if self.slurm else max(0, self.total - self.pods - self.unmanaged)
        if not self.slurm_ok or self.pods or self.unmanaged:
            return 0
        return max(0, self._worker_size - self.slurm)

    def in_the_way(self, workload: Workload) -> tuple[int, int] | None:
        """(pod devices, Slurm devices) that must end before the workload's share fits; None when waiting is in vain.

        Unmanaged pods are not waited for: nothing here knows or bounds their end.
        """
        asks = workload.gpus_per_node
        if not self.usable:
            return None
        if workload.system is System.KUBERNETES:
            free = self.total - self.unmanaged - self.pods
            return (max(0, asks - free), self.slurm) if self.total - self.unmanaged >= asks else None
        if not self.slurm_ok or self.unmanaged or self.total < asks:
            return None
        if self.slurm and self._worker_size < asks:
            return self.pods, self.slurm  # its worker must be replaced first, and for that be idle
        return self.pods, max(0, asks - (self._worker_size - self.slurm))

    @property
    def _worker_size(self) -> int:
        """Devices for Slurm: those of a worker in use; an idle or missing one can be (re)made with all of them."""
        if self.worker_gpus is not None and self.slurm:
            return min(self.total, self.worker_gpus)
        return self.total

    def preference(self, workload: Workload) -> tuple[int, int, str]:
        """Sort key among nodes with room: best fit on what serves this system already, then on what is empty."""
        leftover = self.room(workload.system) - workload.gpus_per_node
        if workload.system is System.KUBERNETES:
            tier = 0 if self.worker_gpus is None else 1
        elif self.worker_gpus is None:
            tier = 0 if self.slurm else 1  # a worker is on its way where Slurm grants are
        else:
            tier = 0 if self.worker_gpus - self.slurm >= workload.gpus_per_node else 2
        return tier, leftover, self.name


def held(grants: Iterable[Grant]) -> dict[tuple[NodeName, System], int]:
    """Devices that grants hold on each node, by system."""
    sums: dict[tuple[NodeName, System], int] = {}
    for grant in grants:
        if grant.holds:
            for node, gpus in grant.placement.items():
                sums[node, grant.system] = sums.get((node, grant.system), 0) + gpus
    return sums


def place(workload: Workload, nodes: Iterable[NodeSupply]) -> Placement | None:
    """Return distinct nodes for the workload, or None; the same answer whatever order the nodes come in."""
    fitting = [node for node in nodes if node.room(workload.system) >= workload.gpus_per_node]
    if len(fitting) < workload.nodes:
        return None
    best = heapq.nsmallest(workload.nodes, fitting, key=lambda node: node.preference(workload))
    return {node.name: workload.gpus_per_node for node in best}


def eligible(workload: Workload, nodes: Iterable[NodeSupply]) -> list[NodeSupply]:
    """Nodes that are large enough and where the workload may land, whatever is on them now."""
    within = workload.within_nodes
    return [
        node
        for node in nodes
        if node.flavor == workload.flavor
        and node.total >= workload.gpus_per_node
        and (within is None or node.name in within)
    ]


@dataclass(frozen=True, slots=True)
class Target:
    """The nodes nearest to being free for a waiting workload; `ends`: only Slurm work, which ends, is in the way."""

    nodes: frozenset[NodeName]
    ends: bool


def target(workload: Workload, nodes: Iterable[NodeSupply]) -> Target | None:
    """Choose the nodes to keep for a workload that waits: least in the way, pods counted as the longer wait."""
    ways = [(way, node.name) for node in nodes if (way := node.in_the_way(workload)) is not None]
    if len(ways) < workload.nodes:
        return None
    nearest = sorted(ways)[: workload.nodes]
    return Target(frozenset(name for _, name in nearest), ends=all(pods == 0 for (pods, _), _ in nearest))
