"""Settings from the environment: a bad one ends the start with one sentence that names it."""

import pytest

from bridge.controller.config import load
from bridge.errors import InvalidInputError


def test_without_settings_the_defaults_hold() -> None:
    assert load({}).fairshare_half_life == "7d"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SBRIDGE_API_PORT", "0", "SBRIDGE_API_PORT='0'"),
        ("SBRIDGE_FAIRSHARE_HALF_LIFE", "0d", "half-life of the fair share is '0d'"),
        ("SBRIDGE_FAIRSHARE_HALF_LIFE", "a week", "from 1m to 365d"),
        ("SBRIDGE_FAIRSHARE_HALF_LIFE", "366d", "'366d'"),
    ],
)
def test_a_bad_value_is_refused_when_it_is_read(variable: str, value: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        load({variable: value})


def test_what_is_not_ours_is_left_alone() -> None:
    assert load({"PATH": "/bin", "SBRIDGE_FAIRSHARE_HALF_LIFE": "36h"}).fairshare_half_life == "36h"
