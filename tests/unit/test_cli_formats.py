"""How spans, times and amounts read."""

from datetime import UTC

import pytest

from bridge.cli import formats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0s"), (0.44, "0.4s"), (9.99, "10.0s"), (42.9, "42s"), (60, "1m00s"), (250, "4m10s"), (3599, "59m59s"),
        (3600, "1h00m"), (86_399, "23h59m"), (86_400, "1d00h"), (12_345_678, "142d21h"),
    ],
)  # fmt: skip
def test_a_span_has_two_units_at_most(seconds: float, text: str) -> None:
    assert formats.span(seconds) == text


def test_a_moment_has_its_date_only_when_that_is_not_today() -> None:
    now_ms = 1_796_128_800_000
    assert formats.moment(now_ms - 1, now_ms=now_ms, zone=UTC) == "12:39:59.999"
    assert formats.moment(now_ms - 86_400_000, now_ms=now_ms, zone=UTC) == "2026-11-30 12:40:00.000"


@pytest.mark.parametrize(
    ("gpus", "nodes", "text"), [(4, 1, "4 h100"), (16, 2, "2x8 h100"), (5, 2, "5 h100"), (0, 1, "0 h100")]
)
def test_a_request_reads_as_a_gang_when_it_is_one(gpus: int, nodes: int, text: str) -> None:
    assert formats.request(gpus, nodes, "h100") == text


def test_a_request_of_no_known_flavor_is_a_number_or_a_dash() -> None:
    assert (formats.request(3, 1, ""), formats.request(0, 1, "")) == ("3", "-")


def test_a_controllers_account_is_shortened_and_a_persons_name_is_not() -> None:
    assert formats.person("system:serviceaccount:kube-system:replicaset-controller") == "replicaset"
    assert formats.person("alice@example.org") == "alice@example.org"


def test_control_characters_are_shown_as_such() -> None:
    assert (
        formats.printable("a\x1b[31mb\r\n\u202e") == "a\N{REPLACEMENT CHARACTER}[31mb" + "\N{REPLACEMENT CHARACTER}" * 3
    )


def test_gpu_hours_have_three_decimals() -> None:
    assert formats.gpu_hours(4_500_000_000) == "1,250.000"
