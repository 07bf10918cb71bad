"""The reference pages name every route, problem, metric prefix, command and exit code that exists."""

from pathlib import Path

import pytest
from typer.main import get_command

from bridge.api import app, problems
from bridge.cli import main
from bridge.cli.faults import Exit
from tests.unit import platform_sample as sample

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def api_page() -> str:
    return (REFERENCE / "api.md").read_text()


@pytest.fixture(scope="module")
def cli_page() -> str:
    return (REFERENCE / "cli.md").read_text()


def test_every_route_is_on_the_page(api_page: str) -> None:
    paths = app.create_app(sample.source(), sample.authenticator()).openapi()["paths"]
    assert len(paths) >= 9
    for path, methods in paths.items():
        for method in methods:
            assert f"`{method.upper()} {path}" in api_page


def test_every_problem_is_on_the_page_with_its_status(api_page: str) -> None:
    kinds = [value for value in vars(problems).values() if isinstance(value, problems.Kind)]
    assert len(kinds) >= 10
    for kind in kinds:
        assert f"| `{kind.name}` | {kind.status} |" in api_page


def test_every_command_and_exit_code_is_on_the_page(cli_page: str) -> None:
    names = [*get_command(main.app).commands, *(f"ledger {n}" for n in get_command(main.ledger).commands)]  # type: ignore[attr-defined]
    assert len(names) >= 10
    for name in names:
        assert f"`sbridge {name}" in cli_page
    for code in Exit:
        assert f"| {int(code)} |" in cli_page
