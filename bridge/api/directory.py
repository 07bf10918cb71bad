"""From a user name to an identity: which teams it is in, and whether it administers the platform. Pure."""

from collections.abc import Iterable

from bridge import wellknown
from bridge.api.identity import Identity
from bridge.workloads.tenants import Tenants

SLURM_ADMINS = frozenset({"root", "slurm"})
ADMIN_GROUPS = frozenset({"system:masters"})
ADMIN_USERS = frozenset({f"system:serviceaccount:{wellknown.NAMESPACE}:platform-admin"})


def of_slurm_user(tenants: Tenants, user: str) -> Identity:
    """Identity of a Slurm user. A user without a team is still somebody: he sees sums, and no names."""
    teams = frozenset(str(t.name) for t in tenants.teams if any(m.slurm_user == user for m in t.members))
    kubernetes = {m.user for t in tenants.teams for m in t.members if m.slurm_user == user and m.user}
    return Identity(
        name=user,
        slurm_user=user,
        kubernetes_user=kubernetes.pop() if len(kubernetes) == 1 else None,
        admin=user in SLURM_ADMINS,
        teams=teams,
    )


def of_kubernetes_user(tenants: Tenants, user: str, groups: Iterable[str] = ()) -> Identity:
    """Identity of a Kubernetes user. Slurm work is his where his teams agree on one Slurm user."""
    groups = frozenset(groups)
    teams = frozenset(str(t.name) for t in tenants.teams if any(m.user == user for m in t.members))
    slurm = {m.slurm_user for t in tenants.teams for m in t.members if m.user == user and m.slurm_user}
    return Identity(
        name=user,
        slurm_user=slurm.pop() if len(slurm) == 1 else None,
        kubernetes_user=user,
        groups=groups,
        admin=user in ADMIN_USERS or bool(groups & ADMIN_GROUPS),
        teams=teams,
    )
