"""Workloads and placements that the ledger's tests share."""

from dataclasses import replace

from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import NodeName, System, Workload, WorkloadId

NODE = NodeName("gpu-1")
OTHER = NodeName("gpu-2")
T0 = 1_700_000_000_000


def workload(key: str = "a", *, gpus: int = 4, team: str = "vision", system: System = System.SLURM) -> Workload:
    """Return a single-node workload of `gpus` h100."""
    prefix = "slurm/main" if system is System.SLURM else "pod"
    return Workload(
        id=WorkloadId(f"{prefix}/{key}"),
        system=system,
        team=TeamName(team),
        flavor=FlavorName("h100"),
        nodes=1,
        gpus_per_node=gpus,
        submitted_ms=T0,
        user="alice",
        name=f"train-{key}",
    )


def of_flavor(wanted: Workload, flavor: str) -> Workload:
    """Return the same workload in another flavor."""
    return replace(wanted, flavor=FlavorName(flavor))
