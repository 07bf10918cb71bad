"""Parts (a) and (b) of the planner bench: workloads come, are granted, run and end, as fast as the bridge decides."""

import heapq
from pathlib import Path
from typing import Any

from bridge.admission.model import Policy
from bridge.workloads.model import WorkloadId
from tests.bench.audit import WrongAnswerError
from tests.bench.figures import Cycles, peak_mb
from tests.bench.fleets import Fleet
from tests.bench.platform import TICK_MS, Platform

LONGEST_MS = 3_600_000  # far above what any of the inputs needs: one that never ends is wrong


def measure(fleet: Fleet, folder: Path, *, preempts: bool = True) -> dict[str, Any]:
    """Run the whole demand through; return the figures. A wrong answer raises WrongAnswerError.

    Timed: all of each cycle (submissions, ends, starts, the decision, the batch's commit). Not timed: the audit
    between the cycles, and verify at the end.
    """
    platform = Platform(fleet, Policy(preempts=preempts), folder)
    cycles = Cycles()
    coming = [arrival.workload for arrival in reversed(fleet.arrivals)]
    runs_ms = {arrival.workload.id: arrival.runs_ms for arrival in fleet.arrivals}
    ends: list[tuple[int, WorkloadId, int]] = []
    most_waiting = 0
    while coming or platform.waiting or platform.holdings:
        platform.clock.at_ms += TICK_MS
        now_ms = platform.clock.at_ms
        if now_ms > LONGEST_MS:
            raise WrongAnswerError(f"{len(platform.waiting)} workloads still wait after {LONGEST_MS} ms")
        ended = []
        while ends and ends[0][0] <= now_ms:
            _, name, attempt = heapq.heappop(ends)
            if platform.holds(name, attempt):  # not one that was preempted meanwhile
                ended.append(name)
        with cycles.timed():
            while coming and coming[-1].submitted_ms <= now_ms:
                platform.submit(coming.pop())
            platform.cycle(ended)
        most_waiting = max(most_waiting, len(platform.waiting))
        for grant in platform.audited().granted:
            heapq.heappush(ends, (now_ms + TICK_MS + runs_ms[grant.workload], grant.workload, grant.attempt))
    figures = {
        "workloads": len(fleet.arrivals),
        "teams": len(fleet.tree.teams) - len(fleet.tree.roots),
        "nodes": len(fleet.nodes),
        "decisions": platform.grants,
        "preemptions": platform.preemptions,
        "most_waiting": most_waiting,
        "virtual_s": platform.clock.at_ms / 1000,
        "seconds": round(cycles.total_s, 3),
        "cpu_s": round(cycles.cpu_s, 3),
        "decisions_per_s": round(platform.grants / cycles.total_s, 1),
        "cycle": cycles.summary(),
        "peak_mb": peak_mb(),
    }
    platform.audit.check_all_done({arrival.workload.id for arrival in fleet.arrivals})
    platform.check_ledger()
    return figures
