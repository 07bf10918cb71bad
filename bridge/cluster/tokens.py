"""Slurm's JSON Web Tokens, made with a cluster's own key: how the bridge itself speaks to slurmctld.

auth/slurm signs for its clients through a socket of sackd, slurmctld or slurmd; the bridge's pod has none of them.
auth/jwt needs no daemon: libslurm uses it when SLURM_JWT is in the environment at its first call, and reads the
token again at each call. Tried with Slurm 26.05.5: without either, every call ends in "Protocol authentication error".
"""

import base64
import hashlib
import hmac
import json
from typing import Any, Final

VARIABLE: Final = "SLURM_JWT"


def make(key: bytes, *, user: str, issued_s: int, lifetime_s: int) -> str:
    """Return a token that slurmctld takes for `user` (claim `sun`), signed with HS256 as Slurm wants it."""
    head = _part({"alg": "HS256", "typ": "JWT"})
    body = _part({"exp": issued_s + lifetime_s, "iat": issued_s, "sun": user})
    signature = hmac.new(key, f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{_text(signature)}"


def _part(claims: dict[str, Any]) -> str:
    return _text(json.dumps(claims, separators=(",", ":")).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
