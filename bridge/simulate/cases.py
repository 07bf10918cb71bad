"""What each policy makes of a scenario: a quota tree, pools of nodes, and workloads. Pure.

Every policy is run by the same planner; only what it is given differs. A pool of nodes that only some may use is a
flavor of its own.

 shared  one pool; the teams' tree as it is
 static  a pool for each team with a guarantee, of whole nodes; there its guarantee is its limit
 split   a pool for Slurm and one for Kubernetes, of whole nodes by their mean demand; in each, the teams share as
         under `shared`, with guarantees by their mean demand there
 fifo    one pool, one queue, no teams
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from bridge.admission.model import Policy, Preemption
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Tree
from bridge.simulate import shares
from bridge.simulate.model import FLAVOR, Job, Node, PolicyName, Scenario, Settings
from bridge.workloads.model import NodeName, System, Workload

EVERYBODY: Final = TeamName("everybody")


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that can never run under a policy, and why."""

    job: Job
    why: str


@dataclass(frozen=True, slots=True)
class Case:
    """One policy on one scenario, ready to run."""

    policy: PolicyName
    tree: Tree
    rules: Policy
    supplies: tuple[NodeSupply, ...]
    work: tuple[tuple[Job, Workload], ...]  # by submission
    refused: tuple[Refused, ...]
    guarantees: Mapping[TeamName, int]  # over all its pools; of inner teams what they do not pass on
    notes: tuple[str, ...] = ()

    @property
    def flavors(self) -> frozenset[FlavorName]:
        """All pools."""
        return frozenset(supply.flavor for supply in self.supplies) or frozenset({FLAVOR})

    @property
    def gpus(self) -> int:
        """Devices in all pools."""
        return sum(supply.total for supply in self.supplies)


@dataclass(slots=True)
class _Plan:
    """A policy's choices, before the jobs are looked at."""

    specs: list[TeamSpec]
    pools: dict[FlavorName, list[Node]]
    pool_of: Callable[[Job], FlavorName]
    team_of: Callable[[Job], TeamName] = lambda job: job.team
    notes: list[str] = field(default_factory=list)


def make(policy: PolicyName, scenario: Scenario) -> Case:
    """Return the case of one policy."""
    makers = {
        PolicyName.SHARED: _shared,
        PolicyName.STATIC: _static,
        PolicyName.SPLIT: _split,
        PolicyName.FIFO: _fifo,
    }
    plan = makers[policy](scenario)
    tree = Tree.build(plan.specs)
    work, refused = _Admitter(plan, tree, scenario).sort()
    settings = scenario.settings
    terms = {each.spec.name: each.preemption for each in scenario.teams if each.preemption is not None}
    default = Preemption(min_runtime_ms=settings.min_runtime_ms, grace_ms=settings.grace_ms)
    guarantees = {team: sum(tree.share(team, pool).own for pool in plan.pools) for team in tree.teams}
    return Case(
        policy,
        tree,
        Policy(preemption={team: terms.get(team, default) for team in tree.teams}),
        tuple(NodeSupply(node.name, flavor, node.gpus) for flavor, nodes in plan.pools.items() for node in nodes),
        work,
        refused,
        {team: gpus for team, gpus in guarantees.items() if gpus or not tree.children(team)},
        tuple(plan.notes),
    )


def _shared(scenario: Scenario) -> _Plan:
    specs = [each.spec for each in scenario.teams]
    plan = _Plan(specs, {FLAVOR: list(scenario.nodes)}, lambda _job: FLAVOR)
    promised = sum(quota.guarantee for spec in specs if spec.parent is None for quota in spec.quotas.values())
    if promised > scenario.gpus:
        plan.notes.append(
            f"the teams are guaranteed {promised} GPUs, the fleet has {scenario.gpus}: not all guarantees can hold"
        )
    roots = [spec.name for spec in specs if spec.parent is None]
    if len(roots) > 1:
        plan.notes.append(f"{len(roots)} teams have no parent: each lends and borrows within its own tree only")
    return plan


def _static(scenario: Scenario) -> _Plan:
    tree = Tree.build(each.spec for each in scenario.teams)
    own = {team: tree.share(team, FLAVOR).own for team in tree.teams}
    parts = shares.partition(scenario.nodes, own)
    pools = {FlavorName(f"nodes of {team}"): nodes for team, nodes in parts.items()}
    sizes = {team: sum(node.gpus for node in nodes) for team, nodes in parts.items()}
    specs = [
        TeamSpec(team, quotas={FlavorName(f"nodes of {team}"): Quota(gpus, gpus, 0)})
        for team, gpus in sizes.items()
        if gpus or not tree.children(team)
    ]
    plan = _Plan(specs, pools, lambda job: FlavorName(f"nodes of {job.team}"))
    plan.notes += [
        f"static: team {team} has no node of its own: its guarantee is {own[team]}, others are further below theirs"
        for team, gpus in sizes.items()
        if not gpus and own[team]
    ]
    return plan


def _split(scenario: Scenario) -> _Plan:
    demand = {system: _demand(job for job in scenario.jobs if job.system is system) for system in System}
    wanted = shares.divide(scenario.gpus, {system: sum(demand[system].values()) for system in System})
    parts = shares.partition(scenario.nodes, wanted)
    pools = {FlavorName(f"nodes of {system}"): nodes for system, nodes in parts.items()}
    tree = Tree.build(each.spec for each in scenario.teams)
    quotas: dict[TeamName, dict[FlavorName, Quota]] = {team: {} for team in tree.teams}
    roots: dict[FlavorName, Quota] = {}
    for system, nodes in parts.items():
        pool, size = FlavorName(f"nodes of {system}"), sum(node.gpus for node in nodes)
        roots[pool] = Quota(size)
        known = {team: amount for team, amount in demand[system].items() if team in quotas}
        for team, gpus in shares.divide(size, known).items():
            quotas[team][pool] = Quota(gpus)
    root = TeamName("both systems")
    specs = [TeamSpec(root, quotas=roots)]
    specs += [TeamSpec(team, root, tree.spec(team).weight, own) for team, own in quotas.items() if own]
    plan = _Plan(specs, pools, lambda job: FlavorName(f"nodes of {job.system}"))
    plan.notes += [
        f"split: the trace has no work for {system}, which gets no nodes" for system in System if not demand[system]
    ]
    return plan


