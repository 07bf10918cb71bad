"""A process that stands by, and leads one ledger when it is told to.

It is sent an epoch and leads. It sends `ready`, then `leads EPOCH`, then after each commit `told W W …` with the
workloads that it was granted, and at its end `stale` (exit 3). What it may grant it reads from the ledger first, as a
bridge does: at most CAPACITY devices at once.
"""

import os
import sys
import time
from multiprocessing.connection import Connection

from bridge.clock import SystemClock
from bridge.errors import BridgeError, OutcomeUnknownError, StaleLeaderError, UnknownStateError
from bridge.ledger import (
    journal,
    postgresql,  # noqa: F401  # imported before the fork
)
from bridge.ledger.journal import SqlLedger
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import GrantState, NodeName, System, Workload, WorkloadId

CAPACITY = 64
SIZE = 4
NODE = {NodeName("gpu-1"): SIZE}


def serve(url: str, holder: str, test: Connection, settings: dict[str, str]) -> None:
    """Stand by, lead, end."""
    os.environ.update(settings)
    ledger = journal.open_ledger(url, SystemClock())
    test.send("ready")
    epoch, number = int(test.recv()), 0
    try:
        while True:
            try:
                if number == 0:
                    ledger.open_epoch(epoch, holder)
                    test.send(f"leads {epoch}")
                number += 1
                told = cycle(ledger, f"{epoch}-{number}")
                test.send(f"told {' '.join(told)}")
            except (UnknownStateError, OutcomeUnknownError) as error:
                test.send(f"unknown {error}")
                time.sleep(0.05)
    except StaleLeaderError as error:
        test.send(f"stale {error}")
        sys.exit(3)
    except BridgeError as error:
        test.send(f"failed {error}")
        sys.exit(4)


def cycle(ledger: SqlLedger, key: str) -> list[str]:
    """Read, decide, write one batch; return what was granted."""
    held = ledger.grants()
    free = CAPACITY - sum(grant.gpus for grant in held)
    now_ms = SystemClock().now_ms()
    told: list[str] = []
    with ledger.batch():
        for grant in held:
            if grant.state is GrantState.RESERVED:
                ledger.run(grant.workload, grant.attempt, gpus=grant.gpus, placement=grant.placement, at_ms=now_ms)
            elif now_ms % 3 == 0:
                ledger.release(grant.workload, grant.attempt, at_ms=max(now_ms, grant.running_ms or 0))
        for index in range(min(free // SIZE, 5)):
            wanted = Workload(
                id=WorkloadId(f"slurm/main/{key}-{index}"),
                system=System.SLURM,
                team=TeamName("vision"),
                flavor=FlavorName("h100"),
                nodes=1,
                gpus_per_node=SIZE,
                submitted_ms=now_ms,
            )
            told.append(ledger.reserve(wanted, NODE, at_ms=now_ms).workload)
    return told
