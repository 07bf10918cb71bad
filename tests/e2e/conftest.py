"""Every test of this tier begins and ends with a quiet platform; a missing one fails, it never skips."""

from collections.abc import Iterator

import pytest

from tests.e2e import quiet, sbridge, shell
from tests.e2e.waiting import until


@pytest.fixture(scope="session", autouse=True)
def platform() -> None:
    """Find the sandbox working."""
    missing = shell.missing()
    if missing:
        pytest.fail(missing, pytrace=False)
    until("sbridge answers", lambda: sbridge.attempt("status").code == 0, 60)
    quiet.restore()


@pytest.fixture(autouse=True)
def _quiet(platform: None) -> Iterator[None]:  # noqa: ARG001 - ordered after it
    """Leave nothing to the next test, and an intact ledger."""
    yield
    quiet.restore()
    sbridge.verified()
