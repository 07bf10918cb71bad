"""The keys that the daemons of one cluster know each other by: made once, never replaced."""

import base64
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.cluster import names
from bridge.errors import InvalidInputError

Object = dict[str, Any]

SLURM_KEY_BYTES: Final = 1024
JWT_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Keys:
    """`slurm` signs between daemons and clients (auth/slurm), `jwt` signs the tokens of `scontrol token`."""

    slurm: bytes
    jwt: bytes


def make(random: Callable[[int], bytes] = secrets.token_bytes) -> Keys:
    """Make new keys. Only for a cluster that has none and whose slurmctld was never started."""
    return Keys(slurm=random(SLURM_KEY_BYTES), jwt=random(JWT_KEY_BYTES))


def secret(namespace: str, cluster: str, keys: Keys) -> Object:
    """Render the Secret that daemons mount. Immutable: a changed key would cut running daemons off."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": names.KEYS, "namespace": namespace, "labels": names.labels("keys", cluster)},
        "type": "Opaque",
        "immutable": True,
        "data": {
            names.SLURM_KEY: base64.b64encode(keys.slurm).decode(),
            names.JWT_KEY: base64.b64encode(keys.jwt).decode(),
        },
    }


def read(secret: Mapping[str, Any]) -> Keys:
    """Read the keys back; a Secret without one of them raises, it is never completed by guessing."""
    data, where = secret.get("data") or {}, secret["metadata"]
    for name in (names.SLURM_KEY, names.JWT_KEY):
        if not data.get(name):
            raise InvalidInputError(
                f"Secret {where['namespace']}/{where['name']} has no {name}; restore it from the pods that mount it, "
                "or delete Secret and StatefulSet to start with new keys"
            )
    return Keys(base64.b64decode(data[names.SLURM_KEY]), base64.b64decode(data[names.JWT_KEY]))
