"""What the planner bench runs on: teams, nodes and workloads, the same ones at every run.

The workload classes, quotas, arrivals and run times of (a) are those of the baseline of Kueue's published scheduler
benchmark (its test/performance/scheduler/configs/baseline): 5 cohorts of 6 queues with 20 devices each, which may
borrow 100 more; 500 workloads a queue. Nodes of 8 are added, because here a grant names its nodes: the class of 20
devices is a gang of 5 nodes with 4 each. Every second workload of one node is a pod, all others are Slurm jobs.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Tree
from bridge.workloads.model import NodeName, System, Workload, WorkloadId

FLAVOR: Final = FlavorName("h100")
GPUS_PER_NODE: Final = 8
BORROWS: Final = 5  # times its guarantee that a team may borrow
SEED: Final = 4
_LIMITS_S: Final = (600, 3_600, 14_400, 86_400)


@dataclass(frozen=True, slots=True)
class Kind:
    """One class of workloads: how many of 500, how often they come, how long they run (milliseconds)."""

    of_500: int
    every_ms: int
    runs_ms: int
    priority: int
    nodes: int
    gpus_per_node: int


KINDS: Final = (
    Kind(350, 100, 200, 50, 1, 1),
    Kind(100, 500, 500, 100, 1, 5),
    Kind(50, 1_200, 1_000, 200, 5, 4),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A workload that comes at its `submitted_ms`, and how long it runs once it started."""

    workload: Workload
    runs_ms: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """A platform and its demand, in the order of arrival."""

    tree: Tree
    nodes: tuple[NodeSupply, ...]
    arrivals: tuple[Arrival, ...]


def fleet(
    *, groups: int, teams: int, per_team: int, guarantee: int, nodes: int | None = None, ranked: bool = True
) -> Fleet:
    """Return `groups` groups of `teams` teams; as many nodes as the guarantees need, unless told otherwise.

    `ranked`: each kind has its priority; else all are equal and their age decides.
    """
    specs = list(_specs(groups, teams, guarantee))
    count = -(-groups * teams * guarantee // GPUS_PER_NODE) if nodes is None else nodes
    supply = tuple(NodeSupply(NodeName(f"n{at:05}"), FLAVOR, GPUS_PER_NODE) for at in range(count))
    leaves = [spec.name for spec in specs if spec.parent is not None]
    chance = random.Random(SEED)
    found = [arrival for team in leaves for arrival in _demand(team, per_team, chance, ranked=ranked)]
    found.sort(key=lambda arrival: (arrival.workload.submitted_ms, arrival.workload.id))
    return Fleet(Tree.build(specs), supply, tuple(found))


def _specs(groups: int, teams: int, guarantee: int) -> Iterator[TeamSpec]:
    for group in range(groups):
        root = TeamName(f"g{group:03}")
        yield TeamSpec(root, quotas={FLAVOR: Quota(guarantee * teams)})
        for team in range(teams):
            quota = Quota(guarantee, limit=guarantee * (1 + BORROWS))
            yield TeamSpec(TeamName(f"{root}-t{team:02}"), root, quotas={FLAVOR: quota})


def _demand(team: TeamName, per_team: int, chance: random.Random, *, ranked: bool) -> Iterator[Arrival]:
    """Return a team's workloads: each kind arrives on its own clock, as Kueue's generator makes them."""
    for number, kind in enumerate(KINDS):
        for at in range(per_team * kind.of_500 // 500):
            pod = kind.nodes == 1 and bool(at % 2)
            workload = Workload(
                id=WorkloadId(f"{'pod' if pod else 'slurm/bench'}/{team}-{number}-{at:05}"),
                system=System.KUBERNETES if pod else System.SLURM,
                team=team,
                flavor=FLAVOR,
                nodes=kind.nodes,
                gpus_per_node=kind.gpus_per_node,
                submitted_ms=(at + 1) * kind.every_ms,
                priority=kind.priority if ranked else 0,
                user="bench",
                name=f"kind-{number}",
                time_limit_s=None if pod else chance.choice(_LIMITS_S),
                endless=pod,
            )
            yield Arrival(workload, kind.runs_ms)