def _fifo(scenario: Scenario) -> _Plan:
    specs = [TeamSpec(EVERYBODY, quotas={FLAVOR: Quota(scenario.gpus)})]
    return _Plan(specs, {FLAVOR: list(scenario.nodes)}, lambda _job: FLAVOR, lambda _job: EVERYBODY)


def _demand(jobs: Iterable[Job]) -> dict[TeamName, int]:
    sums: dict[TeamName, int] = {}
    for job in jobs:
        sums[job.team] = sums.get(job.team, 0) + job.gpu_ms
    return sums


class _Admitter:
    """Makes workloads of jobs, and sets aside what can never run."""

    def __init__(self, plan: _Plan, tree: Tree, scenario: Scenario) -> None:
        self._plan = plan
        self._tree = tree
        self._scenario = scenario
        self._largest = max((node.gpus for node in scenario.nodes), default=0)
        self._kinds: dict[tuple[FlavorName, frozenset[str]], list[Node]] = {}
        self._names: dict[tuple[FlavorName, frozenset[str]], frozenset[NodeName] | None] = {}
        self._verdicts: dict[tuple[TeamName, FlavorName, int, int, frozenset[str]], str] = {}
        self._ceilings: dict[tuple[TeamName, FlavorName], int] = {}

    def sort(self) -> tuple[tuple[tuple[Job, Workload], ...], tuple[Refused, ...]]:
        """Return what can run, with its workload, and what never can."""
        work, refused = [], []
        for job in self._scenario.jobs:
            workload = self._workload(job)
            why = self._why_never(job, workload)
            if why:
                refused.append(Refused(job, why))
            else:
                work.append((job, workload))
        return tuple(work), tuple(refused)

    def _workload(self, job: Job) -> Workload:
        pool = self._plan.pool_of(job)
        nodes, gpus_per_node = layout(job, self._largest)
        self._nodes(pool, job.models)
        return Workload(
            id=job.id,
            system=job.system,
            team=self._plan.team_of(job),
            flavor=pool,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            submitted_ms=job.submitted_ms,
            priority=job.priority,
            time_limit_s=limit_s(job, self._scenario.settings),
            within_nodes=self._names[pool, job.models],
            endless=job.endless,
        )

    def _nodes(self, pool: FlavorName, models: frozenset[str]) -> Sequence[Node]:
        key = (pool, models)
        if key not in self._kinds:
            nodes = self._plan.pools.get(pool, [])
            chosen = [node for node in nodes if not models or node.model in models]
            self._kinds[key] = chosen
            self._names[key] = frozenset(node.name for node in chosen) if models else None
        return self._kinds[key]

    def _why_never(self, job: Job, workload: Workload) -> str:
        key = (workload.team, workload.flavor, workload.nodes, workload.gpus_per_node, job.models)
        if key not in self._verdicts:
            self._verdicts[key] = self._judged(job, workload)
        return self._verdicts[key]

    def _judged(self, job: Job, workload: Workload) -> str:
        team, pool = workload.team, workload.flavor
        if team not in self._tree:
            return f"team {team} is not among the teams"
        if (team, pool) not in self._ceilings:
            self._ceilings[team, pool] = Balances(self._tree, {}).available(team, pool)
        ceiling = self._ceilings[team, pool]
        if workload.gpus > ceiling:
            return f"{workload.gpus} GPUs are more than team {team} may ever hold here ({ceiling})"
        fitting = sum(node.gpus >= workload.gpus_per_node for node in self._nodes(pool, job.models))
        if fitting < workload.nodes:
            kind = f" of the kind {'|'.join(sorted(job.models))}" if job.models else ""
            return (
                f"{workload.nodes} nodes with {workload.gpus_per_node} GPUs{kind} are more than there are ({fitting})"
            )
        return ""


def layout(job: Job, largest: int) -> tuple[int, int]:
    """Return (nodes, GPUs on each): as asked for where that is possible, else equal parts on as few nodes as it takes.

    A pod is never spread. `largest`: GPUs of the largest node.
    """
    if job.nodes and job.gpus % job.nodes == 0 and job.gpus // job.nodes <= largest:
        return job.nodes, job.gpus // job.nodes
    if job.system is System.KUBERNETES or largest < 1:
        return 1, job.gpus
    nodes = -(-job.gpus // largest)
    while job.gpus % nodes:
        nodes += 1
    return nodes, job.gpus // nodes


def limit_s(job: Job, settings: Settings) -> int | None:
    """Return the time limit that the planner is told, in seconds, never below the run time; None: none is known.

    Where the trace has none and a factor f is set, people's guesses are drawn: evenly from 1 to 2 f - 1 times the run
    time, by the seed and the job's id alone.
    """
    if job.endless:
        return None
    ran_s = -(-job.duration_ms // 1000)
    if job.time_limit_s is not None:
        return max(job.time_limit_s, ran_s)
    if not settings.limit_factor:
        return None
    spread = max(0.0, 2 * settings.limit_factor - 2)
    return max(ran_s, round(ran_s * (1 + spread * Random(f"{settings.seed}/{job.id}").random())))  # noqa: S311
