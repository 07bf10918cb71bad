"""Carry out a plan: ledger first, in one transaction, then Slurm, then Kubernetes. No choice is left here.

An act that fails is logged with its reason and tried again by the next plan, if that still wants it. Only a
stale epoch and a broken invariant stop the cycle.
"""

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from bridge.clock import Clock
from bridge.controller import acts, kube_acts, slurm_acts
from bridge.errors import BridgeError, BrokenInvariantError, StaleLeaderError
from bridge.ledger.port import Ledger

_LOG = structlog.get_logger()


class Actor:
    """The hands of the controller."""

    def __init__(self, ledger: Ledger, slurm: slurm_acts.SlurmHands, kube: kube_acts.KubeHands, clock: Clock) -> None:
        self._ledger = ledger
        self._slurm = slurm
        self._kube = kube
        self._clock = clock
        self._failures: dict[str, str] = {}

    @property
    def failures(self) -> dict[str, str]:
        """Acts that failed when last tried: what and why."""
        return dict(self._failures)

    def write(self, writes: Sequence[acts.LedgerWrite]) -> None:
        """Record everything in one transaction; a fault here leaves nothing recorded and nothing sent."""
        if not writes:
            return
        with self._ledger.batch():
            for write in writes:
                self._record(write)

    def carry_out(self, wanted: Sequence[Any]) -> bool:
        """Do each act; return whether Slurm was touched (its next reading must be newer)."""
        touched = False
        failures: dict[str, str] = {}
        for act in wanted:
            hands: Callable[[Any], bool] = self._slurm.do if isinstance(act, slurm_acts.KINDS) else self._kube.do
            try:
                touched = hands(act) or touched
            except (StaleLeaderError, BrokenInvariantError):
                raise
            except BridgeError as error:
                touched = True
                name = type(act).__name__
                failures[f"{name}"] = str(error)
                if self._failures.get(name) != str(error):
                    _LOG.warning("act.failed", act=name, error=str(error), kind=type(error).__name__)
        self._failures = failures
        return touched

    def _record(self, write: acts.LedgerWrite) -> None:
        now = self._clock.now_ms()
        match write:
            case acts.Reserve():
                self._ledger.reserve(write.workload, write.placement, at_ms=now)
            case acts.Run():
                self._ledger.run(
                    write.workload, write.attempt, gpus=write.gpus, placement=write.placement, at_ms=write.at_ms
                )
            case acts.Adjust():
                self._ledger.adjust(
                    write.workload, write.attempt, gpus=write.gpus, placement=write.placement, at_ms=write.at_ms
                )
            case acts.Release():
                self._ledger.release(write.workload, write.attempt, at_ms=write.at_ms, note=write.note)
            case acts.Void():
                self._ledger.void(write.workload, write.attempt, at_ms=now, note=write.note)
            case acts.Adopt():
                self._ledger.adopt(write.workload, write.placement, at_ms=write.at_ms, note=write.note)
            case acts.Intend():
                self._ledger.intend(write.intent)
            case acts.Settle():
                self._ledger.settle(write.intent_id, outcome=write.outcome, at_ms=now)
            case acts.RecordCapacity():
                self._ledger.capacity(write.rows, at_ms=now)
