"""Usage told apart by what the caller asks for: team, user, system, flavor, day or month. Pure; integers only."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise

from bridge.api import visibility
from bridge.api.identity import Identity
from bridge.api.views import UsageRow, UsageView
from bridge.errors import InvalidInputError
from bridge.ledger import history
from bridge.ledger.port import Usage
from bridge.workloads.model import System


class By(StrEnum):
    """What sums can be told apart by. Days and months are UTC."""

    DAY = "day"
    MONTH = "month"
    TEAM = "team"
    USER = "user"
    SYSTEM = "system"
    FLAVOR = "flavor"


def parse(text: str) -> tuple[By, ...]:
    """Read "team,user"; the order is the columns' own, whatever was written."""
    named = [part.strip() for part in text.split(",") if part.strip()]
    known = [str(each) for each in By]
    for name in named:
        if name not in known:
            raise InvalidInputError(f"by={text!r}: {name!r} is not among {', '.join(known)}")
    if By.DAY in named and By.MONTH in named:
        raise InvalidInputError(f"by={text!r}: ask for day or month, not for both")
    if not named:
        raise InvalidInputError(f"by={text!r} names nothing: write one or more of {', '.join(known)}, with commas")
    return tuple(each for each in By if each in named)


def cuts(by: Sequence[By], from_ms: int, to_ms: int) -> list[int]:
    """Return the moments at which the window is cut."""
    if By.DAY in by:
        return history.days(from_ms, to_ms)
    return history.months(from_ms, to_ms) if By.MONTH in by else []


def view(identity: Identity, rows: Iterable[Usage], by: Sequence[By], from_ms: int, to_ms: int) -> UsageView:
    """Sum what the caller may see: his teams' use, an admin everybody's."""
    begins = [from_ms, *cuts(by, from_ms, to_ms)]
    ends = dict(pairwise([*begins, to_ms]))
    timed = By.DAY in by or By.MONTH in by
    sums: dict[tuple[int | None, str, str, System | None, str], int] = {}
    for row in rows:
        if not visibility.sees(identity, row.team):
            continue
        key = (
            row.from_ms if timed else None,
            str(row.team) if By.TEAM in by else "",
            row.user if By.USER in by else "",
            row.system if By.SYSTEM in by else None,
            str(row.flavor) if By.FLAVOR in by else "",
        )
        sums[key] = sums.get(key, 0) + row.gpu_ms
    items = tuple(
        UsageRow(
            team=team,
            user=user,
            system=system,
            flavor=flavor,
            from_ms=begin_ms,
            to_ms=None if begin_ms is None else ends[begin_ms],
            gpu_ms=gpu_ms,
        )
        for (begin_ms, team, user, system, flavor), gpu_ms in sorted(
            sums.items(), key=lambda item: tuple("" if part is None else part for part in item[0])
        )
    )
    return UsageView(from_ms=from_ms, to_ms=to_ms, by=tuple(map(str, by)), items=items)
