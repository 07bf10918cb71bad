"""What the entry scripts in slurm-conf/bin expect of a pod: commands, places, variables. Keep in step with them."""

from typing import Any, Final

from bridge.cluster import names

Object = dict[str, Any]

_TINI: Final = ("/usr/bin/tini", "-g", "--")
_BIN: Final = "/opt/slurm-bridge/bin"

CONFIG_DIRECTORY: Final = "/conf"  # the ConfigMap; the scripts copy it to /etc/slurm
KEYS_DIRECTORY: Final = "/keys"  # the Secret; copied with mode 600
STATE_DIRECTORY: Final = "/var/spool/slurmctld"


def command(script: str) -> list[str]:
    """Return the command of a container that runs one of the entry scripts."""
    return [*_TINI, f"{_BIN}/{script}"]


def check(script: str) -> Object:
    """Return the exec action of a probe."""
    return {"exec": {"command": [f"{_BIN}/{script}"]}}


def slurmctld_endpoint(namespace: str) -> str:
    """Return where daemons fetch their configuration from (--conf-server)."""
    return f"{names.slurmctld_address(namespace)}:{names.SLURMCTLD_PORT}"


def variables(**values: str | int) -> list[Object]:
    """Return environment entries, sorted so that the same values render the same bytes."""
    return [{"name": name, "value": str(value)} for name, value in sorted(values.items())]


def keys_volume() -> Object:
    """Render the keys; the scripts make the copy that the daemons insist to own."""
    return {"name": "keys", "secret": {"secretName": names.KEYS, "defaultMode": 0o400}}


def keys_mount() -> Object:
    """Mount the keys."""
    return {"name": "keys", "mountPath": KEYS_DIRECTORY, "readOnly": True}


def config_volume() -> Object:
    """Render the configuration; a change shows up in the running pod."""
    return {"name": "conf", "configMap": {"name": names.CONFIG}}


def config_mount() -> Object:
    """Mount the configuration."""
    return {"name": "conf", "mountPath": CONFIG_DIRECTORY, "readOnly": True}
