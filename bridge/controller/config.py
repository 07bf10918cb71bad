"""Settings of the controller process, from SBRIDGE_* in its environment. A bad value ends the start with a sentence."""

import os
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bridge import wellknown
from bridge.errors import InvalidInputError
from bridge.ledger import decay

PREFIX = "SBRIDGE_"


class Config(BaseModel):
    """What the process is told; every field is one environment variable, upper case behind SBRIDGE_."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ledger_url: str = "sqlite:////var/lib/slurm-bridge/ledger.db"
    namespace: str = wellknown.NAMESPACE
    run_dir: str = "/run/slurm-bridge"  # where the clusters' slurm.conf and slurm.key are written for libslurm
    users_dir: str = "/var/lib/extrausers"  # passwd and group of the teams' members, for libnss-extrausers here
    api_host: str = "0.0.0.0"  # noqa: S104 -- the Service in front of it is the boundary
    api_port: Annotated[int, Field(ge=1, le=65535)] = 8080
    slurm_image: str = ""  # default image of slurmctld, workers and mirrors
    login_image: str = ""  # default image of login pods (Slurm clients and sbridge)
    identity: str = ""  # name in the Lease; the pod's name
    poll_ms: Annotated[int, Field(ge=20, le=1000)] = 150  # slurmctld is asked at least this often
    busy_poll_ms: Annotated[int, Field(ge=20, le=1000)] = 60  # and this often while granted work is on its way
    lease_s: Annotated[int, Field(ge=3, le=120)] = 15
    fairshare_half_life: str = decay.DEFAULT_HALF_LIFE  # use so long ago counts half
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    fault: str = ""  # crash tests only: "log", "SITE:N" or "file:PATH" (see __main__)


def load(environment: Mapping[str, str] | None = None) -> Config:
    """Read SBRIDGE_* variables; an unknown or malformed one raises InvalidInputError naming it."""
    source = os.environ if environment is None else environment
    known = {f"{PREFIX}{name.upper()}": name for name in Config.model_fields}
    values = {}
    for variable, value in source.items():
        if variable.startswith(PREFIX) and variable in known:
            values[known[variable]] = value
    try:
        config = Config.model_validate(values)
        decay.half_life(config.fairshare_half_life)
    except ValidationError as error:
        first = error.errors()[0]
        variable = PREFIX + str(first["loc"][0]).upper()
        told = f"{variable}={first['input']!r}: {first['msg']}; correct it in the Deployment"
        raise InvalidInputError(told) from error
    return config
