"""The forms of an answer."""

from enum import StrEnum


class Output(StrEnum):
    """What `--output` takes."""

    TABLE = "table"
    JSON = "json"


class Report(StrEnum):
    """What `--output` takes where an answer is rows of amounts, for a spreadsheet or a bill too."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
