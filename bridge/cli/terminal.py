"""Where output goes: tables to people, JSON to machines, sentences to stderr."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType

from bridge.cli.faults import CliError, Exit
from bridge.cli.output import Output

PIPED_WIDTH = 160
"""Columns when nobody looks: wide enough that `grep` finds a row on one line."""


def console() -> Console:
    """Make a console on stdout: colours on a terminal only (rich honours NO_COLOR), no markup, no highlighting."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)


def show(output: Output, document: Any, page: Callable[[], RenderableType]) -> None:
    """Print the document as JSON, or the page made of it."""
    if output is Output.JSON:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        console().print(page())


def complain(sentence: str) -> None:
    """Print one sentence on stderr."""
    sys.stderr.write(f"sbridge: {sentence}\n")


def watch(page: Callable[[], RenderableType], interval_s: float) -> None:
    """Redraw until interrupted. A bridge that is away for a while is shown as that, and watched on."""
    screen = console()
    try:
        while True:
            shown = _page_or_sentence(page)
            screen.clear()
            screen.print(shown)
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def _page_or_sentence(page: Callable[[], RenderableType]) -> RenderableType:
    from bridge.cli import tables

    try:
        return page()
    except CliError as error:
        if error.code is not Exit.UNREACHABLE:
            raise
        return tables.cell(error.sentence, "red")
