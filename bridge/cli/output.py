"""The two forms of every answer."""

from enum import StrEnum


class Output(StrEnum):
    """What `--output` takes."""

    TABLE = "table"
    JSON = "json"
