"""Who may see and do what. Pure.

Members see their teams' workloads in full, owners their own, and everybody the rest as rows without names; admins
see everything. A workload is cancelled by its owner or by an admin.
"""

from collections.abc import Collection, Iterable

from bridge.api.identity import Identity, NotAllowedError
from bridge.api.views import EntryView, Explain, QueueRow
from bridge.workloads.model import System


def sees(identity: Identity, team: str | None) -> bool:
    """Return True when the caller may see names in `team`; what names no team is for admins."""
    return identity.admin or team in identity.teams


def owns(identity: Identity, row: QueueRow) -> bool:
    """Return True when the caller is the workload's user, by the names of the system that it was given to."""
    user = identity.slurm_user if row.system is System.SLURM else identity.kubernetes_user
    return bool(user) and user == row.user


def rows(identity: Identity, found: Iterable[QueueRow]) -> tuple[QueueRow, ...]:
    """Return every row, others' without names: the queue's order and sums stay true for everybody."""
    return tuple(row if _sees_row(identity, row) else _anonymous(row) for row in found)


def own(identity: Identity, found: Iterable[QueueRow]) -> tuple[QueueRow, ...]:
    """Return the rows that the caller sees in full: only these can be looked up, guessing leaks nothing."""
    return tuple(row for row in found if _sees_row(identity, row))


def explain(identity: Identity, shown: Explain) -> Explain:
    """Return an explanation that names only those workloads in the way that the caller may see; the sums stay."""
    numbers = dict(shown.numbers)
    if "behind_team" in numbers and not sees(identity, str(numbers["behind_team"])):
        numbers.pop("behind", None)
    return shown.model_copy(update={"held_by": own(identity, shown.held_by), "numbers": numbers})


def entry(identity: Identity, shown: EntryView, known: Collection[str] = ()) -> EntryView:
    """Return a journal entry, without workload and detail when these are another team's.

    Intents and notes name no team: `known` are the ids of workloads that the caller sees in full.
    """
    if shown.workload is None or shown.workload in known or sees(identity, shown.team):
        return shown
    return shown.model_copy(update={"workload": None, "attempt": None, "detail": {}, "hidden": True})


def check_cancel(identity: Identity, row: QueueRow) -> None:
    """Raise NotAllowedError unless the caller owns the workload or is an admin."""
    if identity.admin or owns(identity, row):
        return
    raise NotAllowedError(
        f"{row.where or row.id} belongs to {row.user or 'nobody known'} of team {row.team}, "
        f"you are {identity.name}: only its owner or a platform admin can cancel it"
    )


def _sees_row(identity: Identity, row: QueueRow) -> bool:
    """Count owners in: a job with an unknown account is in no team, and its owner must read why it was refused."""
    return sees(identity, row.team) or owns(identity, row)


def _anonymous(row: QueueRow) -> QueueRow:
    hidden = {"id": "", "name": "", "user": "", "text": "", "where": "", "refs": (), "hidden": True}
    return row.model_copy(update=hidden)
