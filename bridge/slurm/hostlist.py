"""Slurm's two notations for many: node names ("w[1-3,07],x") and array tasks ("0-9:2,12"). Pure."""

import re
from collections.abc import Iterator
from typing import Final

_MOST: Final = 1_000_000  # a range beyond this is no cluster and no array of ours
_BRACKETS: Final = re.compile(r"\[([^\[\]]*)\]")
_TASKS: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def expand(text: str | None) -> tuple[str, ...]:
    """Return the node names of a host list, in its order."""
    if not text or text == "(null)":
        return ()
    return tuple(name for item in _items(text) for name in _expand_item(item))


def tasks(text: str | None) -> tuple[int, ...]:
    """Return the indices of a task list; its "%limit" is not one. A shortened list is refused, never guessed."""
    if not text:
        return ()
    found: list[int] = []
    for item in text.partition("%")[0].strip("[]").split(","):
        match = _TASKS.fullmatch(item.strip())
        if match is None:
            raise ValueError(f"array task list {text!r} cannot be read at {item!r}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        found.extend(_bounded(first, last, step))
    return tuple(found)


def _items(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _expand_item(item: str) -> Iterator[str]:
    match = _BRACKETS.search(item)
    if match is None:
        yield item
        return
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        for number in _bounded(int(first), int(last or first), 1):
            padded = f"{number:0{len(first)}d}"
            yield from _expand_item(item[: match.start()] + padded + item[match.end() :])


def _bounded(first: int, last: int, step: int) -> range:
    numbers = range(first, last + 1, step)
    if len(numbers) > _MOST:
        raise ValueError(f"the range {first}-{last} has more than {_MOST} members")
    return numbers
