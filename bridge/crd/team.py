"""Team: a tenant and a node of the quota tree; an account in Slurm, some namespaces in Kubernetes."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from bridge.crd import duration
from bridge.crd.duration import Duration
from bridge.crd.model import (
    Amount,
    Column,
    Conditions,
    Definition,
    Metadata,
    Model,
    Name,
    Rule,
    keyed_by,
    rules,
)
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec

MAX_MEMBERS = 500
SlurmUser = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]*$", min_length=1, max_length=32)]
NumericId = Annotated[int, Field(ge=1000, le=2_000_000_000)]  # below are system accounts


class QuotaEntry(Model):
    """Quota of one flavor, in whole devices."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.limit) || self.limit >= self.guarantee",
                "limit is below guarantee; raise limit or lower guarantee",
                "limit",
            ),
            Rule(
                "!has(self.lendLimit) || self.lendLimit <= self.guarantee",
                "lendLimit is above guarantee; no more than that can be lent",
                "lendLimit",
            ),
        )
    )

    flavor: Name
    """Name of a Flavor. A flavor that is not listed is not open to the team."""
    guarantee: Amount
    """Devices that the team can always get back; 0 opens the flavor for borrowing. Covers the children's."""
    limit: Amount | None = None
    """Most that the team and its children may use in all. Absent: as much as others leave idle."""
    lend_limit: Amount | None = None
    """Most of the guarantee that others may borrow while it is idle. Absent: all of it."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.limit is not None and self.limit < self.guarantee:
            raise ValueError(f"limit {self.limit} is below guarantee {self.guarantee}; raise limit or lower guarantee")
        if self.lend_limit is not None and self.lend_limit > self.guarantee:
            raise ValueError(
                f"lendLimit {self.lend_limit} is above guarantee {self.guarantee}; no more than that can be lent"
            )
        return self


class WithinTeam(StrEnum):
    """Whether work of the team makes way for the team's own."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


class Preemption(Model):
    """The team's terms when others take back what they are guaranteed, and inside itself."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                Rule(
                    f"!has(self.{field}) || duration(self.{field}) <= duration('{duration.MAX_HOURS}h')",
                    f"{field} is longer than a day; give at most {duration.MAX_HOURS}h",
                    field,
                )
                for field in ("minRuntime", "grace")
            )
        )
    )

    min_runtime: Duration = "0s"
    """The team's borrowing work is not taken back before it has run this long, e.g. 10m."""
    grace: Duration = "30s"
    """Time between the signal that a job asked for (`sbatch --signal`) and its requeue, e.g. 2m."""
    within_team: WithinTeam = WithinTeam.NEVER
    """LowerPriority: work of the team may take the place of the team's own work of lower priority."""
    kill_non_requeueable: bool = False
    """Cancel jobs that cannot be requeued (srun, salloc, --no-requeue) when their GPUs are taken back.
    Without it they are never victims, and are admitted within the guarantee only."""


class Member(Model):
    """One person: who Kubernetes knows him as, and whom his Slurm jobs run as."""

    user: Annotated[str, Field(min_length=1, max_length=253)]
    """Username as Kubernetes authenticates it, e.g. alice or alice@example.org."""
    slurm_user: SlurmUser
    """Login name on the cluster."""
    uid: NumericId
    """Numeric user id that jobs and mirror pods run as; system accounts (below 1000) are refused."""
    gid: NumericId
    """Numeric primary group id, at least 1000."""


class Spec(Model):
    """Place in the tree, quotas and people."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.defaultUser) || "
                "(has(self.members) && self.members.exists(m, m.slurmUser == self.defaultUser))",
                "defaultUser is no member's slurmUser; add that member or choose another",
                "defaultUser",
            ),
        )
    )

    parent: Name | None = None
    """Team above this one in the quota tree. Absent: a root."""
    weight: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """Share of what is borrowed, against the teams beside this one; 0 borrows only what nobody else wants."""
    quotas: Annotated[
        tuple[QuotaEntry, ...],
        Field(max_length=64, json_schema_extra=keyed_by("flavor")),
    ] = ()
    """Quota of each flavor that is open to the team."""
    preemption: Preemption = Preemption()
    """When and how the team's borrowing work makes way for what others are guaranteed."""
    account: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=63)] | None = None
    """Slurm account (`sbatch --account`). Absent: the team's name."""
    members: Annotated[
        tuple[Member, ...],
        Field(max_length=MAX_MEMBERS, json_schema_extra=keyed_by("user")),
    ] = ()
    """People who may submit for the team. Nobody else's GPU work runs on its quota through Slurm."""
    default_user: SlurmUser | None = None
    """slurmUser of the member whom jobs of controllers (e.g. a CronJob) run as. Absent: those are refused."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        flavors = [entry.flavor for entry in self.quotas]
        twice = sorted({flavor for flavor in flavors if flavors.count(flavor) > 1})
        if twice:
            raise ValueError(f"quotas names flavor {twice[0]} twice; keep one entry for each flavor")
        slurm_users = {member.slurm_user for member in self.members}
        if self.default_user is not None and self.default_user not in slurm_users:
            raise ValueError(
                f"defaultUser {self.default_user} is no member's slurmUser; choose one of: "
                f"{', '.join(sorted(slurm_users)) or 'none, add members first'}"
            )
        return self


class FlavorUse(Model):
    """Use of one flavor by the team and its children, in whole devices."""

    flavor: Name
    """Name of the flavor."""
    slurm: Amount = 0
    """Held by Slurm jobs."""
    kubernetes: Amount = 0
    """Held by pods."""
    borrowed: Amount = 0
    """Held above the guarantee."""
    available: int = 0
    """What could be granted now; negative after the quota was lowered below the use."""
    pending: Amount = 0
    """Asked for by waiting work."""


class Status(Model):
    """What the ledger says of the team."""

    flavors: Annotated[
        tuple[FlavorUse, ...],
        Field(max_length=64, json_schema_extra=keyed_by("flavor")),
    ] = ()
    """One entry for each flavor of the team."""
    conditions: Conditions = ()
    """Accepted: whether the team has its place in the quota tree, and why not."""


class Team(Model):
    """A team as read from the API server."""

    metadata: Metadata
    spec: Spec

    @property
    def account(self) -> str:
        """Slurm account: the team's name unless told otherwise."""
        return self.spec.account or self.metadata.name

    def quota_spec(self) -> TeamSpec:
        """Return the same team as a node of the quota tree."""
        return TeamSpec(
            name=TeamName(self.metadata.name),
            parent=TeamName(self.spec.parent) if self.spec.parent is not None else None,
            weight=self.spec.weight,
            quotas={FlavorName(q.flavor): Quota(q.guarantee, q.limit, q.lend_limit) for q in self.spec.quotas},
        )


DEFINITION = Definition(
    kind="Team",
    plural="teams",
    short="tm",
    namespaced=False,
    spec=Spec,
    status=Status,
    # No column of a list: kubectl would print its first entry only, and two flavors would look like one.
    columns=(
        Column("Parent", "string", ".spec.parent"),
        Column("Account", "string", ".spec.account"),
        Column("Accepted", "string", ".status.conditions[?(@.type=='Accepted')].status"),
        Column("Reason", "string", ".status.conditions[?(@.type=='Accepted')].message", wide=True),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    rules=(
        Rule("size(self.metadata.name) <= 63", "the name goes into labels: at most 63 characters"),
        Rule(
            "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
            "a team cannot be its own parent; name another team, or leave parent out for a root",
            "spec.parent",
        ),
    ),
)
