"""Who is who: teams by account and namespace, and which Slurm user a Kubernetes user is."""

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.quota.model import TeamName


@dataclass(frozen=True, slots=True)
class Member:
    """One person of a team: `user` is the name Kubernetes knows, `slurm_user` with uid/gid the one jobs run as."""

    user: str
    slurm_user: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team as the ways in see it."""

    name: TeamName
    account: str
    members: tuple[Member, ...] = ()
    default_user: str = ""  # Slurm user for what controllers submit


@dataclass(frozen=True, slots=True)
class Tenants:
    """All teams."""

    teams: tuple[Tenant, ...]

    @classmethod
    def of(cls, teams: Iterable[Tenant]) -> "Tenants":
        """Sort by name so that every answer is deterministic."""
        return cls(tuple(sorted(teams, key=lambda team: team.name)))

    def named(self, name: str) -> Tenant | None:
        """Look a team up by its name (a namespace's label)."""
        return next((team for team in self.teams if team.name == name), None)

    def of_account(self, account: str) -> Tenant | None:
        """Look a team up by its Slurm account."""
        return next((team for team in self.teams if team.account == account), None)

    def user_of(self, uid: int, told: str) -> str:
        """Return the Slurm user with this uid; `told` (slurmctld may only know the number) when nobody has it."""
        return next((m.slurm_user for team in self.teams for m in team.members if m.uid == uid), told)

    def runs_as(self, team: Tenant, submitted_by: str) -> Member | None:
        """Return the member that `submitted_by` is; a controller falls back to the team's default user."""
        for member in team.members:
            if member.user == submitted_by:
                return member
        if submitted_by.startswith("system:") and team.default_user:
            return next((m for m in team.members if m.slurm_user == team.default_user), None)
        return None
