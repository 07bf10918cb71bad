"""Part (c) of the planner bench: a full fleet with a long queue, cycle after cycle, with no change and with 100 each.

The desk is brought up to date as the controller does it, from whole snapshots of who waits, who holds and which nodes
there are: what has not changed is the same object as before.
"""

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bridge.admission.decisions import Decisions
from bridge.admission.model import Policy
from bridge.workloads.model import WorkloadId
from tests.bench.figures import Cycles, peak_mb
from tests.bench.fleets import SEED, Fleet
from tests.bench.platform import TICK_MS, Platform

ENDED: Final = 33
WITHDRAWN: Final = 17
SUBMITTED: Final = 50
"""The 100 changes of a changed cycle. What ends makes way for about as many, so the queue keeps its length."""


class Standing:
    """A platform filled by the planner itself, with `waiting` workloads left over."""

    def __init__(self, fleet: Fleet, folder: Path, waiting: int) -> None:
        self.platform = Platform(fleet, Policy(), folder)
        self._nodes = fleet.nodes
        self._spare = itertools.cycle(fleet.arrivals)
        self._number = itertools.count()
        self._chance = random.Random(SEED)
        self._waiting = waiting
        self.fills = Cycles()

    def fill(self) -> None:
        """Submit and decide until nothing more starts and enough wait."""
        while len(self.platform.waiting) < self._waiting:
            while len(self.platform.waiting) < self._waiting:
                self._submit()
            while True:
                with self.fills.timed():
                    decisions = self._cycle([])
                self.platform.audited()
                if not decisions.admitted:
                    break

    def rest(self) -> Decisions:
        """One cycle in which nothing happened."""
        return self._cycle([])

    def change(self) -> list[WorkloadId]:
        """Make 100 changes; return which workloads end."""
        running = sorted(name for name, held in self.platform.holdings.items() if held.grant.running_ms is not None)
        ending = self._chance.sample(running, ENDED)
        for name in self._chance.sample(sorted(self.platform.waiting), WITHDRAWN):
            self.platform.waiting.pop(name)
        for _ in range(SUBMITTED):
            self._submit()
        return ending

    def _submit(self) -> None:
        like = next(self._spare).workload
        name = WorkloadId(f"{like.id}-{next(self._number)}")
        self.platform.waiting[name] = replace(like, id=name, submitted_ms=self.platform.clock.at_ms)

    def cycle(self, ended: list[WorkloadId]) -> Decisions:
        """One cycle after changes."""
        return self._cycle(ended)

    def _cycle(self, ended: list[WorkloadId]) -> Decisions:
        platform = self.platform
        platform.clock.at_ms += TICK_MS

        def sync() -> None:
            platform.desk.sync(
                waiting=list(platform.waiting.values()),
                holdings=list(platform.holdings.values()),
                nodes=list(self._nodes),
                earmarks=platform.earmarks(),
            )

        return platform.cycle(ended, sync)


def measure(fleet: Fleet, folder: Path, *, waiting: int, cycles: int) -> dict[str, Any]:
    """Fill the fleet, then measure cycles without change, then with 100 changes each."""
    standing = Standing(fleet, folder, waiting)
    standing.fill()
    platform = standing.platform
    rest, changed = Cycles(), Cycles()
    held = len(platform.holdings)
    standing.rest()  # what was granted last is seen running
    standing.rest()
    for _ in range(cycles):
        with rest.timed():
            standing.rest()
    granted = platform.grants
    for _ in range(cycles):
        ended = standing.change()
        with changed.timed():
            standing.cycle(ended)
        platform.audited()
    figures = {
        "nodes": len(fleet.nodes),
        "teams": len(fleet.tree.teams) - len(fleet.tree.roots),
        "waiting": len(platform.waiting),
        "holding": held,
        "fill": {"decisions": granted, **standing.fills.summary(), "seconds": round(standing.fills.total_s, 3)},
        "unchanged": rest.summary(),
        "changed": changed.summary(),
        "changed_decisions": platform.grants - granted,
        "preemptions": platform.preemptions,
        "peak_mb": peak_mb(),
    }
    platform.check_ledger()
    return figures
