"""A naive second count of what the planner bench granted: the bench fails for a wrong answer, never for a slow one."""

from collections import Counter

from bridge.admission.supply import NodeSupply
from bridge.quota.model import TeamName
from bridge.quota.tree import Tree
from bridge.workloads.model import Grant, NodeName, System, WorkloadId
from tests.bench.fleets import FLAVOR


class WrongAnswerError(AssertionError):
    """The planner or the ledger broke a rule."""


class Audit:
    """Devices by node and by subtree, counted without the planner's own arithmetic."""

    def __init__(self, tree: Tree, nodes: tuple[NodeSupply, ...]) -> None:
        self._tree = tree
        self._totals = {node.name: node.total for node in nodes}
        self._used: Counter[NodeName] = Counter()
        self._by_system: dict[NodeName, Counter[System]] = {node.name: Counter() for node in nodes}
        self._held: Counter[TeamName] = Counter()
        self._holding: dict[WorkloadId, Grant] = {}
        self.granted: Counter[WorkloadId] = Counter()
        self.done: Counter[WorkloadId] = Counter()
        self.preempted: Counter[WorkloadId] = Counter()

    def grant(self, grant: Grant) -> None:
        """Count a grant; one more than nodes, limits or guarantees of the whole tree allow is wrong."""
        if grant.workload in self._holding:
            raise WrongAnswerError(f"{grant.workload} was granted while it holds")
        if sum(grant.placement.values()) != grant.gpus:
            raise WrongAnswerError(f"{grant.workload}: {grant.gpus} granted, placed {dict(grant.placement)}")
        self._holding[grant.workload] = grant
        self.granted[grant.workload] += 1
        for node, gpus in grant.placement.items():
            self._used[node] += gpus
            self._by_system[node][grant.system] += gpus
            if self._used[node] > self._totals[node]:
                raise WrongAnswerError(f"node {node} of {self._totals[node]} holds {self._used[node]}")
            if all(self._by_system[node][system] for system in System):
                raise WrongAnswerError(f"node {node} serves both systems")
        *_, root = path = self._tree.path(grant.team)
        for team in path:
            self._held[team] += grant.gpus
            quota = self._tree.spec(team).quotas[FLAVOR]
            most = quota.guarantee if team == root else quota.limit
            if most is not None and self._held[team] > most:
                raise WrongAnswerError(f"{team} may hold {most} and holds {self._held[team]}")

    def end(self, workload: WorkloadId, *, preempted: bool = False) -> None:
        """Count the end of a grant."""
        grant = self._holding.pop(workload)
        for node, gpus in grant.placement.items():
            self._used[node] -= gpus
            self._by_system[node][grant.system] -= gpus
        for team in self._tree.path(grant.team):
            self._held[team] -= grant.gpus
        (self.preempted if preempted else self.done)[workload] += 1

    def check_all_done(self, workloads: set[WorkloadId]) -> None:
        """Each workload ended by itself exactly once, and was granted once more than it was preempted."""
        if self.done != Counter(workloads):
            raise WrongAnswerError(f"{len(self.done)} of {len(workloads)} workloads ended, each must exactly once")
        if self.granted != self.done + self.preempted:
            raise WrongAnswerError("a workload was granted oftener than once per attempt")
