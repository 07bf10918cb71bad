"""The one closed list of why a workload waits or is refused: the same string in status, log, metric and API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """Why a workload is not running. Values are stable: they are shown to users and kept in metrics."""

    QUOTA = "QuotaExceeded"  # the team (or an ancestor) may not hold more now
    CAPACITY = "NoFreeCapacity"  # quota would allow it, no feasible set of nodes is free
    BEHIND_GANG = "ReservedForOlderGang"  # what is free is kept for an older, larger workload of the team
    RECLAIMING = "ReclaimingGuarantee"  # borrowed GPUs are being taken back for it; earmarked until it starts
    GUARANTEE_ONLY = "OnlyWithinGuarantee"  # it cannot be preempted, so it may not borrow
    MOVING = "CapacityMoving"  # granted; workers are being created or drained for it
    STARTING = "Starting"  # granted and handed to its system; not yet running there
    NEVER_FITS_QUOTA = "ExceedsLimit"  # more than the team could ever hold
    NEVER_FITS_NODES = "ExceedsNodes"  # no set of existing nodes could ever hold it
    NO_SUCH_FLAVOR = "UnknownFlavor"
    FLAVOR_CLOSED = "FlavorNotOpenToTeam"
    UNKNOWN_TEAM = "UnknownTeam"
    NOT_A_MEMBER = "NotAMember"
    UNSUPPORTED = "Unsupported"  # a field that cannot run in Slurm; the text names it
    IN_SLURM = "WaitsInSlurm"  # a dependency or a begin time of the job's own; not ready to be granted
    STUCK = "NotStartedInTime"  # Slurm kept it pending after its release; the text has Slurm's own reason
    OUTAGE = "SystemUnreachable"  # one of the two systems cannot be read, so nothing is decided


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not admitted now. `text` is one sentence for people, `numbers` the same facts for machines."""

    reason: Reason
    text: str
    numbers: Mapping[str, int | str] = field(default_factory=dict)
    final: bool = False  # True: will never be admitted as it stands; told to the user as a refusal
