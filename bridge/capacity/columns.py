"""Each GPU of a node in exactly one column: what the ledger records as capacity. Pure."""

from dataclasses import dataclass

from bridge.capacity.demand import Demand
from bridge.capacity.model import NodeView, PodPhase


@dataclass(frozen=True, slots=True)
class Columns:
    """Devices by who holds them physically. The five sum to `total`."""

    total: int
    worker: int
    pods: int
    unmanaged: int
    idle: int
    unavailable: int
    cause: str = ""


def columns(view: NodeView, demand: Demand) -> Columns:
    """Sort a node's GPUs into columns; `demand` is what the grants want of it.

    A worker holds its GPUs until its containers have ended: a terminating one still does, a failed one does not.
    GPUs that pods were granted and a worker still holds count with the worker.
    """
    worker = 0
    if view.worker is not None and view.worker.phase is not PodPhase.FAILED:
        worker = view.worker.gpus
    held = worker + view.unmanaged if worker else view.pods_granted + view.unmanaged
    total = max(view.allocatable, view.capacity or 0, held)
    pods = min(demand.pods, total - worker - view.unmanaged)
    rest = total - worker - pods - view.unmanaged
    lost = min(rest, max(0, total - view.allocatable))
    if view.unusable:
        return Columns(total, worker, pods, view.unmanaged, 0, rest, view.unusable)
    cause = f"{lost} GPUs unhealthy" if lost else ""
    return Columns(total, worker, pods, view.unmanaged, rest - lost, lost, cause)
