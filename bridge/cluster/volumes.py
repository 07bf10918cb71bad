"""Volumes that the pods of a cluster share."""

from typing import Any

from bridge.cluster import names
from bridge.crd.slurmcluster import Home

Object = dict[str, Any]


def home_volume(home: Home) -> Object:
    """Render the shared home directories; they mount in every namespace, so no claim is involved."""
    if home.nfs is not None:
        return {"name": "home", "nfs": {"server": home.nfs.server, "path": home.nfs.path}}
    assert home.host_path is not None  # noqa: S101 -- the model guarantees exactly one
    return {"name": "home", "hostPath": {"path": home.host_path.path, "type": "Directory"}}


def home_mount() -> Object:
    """Mount them where passwd says homes are."""
    return {"name": "home", "mountPath": "/home"}


def users_volume() -> Object:
    """Render passwd and group of the teams' members; a changed file shows up in running pods."""
    return {"name": "users", "configMap": {"name": names.USERS}}


def users_mount() -> Object:
    """Mount them where libnss-extrausers looks."""
    return {"name": "users", "mountPath": "/var/lib/extrausers", "readOnly": True}


def scratch(name: str, *, memory: bool = False) -> Object:
    """Render an empty directory that lives as long as the pod."""
    return {"name": name, "emptyDir": {"medium": "Memory"} if memory else {}}
