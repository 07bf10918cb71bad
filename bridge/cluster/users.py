"""People of all teams as passwd and group lines for libnss-extrausers, so that jobs run as their owners."""

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.crd.team import Member, Team


@dataclass(frozen=True, slots=True)
class Directory:
    """The two files, and what was left out with one sentence each."""

    passwd: str
    group: str
    problems: tuple[str, ...] = ()


def directory(teams: Iterable[Team]) -> Directory:
    """Merge the members of all teams. Who is listed twice must be the same person; the first listing stands.

    Teams are taken by name, so the answer does not depend on the order in which they were read.
    """
    by_user: dict[str, tuple[str, Member]] = {}
    by_uid: dict[int, str] = {}
    problems: list[str] = []
    for team in sorted(teams, key=lambda team: team.metadata.name):
        for member in sorted(team.spec.members, key=lambda member: (member.slurm_user, member.user)):
            problem = _clash(team.metadata.name, member, by_user, by_uid)
            if problem:
                problems.append(problem)
                continue
            by_user.setdefault(member.slurm_user, (team.metadata.name, member))
            by_uid.setdefault(member.uid, member.slurm_user)
    members = sorted((member for _team, member in by_user.values()), key=lambda member: member.uid)
    return Directory(_passwd(members), _group(members), tuple(problems))


def _clash(team: str, member: Member, by_user: dict[str, tuple[str, Member]], by_uid: dict[int, str]) -> str | None:
    where = f"Team {team}: member {member.slurm_user}"
    if member.slurm_user in by_user:
        first_team, first = by_user[member.slurm_user]
        if (first.uid, first.gid) != (member.uid, member.gid):
            return (
                f"{where} has uid {member.uid} gid {member.gid}, but team {first_team} gives uid {first.uid} "
                f"gid {first.gid}; use the same numbers in both"
            )
    elif member.uid in by_uid:
        return f"{where} has uid {member.uid}, which is {by_uid[member.uid]}'s; give each user a uid of his own"
    return None


def _passwd(members: list[Member]) -> str:
    """Write no-password entries: `x` would send PAM to a shadow file that there is not, and `su` would fail."""
    return "".join(f"{m.slurm_user}:*:{m.uid}:{m.gid}:{m.slurm_user}:/home/{m.slurm_user}:/bin/bash\n" for m in members)


def _group(members: list[Member]) -> str:
    """Name a primary group after the user whose uid it equals, else by its number."""
    private = {m.uid: m.slurm_user for m in members}
    gids = sorted({m.gid for m in members})
    return "".join(f"{private.get(gid, f'g{gid}')}:*:{gid}:\n" for gid in gids)
