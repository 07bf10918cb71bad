"""Reads one field of one row, or says in a sentence what is wrong with it: file:line, field, value, way out. Pure."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bridge.errors import InvalidInputError

LARGEST_GPUS: Final = 1_000_000
LONGEST_S: Final = 100 * 366 * 86_400  # no trace runs for a century


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table by its column names. `where` is file:line."""

    where: str
    line: int
    values: Mapping[str, str]

    def check(self) -> None:
        """Raise when the line has more fields than there are columns."""
        if "" in self.values:
            raise InvalidInputError(f"{self.where}: the line has {self.values['']}; quote what contains the separator")

    def text(self, field: str) -> str:
        """Return a field as it stands; "" when it is empty or there is no such column."""
        return (self.values.get(field) or "").strip()

    def first(self, *fields: str) -> str:
        """Return the first of these fields that is not empty."""
        return next((found for found in map(self.text, fields) if found), "")

    def wrong(self, field: str, why: str) -> InvalidInputError:
        """Return the fault of a field."""
        return InvalidInputError(f"{self.where}: {field}={self.text(field)!r} {why}")

    def whole(self, field: str) -> int:
        """Return a whole number of 0 or more."""
        try:
            number = float(self.text(field))
        except ValueError:
            raise self.wrong(field, "is no number; give a whole number of 0 or more") from None
        if not 0 <= number <= LARGEST_GPUS or number != int(number):
            raise self.wrong(field, f"is no whole number from 0 to {LARGEST_GPUS}; correct it")
        return int(number)

    def seconds_ms(self, field: str) -> int:
        """Return a number of seconds of 0 or more, in milliseconds."""
        try:
            number = float(self.text(field))
        except ValueError:
            raise self.wrong(field, "is no number of seconds; give one of 0 or more") from None
        if not 0 <= number <= LONGEST_S:
            raise self.wrong(field, f"is no number of seconds from 0 to {LONGEST_S}; correct it")
        return round(number * 1000)

    def moment_ms(self, field: str) -> int:
        """Return a time in milliseconds since 1970: seconds, or a date and time (taken as UTC when no zone is named).

        Wall-clock times without a zone are taken as they stand: intervals across a change to or from summer time
        are an hour off.
        """
        text = self.text(field)
        if text.replace(".", "", 1).isdigit():
            return round(float(text) * 1000)
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise self.wrong(field, "is no time; give seconds, or a date and time like 2017-10-09 07:01:55") from None
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def table(path: Path, *, required: Sequence[str], delimiter: str = ",") -> Iterator[Row]:
    """Yield the rows of a table with a header. InvalidInputError when it cannot be read or lacks a column."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines, delimiter=delimiter, restval="")
            columns = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in required if name not in columns]
            if missing:
                raise InvalidInputError(
                    f"{path}:1: no column {', '.join(missing)}; its first line must name the columns, "
                    f"it names: {', '.join(columns) or 'none'}"
                )
            reader.fieldnames = columns
            for values in reader:
                extra = values.pop(None, None)  # the key of what is beyond the header
                where = f"{path}:{reader.line_num}"
                row = Row(where, reader.line_num, values)
                if extra:
                    row = Row(where, reader.line_num, {"": f"{len(columns)} columns and {len(extra)} more"})
                yield row
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}; give a file that exists") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"{path}: is no text table ({error}); give a UTF-8 file") from error
