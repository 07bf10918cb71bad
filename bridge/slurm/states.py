"""One table: every base state of Slurm x the flags that matter -> what it means to the bridge (J3).

Base states: slurm.h, enum job_states. Flags: JOB_STATE_FLAGS of slurm.h, by their names. No substring is matched;
what is not in the table is UNKNOWN, and nothing may be concluded from it.
"""

from collections.abc import Collection
from typing import Final

from bridge.slurm.model import JobState, Phase

# Flags that decide, in this order: the first that is set wins over the base state's own row.
# COMPLETING: processes, epilog or node clean-up still go on. CONFIGURING: nodes are allocated, booting.
# STAGE_OUT, SIGNALING, STOPPED, RESIZING, POWER_UP_NODE: the allocation is held.
_ENDING_FLAGS: Final = frozenset({"COMPLETING", "STAGE_OUT"})

# Flags that say nothing about whether anything is held.
_NEUTRAL_FLAGS: Final = frozenset(
    {
        "CONFIGURING",
        "LAUNCH_FAILED",
        "UPDATE_DB",
        "REQUEUE",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
        "RESIZING",
        "RESV_DEL_HOLD",
        "SIGNALING",
        "REVOKED",
        "POWER_UP_NODE",
        "RECONFIG_FAIL",
        "EXPEDITING",
        "STOPPED",
    }
)

_BASE: Final = {
    JobState.PENDING: Phase.WAITING,
    JobState.RUNNING: Phase.RUNNING,
    JobState.SUSPENDED: Phase.RUNNING,
    JobState.COMPLETED: Phase.ENDED,
    JobState.CANCELLED: Phase.ENDED,
    JobState.FAILED: Phase.ENDED,
    JobState.TIMEOUT: Phase.ENDED,
    JobState.NODE_FAIL: Phase.ENDED,
    JobState.PREEMPTED: Phase.ENDED,
    JobState.BOOT_FAIL: Phase.ENDED,
    JobState.DEADLINE: Phase.ENDED,
    JobState.OUT_OF_MEMORY: Phase.ENDED,
    JobState.UNKNOWN: Phase.UNKNOWN,
}

KNOWN_FLAGS: Final = _ENDING_FLAGS | _NEUTRAL_FLAGS


def phase(state: JobState, flags: Collection[str]) -> Phase:
    """Return the phase of a job; UNKNOWN for a state or a flag that the table does not have."""
    if state is JobState.UNKNOWN or not KNOWN_FLAGS.issuperset(flags):
        return Phase.UNKNOWN
    if not _ENDING_FLAGS.isdisjoint(flags):
        return Phase.ENDING
    return _BASE[state]
