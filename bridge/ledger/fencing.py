"""Who may write. Pure: the leader's term against the newest term that the database records.

Both checks run inside the write transaction, so nothing can be written between the check and the write.
"""

from bridge.errors import BrokenInvariantError, StaleLeaderError
from bridge.ledger.model import Epoch


def check_term(verb: str, leader: Epoch, newest: Epoch | None) -> None:
    """Raise unless the leader's term is the newest one."""
    if newest is None or newest.epoch < leader.epoch:
        raise BrokenInvariantError(
            f"{verb}: this leader opened epoch {leader.epoch}, the ledger's newest is "
            f"{newest.epoch if newest else 'none'}: the database was replaced under it"
        )
    if (newest.epoch, newest.holder) != (leader.epoch, leader.holder):
        raise StaleLeaderError(
            f"{verb}: epoch {leader.epoch} of {leader.holder} is over, {newest.holder} leads in epoch {newest.epoch}"
        )


def check_take_over(verb: str, leader: Epoch, newest: Epoch | None) -> None:
    """Raise unless the term is newer than every other, or is the one that this holder has already."""
    if newest is None or newest.epoch < leader.epoch:
        return
    if (newest.epoch, newest.holder) != (leader.epoch, leader.holder):
        raise StaleLeaderError(
            f"{verb}: epoch {leader.epoch} of {leader.holder} is not above epoch {newest.epoch} of {newest.holder}"
        )
