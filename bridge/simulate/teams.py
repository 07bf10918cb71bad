"""The teams of a simulation: from Team objects or their short form, or from the demand of the trace itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bridge.admission.model import Preemption, WithinTeam
from bridge.crd import duration, parse
from bridge.crd.team import Team
from bridge.errors import InvalidInputError
from bridge.quota.model import Quota, TeamName, TeamSpec
from bridge.quota.tree import Tree
from bridge.simulate import fleet, shares
from bridge.simulate.model import FLAVOR, FLEET, Job, Node, TeamTerms

_SHORT: Final = ("guarantee", "limit", "lendLimit")
"""Amounts of the one quota in the short form of a team."""


@dataclass(frozen=True, slots=True)
class Teams:
    """The tree's teams, and which of them a name in the trace (a Slurm account) means."""

    terms: tuple[TeamTerms, ...]
    accounts: Mapping[str, TeamName]

    def rename(self, job: Job) -> Job:
        """Return the job with its team's name instead of its account's."""
        team = self.accounts.get(job.team, job.team)
        return job if team == job.team else replace(job, team=team)


def read(path: Path, flavor: str | None = None) -> Teams:
    """Read teams; InvalidInputError names the first bad field, or what keeps them from being a tree.

    The simulator counts GPUs of one flavor. `flavor` says which, when the teams have quotas of several.
    """
    found = [_team(path, index, each) for index, each in enumerate(fleet.items(path, "teams"))]
    if not found:
        raise InvalidInputError(f"{path}: no team; give Team objects, or a list under `teams`")
    flavors = sorted({quota.flavor for team in found for quota in team.spec.quotas})
    if flavor is None and len(flavors) > 1:
        raise InvalidInputError(f"{path}: quotas of the flavors {', '.join(flavors)}: choose one with --flavor")
    if flavor is not None and flavor not in flavors:
        raise InvalidInputError(
            f"{path}: no quota of flavor {flavor}; there are quotas of: {', '.join(flavors) or 'none'}"
        )
    chosen = flavor or (flavors[0] if flavors else "")
    terms = tuple(_terms(team, chosen) for team in found)
    try:
        Tree.build(each.spec for each in terms)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    return Teams(terms, {team.account: TeamName(team.metadata.name) for team in found})


def by_demand(jobs: Iterable[Job], nodes: Iterable[Node]) -> Teams:
    """Make one team for each name in the trace. Their guarantees are all GPUs, divided by mean demand.

    In whole nodes where all are of one size and there are enough of them, so that a static partition can give the
    same; else in GPUs.
    """
    demand: dict[TeamName, int] = {}
    for job in jobs:
        demand[job.team] = demand.get(job.team, 0) + job.gpu_ms
    sizes = [node.gpus for node in nodes]
    unit = sizes[0] if len(set(sizes)) == 1 and len(sizes) >= len(demand) else 1
    guarantees = shares.divide(sum(sizes) // unit, demand)
    if FLEET in demand:
        raise InvalidInputError(f"a team of the trace is called {FLEET}, as the root of all teams is: give --teams")
    root = TeamTerms(TeamSpec(FLEET, quotas={FLAVOR: Quota(sum(sizes))}))
    leaves = (TeamSpec(team, FLEET, quotas={FLAVOR: Quota(gpus * unit)}) for team, gpus in guarantees.items())
    return Teams((root, *map(TeamTerms, leaves)), {})


def _team(path: Path, index: int, each: Mapping[str, Any]) -> Team:
    """Read a Team object, or a short one: its spec beside its name, and one quota's amounts instead of `quotas`."""
    if "spec" not in each and "metadata" not in each:
        spec = {key: value for key, value in each.items() if key not in ("name", *_SHORT)}
        amounts = {key: each[key] for key in _SHORT if each.get(key) is not None}
        if amounts:
            spec["quotas"] = [{"flavor": str(FLAVOR), **amounts}]
        each = {"metadata": {"name": each.get("name")}, "spec": spec}
    try:
        return parse.team(dict(each))
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: teams[{index}]: {error}") from error


def _terms(team: Team, flavor: str) -> TeamTerms:
    spec = team.quota_spec()
    quota = next((quota for name, quota in spec.quotas.items() if name == flavor), None)
    quotas = {} if quota is None else {FLAVOR: quota}
    preemption = None
    if "preemption" in team.spec.model_fields_set:
        given = team.spec.preemption
        preemption = Preemption(
            min_runtime_ms=duration.milliseconds(given.min_runtime),
            grace_ms=duration.milliseconds(given.grace),
            within_team=WithinTeam(given.within_team.value),
            kill=given.kill_non_requeueable,
        )
    return TeamTerms(replace(spec, quotas=quotas), preemption)
