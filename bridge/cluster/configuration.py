"""slurm.conf and its neighbours, rendered from the templates in slurm-conf/. The same input gives the same bytes.

The templates lie beside this package in an installed bridge and at the top of the repository in a checkout.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, Final

from bridge.cluster import membership, names
from bridge.cluster.membership import Ceilings
from bridge.crd.flavor import Flavor
from bridge.crd.slurmcluster import SlurmCluster
from bridge.crd.team import Team

Object = dict[str, Any]

TEMPLATES: Final = ("slurm.conf", "gres.conf", "cgroup.conf")  # with ${variables}
VERBATIM: Final = ("job_submit.lua", "topology.yaml")  # lua has its own use for the dollar sign
MEMBERS_FILE: Final = "bridge-members.lua"

_INSTALLED: Final = Path(__file__).parent / "slurm_conf"
_CHECKOUT: Final = Path(__file__).resolve().parents[2] / "slurm-conf"


def directory() -> Path:
    """Return the folder that holds the templates."""
    return _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT


def files(
    cluster: SlurmCluster, *, teams: tuple[Team, ...], flavors: tuple[Flavor, ...], ceilings: Ceilings
) -> dict[str, str]:
    """Render every file of /etc/slurm, by name."""
    variables = _variables(cluster)
    folder = directory()
    rendered = {name: Template((folder / name).read_text()).substitute(variables) for name in TEMPLATES}
    rendered["slurm.conf"] = overridden(rendered["slurm.conf"], cluster.spec.slurm_conf)
    rendered |= {name: (folder / name).read_text() for name in VERBATIM}
    rendered[MEMBERS_FILE] = membership.lua(teams, flavors, ceilings)
    return rendered


def client_slurm_conf(cluster: SlurmCluster) -> str:
    """Render slurm.conf for libslurm in the bridge itself; it is the cluster's own."""
    text = Template((directory() / "slurm.conf").read_text()).substitute(_variables(cluster))
    return overridden(text, cluster.spec.slurm_conf)


def _variables(cluster: SlurmCluster) -> dict[str, str]:
    namespace = cluster.metadata.namespace
    return {
        "cluster_name": cluster.metadata.name,
        "slurmctld_host": names.SLURMCTLD_POD,
        "slurmctld_address": names.slurmctld_address(namespace),
    }


def overridden(text: str, overrides: Mapping[str, str]) -> str:
    """Replace or append parameters of slurm.conf; the templates' own line goes, Slurm takes each once."""
    if not overrides:
        return text
    wanted = {name.lower() for name in overrides}
    kept = [line for line in text.splitlines() if _parameter(line) not in wanted]
    added = [f"{name}={overrides[name]}" for name in sorted(overrides)]
    return "\n".join([*kept, "", "# From SlurmCluster.spec.slurmConf", *added]) + "\n"


def _parameter(line: str) -> str:
    match = re.match(r"\s*([A-Za-z][A-Za-z0-9]*)\s*=", line)
    return match.group(1).lower() if match else ""


def config_map(cluster: SlurmCluster, data: Mapping[str, str]) -> Object:
    """Render the ConfigMap that slurmctld mounts."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.CONFIG,
            "namespace": cluster.metadata.namespace,
            "labels": names.labels("config", cluster.metadata.name),
        },
        "data": dict(sorted(data.items())),
    }


def digest(data: Any) -> str:
    """Return a short hash that changes exactly when the content does."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
