"""Admission of a whole snapshot: a fresh desk that decides once. The rules are in bridge.admission.round and below."""

from collections.abc import Collection, Mapping, Sequence

from bridge.admission.decisions import Decisions, Placed
from bridge.admission.desk import Desk
from bridge.admission.model import Earmark, History, Holding, Policy
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName
from bridge.quota.tree import Tree
from bridge.workloads.model import Grant, System, Workload, WorkloadId

__all__ = ["Decisions", "Placed", "admit"]


def admit(
    waiting: Sequence[Workload],
    tree: Tree,
    grants: Sequence[Grant | Holding],
    nodes: Sequence[NodeSupply],
    *,
    flavors: Collection[FlavorName],
    policy: Policy | None = None,
    earmarks: Sequence[Earmark] = (),
    history: History | None = None,
    pauses: Mapping[WorkloadId, int] | None = None,
    now_ms: int = 0,
) -> Decisions:
    """Decide every waiting workload. Of two with the same id, the first in the order counts.

    A bare grant is taken as what is known of it: a pod may serve for ever, a job ends, nobody knows when. Without a
    policy nothing is taken back from anybody: the caller has to carry preemptions out.
    """
    desk = Desk(tree, flavors, policy or Policy(preempts=False), history)
    holdings = [_holding(each) if isinstance(each, Grant) else each for each in grants]
    desk.sync(waiting=waiting, holdings=holdings, nodes=nodes, earmarks=earmarks, pauses=pauses)
    return desk.decide(now_ms)


def _holding(grant: Grant) -> Holding:
    return Holding(grant, endless=grant.system is System.KUBERNETES)
