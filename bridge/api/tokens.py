"""Tokens of both worlds: Slurm's own JWTs (`scontrol token`) and Kubernetes tokens (checked by TokenReview).

Slurm signs with HS256 and the cluster's secret key, Kubernetes never does: the algorithm says whom to ask.
A Slurm token is never shown to the API server, and a Kubernetes token never tried against Slurm's key.
"""

from collections.abc import Callable, Mapping

import jwt

from bridge.api.identity import Identity, NotAuthenticatedError

SLURM_ALGORITHM = "HS256"
MAX_TOKEN_CHARS = 8192
CLOCK_SKEW_S = 5

Keys = Callable[[], Mapping[str, bytes]]
"""Slurm cluster -> its jwt key. Asked at each use, so that a new cluster or a rotated key counts at once."""

Lookup = Callable[[str], Identity | None]


class TokenAuthenticator:
    """Authenticator: `keys` verify Slurm tokens, `slurm_user` maps their user; `kubernetes` has the rest."""

    def __init__(self, *, keys: Keys, slurm_user: Lookup, kubernetes: Lookup) -> None:
        self._keys = keys
        self._slurm_user = slurm_user
        self._kubernetes = kubernetes

    def identify(self, token: str) -> Identity:
        """Return who the token belongs to, or raise with the sentence that says what is wrong with it."""
        if not token:
            raise NotAuthenticatedError(
                "no token: send `Authorization: Bearer TOKEN` or `X-Slurmbridge-Token: TOKEN` "
                "(from `scontrol token` or `kubectl create token`)"
            )
        if len(token) > MAX_TOKEN_CHARS:
            raise NotAuthenticatedError(f"the token has {len(token)} characters; at most {MAX_TOKEN_CHARS} are read")
        if _algorithm(token) == SLURM_ALGORITHM:
            return self._of_slurm(token)
        identity = self._kubernetes(token)
        if identity is None:
            raise NotAuthenticatedError(
                "Kubernetes does not accept this token; make a new one with `kubectl create token`"
            )
        return identity

    def _of_slurm(self, token: str) -> Identity:
        user = _slurm_user_of(token, self._keys())
        identity = self._slurm_user(user)
        if identity is None:
            raise NotAuthenticatedError(f"the token's Slurm user {user!r} is not known here; ask a platform admin")
        return identity


def _algorithm(token: str) -> str:
    """Read the unverified header; an opaque token has no algorithm and is Kubernetes' to judge."""
    try:
        return str(jwt.get_unverified_header(token).get("alg", ""))
    except jwt.InvalidTokenError:
        return ""


def _slurm_user_of(token: str, keys: Mapping[str, bytes]) -> str:
    """Verify against each cluster's key; the signature that fits decides, whatever comes of its claims."""
    for key in keys.values():
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[SLURM_ALGORITHM],
                options={"require": ["exp", "sun"]},
                leeway=CLOCK_SKEW_S,
            )
        except jwt.InvalidSignatureError:
            continue
        except jwt.ExpiredSignatureError as error:
            raise NotAuthenticatedError("the Slurm token has expired; make a new one with `scontrol token`") from error
        except jwt.MissingRequiredClaimError as error:
            raise NotAuthenticatedError(
                f"the Slurm token has no claim {error.claim!r}; make one with `scontrol token`"
            ) from error
        except jwt.InvalidTokenError as error:
            raise NotAuthenticatedError(
                f"the Slurm token is malformed ({error}); make one with `scontrol token`"
            ) from error
        user = claims["sun"]
        if not isinstance(user, str) or not user:
            raise NotAuthenticatedError("the Slurm token's claim 'sun' names no user; make one with `scontrol token`")
        return user
    raise NotAuthenticatedError(
        "the Slurm token is not signed with the key of any cluster here; make one with `scontrol token`"
    )
