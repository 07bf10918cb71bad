"""Whose work a workload may reclaim, while victims are chosen one by one. Pure.

At the level where the paths of the preemptor's team and of the victim's part:
 - the preemptor's side, with the preemptor started and the chosen victims gone, is within its guarantee (*open*);
 - every level on the victim's side, down to what its team holds, is above its guarantee when it is chosen, and
   stays at it or above, unless `crossing` is asked for: a gang is indivisible, so it may take a level below.
Work of the preemptor's own team is a victim only by `withinTeam: LowerPriority`, and by that alone.
What is leaving already counts as gone: two reclaims at once never take a level below what is guaranteed to it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from bridge.admission import levels
from bridge.admission.levels import Level
from bridge.admission.model import Holding, Policy, WithinTeam
from bridge.quota.model import TeamName
from bridge.quota.tree import Balances
from bridge.workloads.model import Grant, Workload, WorkloadId

NEVER_MS = -(2**63)  # before every start


class Candidate(NamedTuple):
    """One attempt that might make way. Candidates compare by who makes way first: the stated order."""

    priority: int
    lost_gpu_ms: int  # devices x milliseconds since it started: the work that is given up
    later: int  # minus the start's time: of equal losses, the latest start makes way
    workload: WorkloadId
    attempt: int
    team: TeamName
    gpus: int  # on all nodes
    grant: Grant

    @property
    def key(self) -> tuple[str, int]:
        """Return its identity."""
        return self.workload, self.attempt


Harm = tuple[tuple[int, int], ...]
"""Work given up: (priority, lost GPU-ms), the highest priority first. Tuples compare by what harms least: nothing
of a higher priority is given up to spare work of a lower one."""


def harm(victims: Iterable[Candidate]) -> Harm:
    """Return what is given up with these; more victims never harm less."""
    lost: dict[int, int] = {}
    for victim in victims:
        lost[victim.priority] = lost.get(victim.priority, 0) + victim.lost_gpu_ms
    return tuple(sorted(lost.items(), reverse=True))


class _Path(NamedTuple):
    """A team as a victim: all its levels, those below the parting, and the preemptor's level there."""

    levels: tuple[Level, ...]
    below: tuple[Level, ...]  # empty for the preemptor's own team
    ours: Level


class Borrowers:
    """The levels' balances while victims are taken and given back."""

    def __init__(self, workload: Workload, balances: Balances, policy: Policy) -> None:
        self._workload = workload
        self._balances = balances
        self._policy = policy
        self._chain = levels.chain(balances.tree, workload.team)
        self._over: dict[Level, int] = {}
        self._paths: dict[TeamName, _Path] = {}
        self._taken: set[tuple[str, int]] = set()
        self._swaps = policy.of(workload.team).within_team is WithinTeam.LOWER_PRIORITY

    def candidates(self, holdings: Iterable[Holding], now_ms: int) -> list[Candidate]:
        """Return what could become a victim: of a team that borrows, past its minimum runtime, not shielded."""
        found: list[Candidate] = []
        latest: dict[TeamName, int] = {}  # whoever started later has not run long enough
        mine, priority = self._workload.team, self._workload.priority
        for holding in holdings:
            grant = holding.grant
            team, started = grant.team, grant.running_ms
            if team not in latest:
                latest[team] = self._latest_start(team, now_ms)
            if started is None or started > now_ms:
                started = now_ms
            if started > latest[team] or holding.leaving or holding.shield:
                continue
            if team == mine and (holding.priority >= priority or grant.workload == self._workload.id):
                continue
            gpus = grant.gpus
            lost = gpus * (now_ms - started)
            found.append(Candidate(holding.priority, lost, -started, grant.workload, grant.attempt, team, gpus, grant))
        return found

    def legal(self, candidate: Candidate, *, crossing: bool) -> bool:
        """Return whether it may be chosen now: never twice."""
        if candidate.key in self._taken:
            return False
        path = self._path(candidate.team)
        if not path.below:
            return self._swaps and candidate.priority < self._workload.priority
        least = min(self._above(level) for level in path.below)
        return least > 0 and (crossing or candidate.gpus <= least) and self.opens(candidate)

    def spare(self, candidate: Candidate) -> int | None:
        """Return what its team may lose without a level below its guarantee; None for the preemptor's own team."""
        return min((self._above(level) for level in self._path(candidate.team).below), default=None)

    def opens(self, candidate: Candidate) -> bool:
        """Return whether the preemptor's side, where the candidate's path parts from it, is within its guarantee."""
        path = self._path(candidate.team)
        return not path.below or self._above(path.ours) + self._workload.gpus <= 0

    def closed(self) -> tuple[Level, ...]:
        """Return the preemptor's levels that the workload would take above the guarantee, lowest first."""
        return tuple(level for level in self._chain if self._above(level) + self._workload.gpus > 0)

    def inside(self, candidate: Candidate, level: Level) -> bool:
        """Return whether the level counts the candidate's devices."""
        return level in self._path(candidate.team).levels

    def short(self, candidate: Candidate) -> int:
        """Devices by which choosing it now would take the worst of its levels below the guarantee."""
        path = self._path(candidate.team)
        return max([0, *(candidate.gpus - max(0, self._above(level)) for level in path.below)])

    def below(self, candidate: Candidate) -> bool:
        """Return whether one of its levels is below the guarantee now."""
        return any(self._above(level) < 0 for level in self._path(candidate.team).below)

    def depth(self, candidate: Candidate) -> int:
        """Levels that the candidate shares with the preemptor: inner victims may open an outer level."""
        path = self._path(candidate.team)
        return len(path.levels) - len(path.below)

    def take(self, candidate: Candidate) -> None:
        """Count its devices as gone from all its levels."""
        self._taken.add(candidate.key)
        for level in self._path(candidate.team).levels:
            self._over[level] = self._above(level) - candidate.gpus

    def give(self, candidate: Candidate) -> None:
        """Undo `take`."""
        self._taken.remove(candidate.key)
        for level in self._path(candidate.team).levels:
            self._over[level] += candidate.gpus

    def _latest_start(self, team: TeamName, now_ms: int) -> int:
        """Return the latest start with which the team's work may be a victim: none does when it does not borrow."""
        path = self._path(team)
        if not path.below and not self._swaps:
            return NEVER_MS
        if any(self._above(level) <= 0 for level in path.below):
            return NEVER_MS  # victims only lower a borrower's levels, so it stays none
        return now_ms - self._policy.of(team).min_runtime_ms

    def _above(self, level: Level) -> int:
        """Devices above the level's guarantee now."""
        if level not in self._over:
            self._over[level] = levels.over(self._balances, self._workload.flavor, level)
        return self._over[level]

    def _path(self, team: TeamName) -> _Path:
        if team not in self._paths:
            theirs = levels.chain(self._balances.tree, team)
            shared = 0
            for mine, other in zip(reversed(self._chain), reversed(theirs), strict=False):
                if mine != other:
                    break
                shared += 1
            below = theirs[: len(theirs) - shared]
            ours = self._chain[max(0, len(self._chain) - shared - 1)]
            self._paths[team] = _Path(theirs, below, ours)
        return self._paths[team]
