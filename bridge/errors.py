"""Faults. Expected refusals are values (see bridge.admission); these are what could not be carried out."""


class BridgeError(Exception):
    """Root of every fault that this package raises on purpose."""


class UnknownStateError(BridgeError):
    """A read failed, was empty where it was not before, or was partial: nothing may be concluded from it."""


class OutcomeUnknownError(BridgeError):
    """A write was sent and its answer was lost: settle it by looking, never by sending again on a guess."""


class RejectedError(BridgeError):
    """The other system understood and refused; its own sentence is the message. Not retried."""


class NotFoundError(BridgeError):
    """The other system answered positively that the object does not exist."""


class ConflictError(BridgeError):
    """The object changed since it was read, or exists already: look again."""


class StaleLeaderError(BridgeError):
    """A write carried an older epoch than the ledger's: another leader took over; stop acting."""


class BrokenInvariantError(BridgeError):
    """A rule that must always hold did not: the cycle stops loudly and nothing else is written."""


class InvalidInputError(BridgeError):
    """Bad input from a person: the sentence names the field, the value and the way out."""
