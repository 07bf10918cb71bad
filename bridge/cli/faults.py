"""How a command ends badly: one sentence with the way out, and a documented exit code."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of sbridge."""

    OK = 0
    REFUSED = 1  # the bridge refused, or a problem was found
    USAGE = 2
    NOT_ALLOWED = 3  # not authenticated, or not allowed
    NOT_FOUND = 4  # no workload matches, or several do
    UNREACHABLE = 5  # the bridge could not be asked, or cannot know now


class CliError(Exception):
    """Ends the command with `sentence` on stderr and `code`."""

    def __init__(self, code: Exit, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
