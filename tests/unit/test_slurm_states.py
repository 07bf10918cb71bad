"""The state table (J3): every base state, every flag, every number slurmctld may send."""

import itertools

import pytest

from bridge.slurm import states
from bridge.slurm.model import JobState, Phase

WAITING = {JobState.PENDING}
RUNNING = {JobState.RUNNING, JobState.SUSPENDED}
ENDED = set(states.JOB_STATES) - WAITING - RUNNING


def test_every_base_state_has_its_phase() -> None:
    for state in states.JOB_STATES:
        expected = Phase.WAITING if state in WAITING else Phase.RUNNING if state in RUNNING else Phase.ENDED
        assert states.phase(state, ()) is expected
    assert set(states.JOB_STATES) | {JobState.UNKNOWN} == set(JobState)


@pytest.mark.parametrize("flag", ["COMPLETING", "STAGE_OUT", "EXPEDITING"])
@pytest.mark.parametrize("state", states.JOB_STATES)
def test_what_is_completing_still_holds_its_devices_whatever_it_becomes(state: JobState, flag: str) -> None:
    """A requeued job is PENDING and COMPLETING: its old attempt is not off its nodes."""
    assert states.phase(state, {flag}) is Phase.ENDING


@pytest.mark.parametrize("flag", ["CONFIGURING", "STOPPED", "POWER_UP_NODE", "RESIZING"])
@pytest.mark.parametrize("state", states.JOB_STATES)
def test_a_flag_of_an_allocation_means_running_or_nothing_known(state: JobState, flag: str) -> None:
    assert states.phase(state, {flag}) is (Phase.RUNNING if state in RUNNING else Phase.UNKNOWN)


@pytest.mark.parametrize(
    "flag",
    [
        "LAUNCH_FAILED",
        "GETENV_FAILED",
        "REQUEUE",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "RECONFIG_FAIL",
        "REVOKED",
        "REQUEUE_FED",
        "RESV_DEL_HOLD",
        "SIGNALING",
    ],
)
@pytest.mark.parametrize("state", states.JOB_STATES)
def test_other_flags_do_not_change_the_phase(state: JobState, flag: str) -> None:
    assert states.phase(state, {flag}) is states.phase(state, ())


def test_the_four_groups_above_are_all_flags() -> None:
    for state, flag in itertools.product(states.JOB_STATES, states.JOB_FLAGS.values()):
        states.phase(state, {flag})
    assert len(states.JOB_FLAGS) == 17


def test_nothing_is_concluded_from_what_is_not_in_the_table() -> None:
    assert states.phase(JobState.UNKNOWN, ()) is Phase.UNKNOWN
    assert states.phase(JobState.RUNNING, {"SOMETHING_NEW"}) is Phase.UNKNOWN
    assert states.phase(JobState.COMPLETED, {"COMPLETING", "SOMETHING_NEW"}) is Phase.UNKNOWN
    for substring in ("COMPLET", "COMPLETINGX", "completing"):
        assert states.phase(JobState.COMPLETED, {substring}) is Phase.UNKNOWN


@pytest.mark.parametrize(
    ("number", "state", "flags"),
    [
        (0, JobState.PENDING, set()),
        (1, JobState.RUNNING, set()),
        (0x8000, JobState.PENDING, {"COMPLETING"}),
        (0x8001, JobState.RUNNING, {"COMPLETING"}),
        (0x8004, JobState.CANCELLED, {"COMPLETING"}),
        (0x4001, JobState.RUNNING, {"CONFIGURING"}),
        (0x8C03, JobState.COMPLETED, {"COMPLETING", "REQUEUE", "REQUEUE_HOLD"}),
        (11, JobState.OUT_OF_MEMORY, set()),
        (12, JobState.UNKNOWN, set()),
        (0xFF, JobState.UNKNOWN, set()),
        (1 << 25 | 1, JobState.RUNNING, {"UNKNOWN_FLAG"}),
        (1 << 31 | 3, JobState.COMPLETED, {"UNKNOWN_FLAG"}),
    ],
)
def test_slurmctlds_number_is_taken_apart(number: int, state: JobState, flags: set[str]) -> None:
    assert states.job_state(number) == (state, frozenset(flags))


def test_every_flag_bit_has_its_own_name() -> None:
    for bit, name in states.JOB_FLAGS.items():
        assert states.job_state(1 << bit | 1) == (JobState.RUNNING, frozenset({name}))
    assert len(set(states.JOB_FLAGS.values())) == len(states.JOB_FLAGS)


@pytest.mark.parametrize(
    ("number", "state", "flags"),
    [
        (2, "IDLE", set()),
        (1, "DOWN", set()),
        (2 | 1 << 9, "IDLE", {"DRAIN"}),
        (3 | 1 << 9 | 1 << 10 | 1 << 26, "ALLOCATED", {"DRAIN", "COMPLETING", "DYNAMIC_NORM"}),
        (1 | 1 << 11, "DOWN", {"NOT_RESPONDING"}),
        (7, "UNKNOWN", set()),
        (2 | 1 << 29, "IDLE", {"UNKNOWN_FLAG"}),
    ],
)
def test_a_nodes_number_is_taken_apart(number: int, state: str, flags: set[str]) -> None:
    assert states.node_state(number) == (state, frozenset(flags))
