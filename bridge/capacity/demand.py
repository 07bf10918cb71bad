"""What the grants want of each node. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bridge.capacity.model import NodeView
from bridge.workloads.model import Grant, GrantState, NodeName, System


@dataclass(frozen=True, slots=True)
class Demand:
    """Devices of one node that grants hold, in numbers that the worker rules need."""

    slurm: int = 0  # reserved and running
    running: int = 0  # of these, running
    smallest: int = 0  # the smallest Slurm share there; a worker below it helps nobody
    pods: int = 0

    @property
    def mixed(self) -> bool:
        """Both systems hold grants here, which admission never makes: found running, or a node that changed."""
        return self.slurm > 0 and self.pods > 0


def demands(nodes: Sequence[NodeView], grants: Iterable[Grant]) -> Mapping[NodeName, Demand]:
    """Return every node's demand.

    Pods count by the larger of grants and what is seen bound, so that neither a late ledger nor a late watch frees
    a node too early.
    """
    shares: dict[NodeName, list[tuple[Grant, int]]] = {}
    for grant in grants:
        if grant.holds:
            for node, gpus in grant.placement.items():
                shares.setdefault(node, []).append((grant, gpus))
    return {view.name: _demand(view, shares.get(view.name, [])) for view in nodes}


def _demand(view: NodeView, shares: Iterable[tuple[Grant, int]]) -> Demand:
    slurm = [(grant, gpus) for grant, gpus in shares if grant.system is System.SLURM]
    pods = sum(gpus for grant, gpus in shares if grant.system is System.KUBERNETES)
    return Demand(
        slurm=sum(gpus for _, gpus in slurm),
        running=sum(gpus for grant, gpus in slurm if grant.state is GrantState.RUNNING),
        smallest=min((gpus for _, gpus in slurm), default=0),
        pods=max(pods, view.pods_granted),
    )
