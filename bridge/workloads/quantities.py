"""Kubernetes quantities and Slurm times to integers. Sources: Kubernetes' quantity grammar, Slurm's sbatch --time."""

import re
from decimal import Decimal
from typing import Final

from bridge.errors import InvalidInputError

_SUFFIXES: Final = {
    "": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "E": Decimal(10**18), "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_QUANTITY: Final = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")
_DAYS: Final = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?")
_CLOCK: Final = re.compile(r"(\d+)(?::(\d+))?(?::(\d+))?")


def amount(text: str | int) -> Decimal:
    """Parse a quantity such as "1500m" or "2Gi" exactly."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None or match.group(2) not in _SUFFIXES:
        raise InvalidInputError(f"quantity {text!r} is not one of Kubernetes' forms; write e.g. 500m, 2 or 4Gi")
    return Decimal(match.group(1)) * _SUFFIXES[match.group(2)]


def milli(text: str | int) -> int:
    """Parse a CPU quantity into thousandths, rounded up."""
    thousandths = amount(text) * 1000
    return int(thousandths.to_integral_value(rounding="ROUND_CEILING"))


def slurm_time_s(text: str) -> int:
    """Parse sbatch's --time forms (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S) into seconds."""
    days = _DAYS.fullmatch(text)
    if days:
        day, hour, minute, second = (int(part or 0) for part in days.groups())
        return ((day * 24 + hour) * 60 + minute) * 60 + second
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        raise InvalidInputError(f"time limit {text!r} is not one of Slurm's forms; write minutes, H:M:S or D-H:M:S")
    parts = [int(part) for part in clock.groups() if part is not None]
    if len(parts) == 1:
        return parts[0] * 60
    if len(parts) == 2:  # noqa: PLR2004 -- M:S
        return parts[0] * 60 + parts[1]
    return (parts[0] * 60 + parts[1]) * 60 + parts[2]
