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
        return self.room_beside(system, self.slurm, self.pods)

    def room_beside(self, system: System, slurm: int, pods: int) -> int:
        """Devices that a new grant of `system` could take here if Slurm and pods held this many."""
        if not self.usable:
            return 0
        if system is System.KUBERNETES:
            return 0 if slurm else max(0, self.total - pods - self.unmanaged)
        if not self.slurm_ok or pods or self.unmanaged:
            return 0
        return max(0, self._worker_size(slurm) - slurm)

    def in_the_way(self, workload: Workload) -> tuple[int, int] | None:
        """(pod devices, Slurm devices) that must end before the workload's share fits; None when waiting is in vain.

        Unmanaged pods are not waited for: nothing here knows or bounds their end.
        """
        return self.in_the_way_of(workload.system, workload.gpus_per_node)

    def in_the_way_of(self, system: System, asks: int) -> tuple[int, int] | None:
        """Do the same for any workload of `system` that asks this many devices here."""
        if not self.usable:
            return None
        if system is System.KUBERNETES:
            free = self.total - self.unmanaged - self.pods
            return (max(0, asks - free), self.slurm) if self.total - self.unmanaged >= asks else None
        if not self.slurm_ok or self.unmanaged or self.total < asks:
            return None
        size = self._worker_size(self.slurm)
        if self.slurm and size < asks:
            return self.pods, self.slurm  # its worker must be replaced first, and for that be idle
        return self.pods, max(0, asks - (size - self.slurm))

    def _worker_size(self, slurm: int) -> int:
        """Devices for Slurm: those of a worker in use; an idle or missing one can be (re)made with all of them."""
        if self.worker_gpus is not None and slurm:
            return min(self.total, self.worker_gpus)
        return self.total

    def preference(self, workload: Workload) -> tuple[int, int, str]:
        """Sort key among nodes with room: best fit on what serves this system already, then on what is empty."""
        return (*self.preference_of(workload.system, workload.gpus_per_node), self.name)

    def preference_of(self, system: System, asks: int) -> tuple[int, int]:
        """Return (tier, devices left over), without the name that decides between equals."""
        leftover = self.room(system) - asks
        if system is System.KUBERNETES:
            tier = 0 if self.worker_gpus is None else 1
        elif self.worker_gpus is None:
            tier = 0 if self.slurm else 1  # a worker is on its way where Slurm grants are
        else:
            tier = 0 if self.worker_gpus - self.slurm >= asks else 2
        return tier, leftover

    def drained_for(self, system: System, asks: int) -> bool:
        """Return whether the worker here must go before `asks` devices serve `system`."""
        if self.worker_gpus is None:
            return False
        return system is System.KUBERNETES or self.worker_gpus - self.slurm < asks


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
