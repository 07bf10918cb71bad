"""Finds the bridge and a token for it from the environment: the login pod, a URL, or a kubeconfig."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bridge.cli.faults import CliError, Exit
from bridge.cli.transport import Direct, Transport

TOKEN_LIFESPAN_S = 300
SCONTROL_TIMEOUT_S = 10
IN_CLUSTER_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
TOKEN_VARIABLES = ("SBRIDGE_TOKEN", "SLURM_JWT")


def connect(environment: Mapping[str, str]) -> Transport:
    """Choose the way: SBRIDGE_URL when set, else the API server that a kubeconfig names."""
    if url := environment.get("SBRIDGE_URL"):
        return Direct(url, token_for_url(environment))
    if not _has_kubernetes(environment):
        raise CliError(
            Exit.UNREACHABLE,
            "it is not known where the bridge is: set SBRIDGE_URL, or KUBECONFIG for a cluster that runs it",
        )
    from bridge.cli import kubeproxy

    return kubeproxy.connect(environment.get("SBRIDGE_TOKEN", ""))


def token_for_url(environment: Mapping[str, str]) -> str:
    """Take the token of the environment, else have Slurm sign one for whoever runs this."""
    for variable in TOKEN_VARIABLES:
        if token := environment.get(variable):
            return token.strip()
    scontrol = shutil.which("scontrol", path=environment.get("PATH"))
    if scontrol is None:
        raise CliError(
            Exit.NOT_ALLOWED,
            "no token: set SBRIDGE_TOKEN (or SLURM_JWT), or run this where Slurm's scontrol is installed",
        )
    return _of_scontrol(scontrol, environment)


def _of_scontrol(scontrol: str, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            [scontrol, "token", f"lifespan={TOKEN_LIFESPAN_S}"],
            capture_output=True,
            text=True,
            timeout=SCONTROL_TIMEOUT_S,
            check=False,
            env=dict(environment),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CliError(Exit.UNREACHABLE, f"`scontrol token` did not answer ({error}); is slurmctld up?") from error
    for line in done.stdout.splitlines():
        name, _, token = line.strip().partition("=")
        if name == "SLURM_JWT" and token:
            return token
    said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
    raise CliError(
        Exit.NOT_ALLOWED,
        f"`scontrol token` gave no token: {said}; set SBRIDGE_TOKEN, or try again when slurmctld is up",
    )


def _has_kubernetes(environment: Mapping[str, str]) -> bool:
    home = environment.get("HOME", "")
    configured = bool(environment.get("KUBECONFIG")) or (bool(home) and (Path(home) / ".kube" / "config").exists())
    return configured or IN_CLUSTER_TOKEN.exists()
