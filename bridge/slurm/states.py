"""One table: every base state of Slurm x every flag -> what it means to the bridge (J3).

Numbers and names are those of slurm.h (enum job_states, JOB_* flags; enum node_states, NODE_STATE_* flags). slurmctld
sends them as one number. No text is searched, and a bit that is not in the table makes the phase UNKNOWN, from which
nothing may be concluded.
"""

from collections.abc import Collection
from typing import Final

from bridge.slurm.model import JobState, Phase

_STATE_BITS: Final = 0xFF

JOB_STATES: Final = (
    JobState.PENDING,
    JobState.RUNNING,
    JobState.SUSPENDED,
    JobState.COMPLETED,
    JobState.CANCELLED,
    JobState.FAILED,
    JobState.TIMEOUT,
    JobState.NODE_FAIL,
    JobState.PREEMPTED,
    JobState.BOOT_FAIL,
    JobState.DEADLINE,
    JobState.OUT_OF_MEMORY,
)

# Bit -> name. What a flag means for the devices a job holds stands beside it.
JOB_FLAGS: Final = {
    8: "LAUNCH_FAILED",  # says how it ended
    9: "GETENV_FAILED",  # says how it ended
    10: "REQUEUE",  # will be pending once COMPLETING is over
    11: "REQUEUE_HOLD",  # the same, held
    12: "SPECIAL_EXIT",  # the same, held and marked by its owner
    13: "RESIZING",  # set for a moment while its size changes
    14: "CONFIGURING",  # allocated, nodes booting
    15: "COMPLETING",  # processes or epilog go on
    16: "STOPPED",  # allocated, stopped by a signal
    17: "RECONFIG_FAIL",  # says how it ended
    18: "POWER_UP_NODE",  # allocated, nodes being powered up
    19: "REVOKED",  # a federation sibling runs instead: says why it ended
    20: "REQUEUE_FED",  # as REQUEUE, by a federation
    21: "RESV_DEL_HOLD",  # held because its reservation is gone
    22: "SIGNALING",  # a signal is on its way
    23: "STAGE_OUT",  # burst buffer: data go out, the end is not reached
    24: "EXPEDITING",  # being considered for an expedited requeue: not at its end yet
}
UNKNOWN_FLAG: Final = "UNKNOWN_FLAG"

_ENDING: Final = frozenset({"COMPLETING", "STAGE_OUT", "EXPEDITING"})
_HOLDING: Final = frozenset({"CONFIGURING", "STOPPED", "POWER_UP_NODE", "RESIZING"})
_NEUTRAL: Final = frozenset(JOB_FLAGS.values()) - _ENDING - _HOLDING

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

NODE_STATES: Final = ("UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE")
_NODE_STATE_BITS: Final = 0xF
NODE_FLAGS: Final = {
    4: "EXTERNAL",
    5: "RESERVED",
    6: "UNDRAIN",
    7: "CLOUD",
    8: "RESUME",
    9: "DRAIN",
    10: "COMPLETING",
    11: "NOT_RESPONDING",
    12: "POWERED_DOWN",
    13: "FAIL",
    14: "POWERING_UP",
    15: "MAINTENANCE",
    16: "REBOOT_REQUESTED",
    17: "REBOOT_CANCEL",
    18: "POWERING_DOWN",
    19: "DYNAMIC_FUTURE",
    20: "REBOOT_ISSUED",
    21: "PLANNED",
    22: "INVALID_REG",
    23: "POWER_DOWN",
    24: "POWER_UP",
    25: "POWER_DRAIN",
    26: "DYNAMIC_NORM",
    27: "BLOCKED",
}


def phase(state: JobState, flags: Collection[str]) -> Phase:
    """Return the phase of a job.

    A job that waits or runs while COMPLETING is one that was requeued: its old attempt still holds its devices.
    A flag of an allocation on a base state that has none is a combination that does not exist: UNKNOWN.
    """
    known = _ENDING | _HOLDING | _NEUTRAL
    if state is JobState.UNKNOWN or not known.issuperset(flags):
        return Phase.UNKNOWN
    if not _ENDING.isdisjoint(flags):
        return Phase.ENDING
    if not _HOLDING.isdisjoint(flags):
        return Phase.RUNNING if _BASE[state] is Phase.RUNNING else Phase.UNKNOWN
    return _BASE[state]


def job_state(number: int) -> tuple[JobState, frozenset[str]]:
    """Take slurmctld's number apart."""
    base = number & _STATE_BITS
    state = JOB_STATES[base] if base < len(JOB_STATES) else JobState.UNKNOWN
    return state, _names(number & ~_STATE_BITS, JOB_FLAGS)


def node_state(number: int) -> tuple[str, frozenset[str]]:
    """Take slurmctld's number of a node apart."""
    base = number & _NODE_STATE_BITS
    state = NODE_STATES[base] if base < len(NODE_STATES) else "UNKNOWN"
    return state, _names(number & ~_NODE_STATE_BITS, NODE_FLAGS)


def _names(bits: int, table: dict[int, str]) -> frozenset[str]:
    return frozenset(table.get(bit, UNKNOWN_FLAG) for bit in range(bits.bit_length()) if bits >> bit & 1)
