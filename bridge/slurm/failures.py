"""Slurm's error numbers (slurm_errno.h) to our faults: refused, not there, not asked, or answer lost."""

from collections.abc import Callable
from typing import Final, TypeVar

from bridge.errors import NotFoundError, OutcomeUnknownError, RejectedError, UnknownStateError

T = TypeVar("T")

# slurmctld understood and answered with one of its own errors (ESLURM_*).
_ANSWERED: Final = range(2000, 5000)
# Of these, the ones that say nothing about what was asked: it is not the primary, or busy with its own configuration.
_TRANSITION_STATE, _IN_STANDBY_MODE, _DISABLED = 2020, 2027, 2037
_NOT_NOW: Final = frozenset({_TRANSITION_STATE, _IN_STANDBY_MODE, _DISABLED})
_INVALID_JOB_ID, _INVALID_NODE_NAME = 2017, 2018
_NOT_FOUND: Final = frozenset({_INVALID_JOB_ID, _INVALID_NODE_NAME})
# The request never left: nobody listened.
_ECONNREFUSED, _EHOSTUNREACH, _CONNECTION_ERROR, _CONTROLLER_CONNECTION_ERROR = 111, 113, 1001, 1800
_NOT_SENT: Final = frozenset({_ECONNREFUSED, _EHOSTUNREACH, _CONNECTION_ERROR, _CONTROLLER_CONNECTION_ERROR})
_ALREADY_DONE: Final = frozenset({2021, 2084, 4002})  # of slurmctld (done, finished), of slurmd


def reading(call: Callable[[], T]) -> T:
    """Run a read: what fails without slurmctld's own answer is unknown."""
    try:
        return call()
    except Exception as problem:
        code = error_number(problem)
        if code in _NOT_FOUND:
            raise NotFoundError(sentence(problem)) from problem
        raise UnknownStateError(f"slurmctld could not be asked: {sentence(problem)}") from problem


def writing(call: Callable[[], T]) -> T:
    """Run a write."""
    try:
        return call()
    except Exception as problem:
        raise fault_of_write(error_number(problem), sentence(problem)) from problem


def ending(call: Callable[[], None]) -> None:
    """Run a write that ends something; that it has ended already is fine."""
    try:
        call()
    except Exception as problem:
        code = error_number(problem)
        if code not in _ALREADY_DONE:
            raise fault_of_write(code, sentence(problem)) from problem


def fault_of_write(code: int | None, told: str) -> Exception:
    """Return the fault of a write that ended with this error number."""
    if code in _NOT_FOUND:
        return NotFoundError(told)
    if code in _NOT_SENT or code in _NOT_NOW:
        return UnknownStateError(f"slurmctld could not be asked: {told}")
    if code is not None and code in _ANSWERED:
        return RejectedError(told)
    return OutcomeUnknownError(f"slurmctld's answer was lost: {told}")


def error_number(problem: Exception) -> int | None:
    """Return libslurm's error number, None for an exception that is not libslurm's."""
    number = getattr(problem, "errno", None)
    return number if isinstance(number, int) else None


def sentence(problem: Exception) -> str:
    """Return libslurm's words with the number."""
    number = error_number(problem)
    return f"{problem} (error {number})" if number is not None else f"{type(problem).__name__}: {problem}"
