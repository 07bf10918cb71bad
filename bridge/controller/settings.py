"""What people configured in custom resources to settings; what is bad is left out and named. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from bridge.admission.model import Policy, Preemption, WithinTeam
from bridge.controller.world import NodeSetView, Settings
from bridge.crd import duration, parse
from bridge.crd.flavor import Flavor
from bridge.crd.nodeset import NodeSet
from bridge.crd.slurmcluster import SlurmCluster
from bridge.crd.team import Team
from bridge.errors import InvalidInputError
from bridge.kube.port import Object
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Tree
from bridge.workloads.flavors import Flavors, FlavorSpec
from bridge.workloads.tenants import Member, Tenant, Tenants

ModelT = TypeVar("ModelT")


@dataclass(frozen=True, slots=True)
class Resources:
    """The custom resources that could be read."""

    flavors: tuple[Flavor, ...]
    teams: tuple[Team, ...]
    clusters: tuple[SlurmCluster, ...]
    nodesets: tuple[NodeSet, ...]
    deleting: frozenset[tuple[str, str]]  # (namespace, name) of NodeSets that are going
    problems: tuple[str, ...]


def resources(
    flavors: Iterable[Object], teams: Iterable[Object], clusters: Iterable[Object], nodesets: Iterable[Object]
) -> Resources:
    """Parse every object; one bad object never stops the others (N10)."""
    problems: list[str] = []
    nodesets = list(nodesets)
    return Resources(
        flavors=_parsed(parse.flavor, flavors, problems),
        teams=_parsed(parse.team, teams, problems),
        clusters=_parsed(parse.cluster, clusters, problems),
        nodesets=_parsed(parse.nodeset, nodesets, problems),
        deleting=frozenset(
            (n["metadata"]["namespace"], n["metadata"]["name"])
            for n in nodesets
            if n["metadata"].get("deletionTimestamp")
        ),
        problems=tuple(problems),
    )


def settings(read: Resources) -> Settings:
    """Build what the planner needs."""
    tree, faults = Tree.build_lenient([team.quota_spec() for team in read.teams])
    cluster = read.clusters[0] if read.clusters else None
    problems = [*read.problems, *(fault.text for fault in faults)]
    if len(read.clusters) > 1:
        others = ", ".join(f"{c.metadata.namespace}/{c.metadata.name}" for c in read.clusters[1:])
        problems.append(f"SlurmCluster {others}: one SlurmCluster is served for now; remove it")
    return Settings(
        tree=tree,
        tenants=Tenants.of(_tenant(team) for team in read.teams if TeamName(team.metadata.name) in tree),
        flavors=Flavors.of(_flavor(flavor) for flavor in read.flavors),
        nodesets=tuple(_nodeset(n, read.deleting) for n in sorted(read.nodesets, key=lambda n: n.metadata.name)),
        cluster=cluster.metadata.name if cluster else "",
        cluster_namespace=cluster.metadata.namespace if cluster else "",
        problems=tuple(problems),
        policy=Policy({TeamName(team.metadata.name): _preemption(team) for team in read.teams}),
    )


def _preemption(team: Team) -> Preemption:
    told = team.spec.preemption
    return Preemption(
        min_runtime_ms=duration.milliseconds(told.min_runtime),
        grace_ms=duration.milliseconds(told.grace),
        within_team=WithinTeam(told.within_team.value),
        kill=told.kill_non_requeueable,
    )


def _parsed(parser: Callable[[Object], ModelT], objects: Iterable[Object], problems: list[str]) -> tuple[ModelT, ...]:
    found = []
    for obj in sorted(objects, key=lambda o: (o["metadata"].get("namespace", ""), o["metadata"]["name"])):
        try:
            found.append(parser(obj))
        except InvalidInputError as bad:
            problems.append(str(bad))
    return tuple(found)


def _tenant(team: Team) -> Tenant:
    members = tuple(Member(m.user, m.slurm_user, m.uid, m.gid) for m in team.spec.members)
    return Tenant(TeamName(team.metadata.name), team.account, members, team.spec.default_user or "")


def _flavor(flavor: Flavor) -> FlavorSpec:
    spec = flavor.spec
    name = FlavorName(flavor.metadata.name)
    return FlavorSpec(name, spec.resource, spec.node_selector, spec.gres_type, default=spec.default)


def _nodeset(nodeset: NodeSet, deleting: frozenset[tuple[str, str]]) -> NodeSetView:
    meta, spec = nodeset.metadata, nodeset.spec
    return NodeSetView(
        name=meta.name,
        namespace=meta.namespace,
        cluster=spec.cluster,
        flavor=spec.flavor,
        min=spec.min,
        max=spec.max,
        idle_after_s=spec.idle_after_seconds,
        node_selector=spec.node_selector,
        deleting=(meta.namespace, meta.name) in deleting,
    )
