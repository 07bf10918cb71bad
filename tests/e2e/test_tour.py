"""The tour checks its own claims; here it has to run to its end."""

import sys
from pathlib import Path

from tests.e2e import shell

TOUR = Path(__file__).resolve().parents[2] / "deploy" / "sandbox" / "tour.py"


def test_everything_the_tour_tells_is_so() -> None:
    done = shell.attempt([sys.executable, str(TOUR)], timeout_s=240)
    assert done.code == 0, done.said[-6000:]
    assert "everything in it was checked" in done.out
