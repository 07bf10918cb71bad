"""The two forms of a simulation's answer."""

from enum import StrEnum


class Form(StrEnum):
    """What `--output` of `sbridge simulate` takes."""

    JSON = "json"
    HTML = "html"
