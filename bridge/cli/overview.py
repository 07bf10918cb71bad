"""`sbridge status`: health, nodes and teams in one look, also while a part of it is not known."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel

from bridge.cli import pages, terminal
from bridge.cli.client import Answer, Client
from bridge.cli.faults import CliError, Exit
from bridge.cli.output import Output

ViewT = TypeVar("ViewT", bound=BaseModel)


def show(client: Client, output: Output) -> None:
    """Print what is known. When nodes or quota are not, say why in their place and end with UNREACHABLE."""
    status = client.status()
    nodes, quota = _known(client.nodes), _known(client.quota)
    document: dict[str, Any] = {
        "status": status.document,
        "nodes": None if isinstance(nodes, str) else nodes.document["items"],
        "quota": None if isinstance(quota, str) else quota.document["items"],
    }
    terminal.show(
        output,
        document,
        lambda: pages.status(
            status.view,
            nodes if isinstance(nodes, str) else nodes.view.items,
            quota if isinstance(quota, str) else quota.view.items,
        ),
    )
    for part in (nodes, quota):
        if isinstance(part, str):
            raise CliError(Exit.UNREACHABLE, part)


def _known(read: Callable[[], Answer[ViewT]]) -> Answer[ViewT] | str:
    try:
        return read()
    except CliError as error:
        if error.code is not Exit.UNREACHABLE:
            raise
        return error.sentence
