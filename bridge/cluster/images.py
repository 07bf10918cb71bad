"""Images that specs need not name: the ones that the bridge was deployed with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Images:
    """`slurm`: daemons, workers, mirrors. `login`: Slurm's clients and sbridge."""

    slurm: str
    login: str
