"""Mutants run only when asked for with `-m mutants`: each of them is a whole pytest run of its own."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "mutants: break one rule on purpose and see its tests fail; run with -m mutants")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "mutants" in str(config.getoption("markexpr")):
        return
    left_out = [item for item in items if item.get_closest_marker("mutants")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("mutants")]
