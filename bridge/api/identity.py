"""Who asks: an identity, and the port that finds it from a token."""

from dataclasses import dataclass
from typing import Protocol

from bridge.errors import BridgeError


class NotAuthenticatedError(BridgeError):
    """The token is missing, malformed, expired or not signed by anybody we trust; the sentence says which."""


class NotAllowedError(BridgeError):
    """The caller is known and may not do this; the sentence says who may."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller. `slurm_user` owns Slurm workloads, `kubernetes_user` owns pods; either may be absent.

    The two are kept apart: a Kubernetes user "bob" is not the Slurm user "bob" unless a Team says so.
    """

    name: str
    slurm_user: str | None = None
    kubernetes_user: str | None = None
    groups: frozenset[str] = frozenset()
    admin: bool = False
    teams: frozenset[str] = frozenset()


class Authenticator(Protocol):
    """Turns a token into an identity."""

    def identify(self, token: str) -> Identity:
        """Return whose token it is; NotAuthenticatedError, or UnknownStateError when nobody could say."""
        ...
