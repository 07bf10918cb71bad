"""The fake GPUs' inventory: what the state file may say, and which devices a container gets."""

import pytest

from deploy.images.fake_gpu import inventory


def test_a_file_says_how_many_devices_there_are_and_which_are_broken() -> None:
    state = inventory.parse('{"count": 3, "unhealthy": [1]}')
    assert state.devices() == [("gpu-0", True), ("gpu-1", False), ("gpu-2", True)]


def test_without_a_file_there_are_no_devices() -> None:
    assert inventory.State().devices() == []


def test_a_broken_device_that_was_taken_out_is_not_listed() -> None:
    assert inventory.parse('{"count": 1, "unhealthy": [5]}').devices() == [("gpu-0", True)]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not JSON"),
        ('{"count": 8', "not JSON"),
        ("8", "'8'"),
        ('{"cuont": 8}', "cuont"),
        ('{"count": -1}', "count: -1"),
        ('{"count": true}', "count: True"),
        ('{"count": 65}', "count: 65"),
        ('{"count": 8, "unhealthy": 2}', "unhealthy: 2"),
        ('{"count": 8, "unhealthy": ["2"]}', "unhealthy: ['2']"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_naming_what_is_wrong(text: str, named: str) -> None:
    with pytest.raises(inventory.StateError, match=r"state file|count|unhealthy") as refused:
        inventory.parse(text)
    assert named in str(refused.value)


def test_a_container_gets_the_lowest_free_devices_by_number_not_by_spelling() -> None:
    available = [f"gpu-{number}" for number in (11, 2, 10, 7)]
    assert inventory.prefer(available, [], 3) == ["gpu-2", "gpu-7", "gpu-10"]


def test_devices_that_a_container_must_have_come_first_and_are_not_given_twice() -> None:
    assert inventory.prefer(["gpu-0", "gpu-1", "gpu-5"], ["gpu-5"], 2) == ["gpu-5", "gpu-0"]


def test_device_numbers_come_in_order() -> None:
    assert inventory.indexes(["gpu-12", "gpu-3"]) == [3, 12]
