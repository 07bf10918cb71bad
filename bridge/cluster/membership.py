"""bridge-members.lua: which accounts, members, GPU types and ceilings job_submit.lua judges a submission by.

A Lua chunk that returns one table. Ceilings are what a team could hold with everybody else idle; a GPU type that
is missing there is not open to the account. -1 stands for no bound.
"""

from collections.abc import Iterable, Mapping

from bridge.crd.flavor import Flavor
from bridge.crd.team import Team

Ceilings = Mapping[str, Mapping[str, int | None]]
"""Team -> flavor -> most that it could ever hold (None: no bound). A team that is missing is left out."""

UNBOUNDED = -1


def lua(teams: Iterable[Team], flavors: Iterable[Flavor], ceilings: Ceilings) -> str:
    """Render the file: sorted, so that the same teams give the same bytes."""
    types = {flavor.metadata.name: flavor.spec.gres_type for flavor in flavors}
    default = sorted(f.spec.gres_type for f in flavors if f.spec.default) or (
        sorted(types.values()) if len(types) == 1 else []
    )
    lines = ["-- Written by the bridge from Teams and Flavors; changes here are overwritten.", "return {"]
    lines.append(f"  flavors = {{{', '.join(_text(kind) for kind in sorted(types.values()))}}},")
    if default:
        lines.append(f"  default_flavor = {_text(default[0])},")
    lines.append("  accounts = {")
    for team in sorted(teams, key=lambda team: team.account):
        if team.metadata.name in ceilings:
            lines += _account(team, types, ceilings[team.metadata.name])
    return "\n".join([*lines, "  },", "}", ""])


def _account(team: Team, types: Mapping[str, str], ceilings: Mapping[str, int | None]) -> list[str]:
    users = ", ".join(f"[{_text(user)}] = true" for user in sorted({m.slurm_user for m in team.spec.members}))
    bounds = ", ".join(
        f"[{_text(types[flavor])}] = {UNBOUNDED if bound is None else bound}"
        for flavor, bound in sorted(ceilings.items())
        if flavor in types
    )
    return [
        f"    [{_text(team.account)}] = {{",
        f"      users = {{{users}}},",
        f"      ceilings = {{{bounds}}},",
        "    },",
    ]


def _text(value: str) -> str:
    """Quote for Lua. The schema lets only harmless characters through; this does not rely on it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
