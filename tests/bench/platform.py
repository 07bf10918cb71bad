"""A platform of nothing but the desk and the ledger, on a virtual clock: each tick is one cycle of the controller.

What one cycle of the controller records is one batch here, too: ends, starts and reservations, in one transaction of
the durable journal (SQLite file, WAL, synchronous=FULL). What is granted in one cycle is seen running in the next.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bridge.admission.decisions import Decisions, Placed
from bridge.admission.desk import Desk
from bridge.admission.model import Earmark, Holding, Policy
from bridge.ledger.journal import SqlLedger, open_ledger
from bridge.ledger.port import Intent
from bridge.workloads.model import Grant, Workload, WorkloadId
from tests.bench.audit import Audit, WrongAnswerError
from tests.bench.fleets import FLAVOR, Fleet

TICK_MS: Final = 100


class VirtualClock:
    """The time of the tick."""

    def __init__(self) -> None:
        self.at_ms = 0

    def now_ms(self) -> int:
        """Return the time of the tick."""
        return self.at_ms


@dataclass(slots=True)
class Log:
    """What one cycle did, for the audit, which is not timed."""

    granted: list[Grant] = field(default_factory=list)
    ended: list[tuple[WorkloadId, bool]] = field(default_factory=list)


class Platform:
    """Who waits, who holds, and who is taken back for whom; desk and ledger are told the same."""

    def __init__(self, fleet: Fleet, policy: Policy, folder: Path) -> None:
        self.clock = VirtualClock()
        self.desk = Desk(fleet.tree, {FLAVOR}, policy)
        for node in fleet.nodes:
            self.desk.node(node)
        self.ledger: SqlLedger = open_ledger(f"sqlite:///{folder / 'ledger.db'}", self.clock)
        self.ledger.open_epoch(1, "bench")
        self.audit = Audit(fleet.tree, fleet.nodes)
        self.log = Log()
        self.grants = 0
        self.preemptions = 0
        self.waiting: dict[WorkloadId, Workload] = {}
        self.holdings: dict[WorkloadId, Holding] = {}
        self._asked: dict[WorkloadId, Workload] = {}  # what each holding asked
        self._marks: dict[WorkloadId, tuple[str, Earmark]] = {}
        self._starting: list[WorkloadId] = []  # granted in the last cycle
        self._victims: list[WorkloadId] = []  # told to leave in the last cycle

    def submit(self, workload: Workload) -> None:
        """Let a workload wait."""
        self.waiting[workload.id] = workload
        self.desk.submit(workload)

    def withdraw(self, name: WorkloadId) -> None:
        """Forget a waiting workload."""
        del self.waiting[name]
        self.desk.withdraw(name)

    def cycle(self, ended: Iterable[WorkloadId], sync: Callable[[], None] = lambda: None) -> Decisions:
        """Record what ended and what was seen running; then decide and record what is granted and taken back.

        `sync` runs before the decision, for those who bring the desk up to date from whole snapshots.
        """
        now_ms = self.clock.at_ms
        with self.ledger.batch():
            self._preempt()
            for name in ended:
                if name in self.holdings:  # else preempted in this cycle
                    self._end(name, "completed")
            for name in self._starting:
                self._run(name)
            self._starting.clear()
            self._lapse()
            sync()
            decisions = self.desk.decide(now_ms)
            reserved = [
                (placed, self.ledger.reserve(placed.workload, placed.placement, at_ms=now_ms))
                for placed in decisions.admitted
            ]
            for earmark in decisions.preemptions:
                self._intend(earmark)
            for name in [placed.workload.id for placed in decisions.admitted if placed.workload.id in self._marks]:
                self._settle(name, "started")
        for placed, grant in reserved:
            self._hold(placed, grant)
        for earmark in decisions.preemptions:
            self._mark(earmark)
        return decisions

    def holds(self, name: WorkloadId, attempt: int) -> bool:
        """Return whether this attempt holds."""
        holding = self.holdings.get(name)
        return holding is not None and holding.grant.attempt == attempt

    def earmarks(self) -> list[Earmark]:
        """Return what is kept for whom."""
        return [earmark for _, earmark in self._marks.values()]

    def audited(self) -> Log:
        """Check what was done since the last call, ends first as in the batch; return it."""
        done, self.log = self.log, Log()
        for name, preempted in done.ended:
            self.audit.end(name, preempted=preempted)
        for grant in done.granted:
            self.audit.grant(grant)
        return done

    def check_ledger(self) -> None:
        """Verify the ledger: it holds what the audit counts, and its journal proves it."""
        problems = self.ledger.verify()
        if problems:
            raise WrongAnswerError(f"ledger verify: {problems[0].text} ({len(problems)} in all)")
        if {grant.workload for grant in self.ledger.grants()} != set(self.holdings):
            raise WrongAnswerError("the ledger and the desk disagree on what holds")

    def _end(self, name: WorkloadId, note: str) -> None:
        holding = self.holdings.pop(name)
        if holding.grant.running_ms is None:
            self._starting.remove(name)
        self.ledger.release(name, holding.grant.attempt, at_ms=self.clock.at_ms, note=note)
        self.desk.free(name, holding.grant.attempt)
        self.log.ended.append((name, note == "preempted"))

    def _run(self, name: WorkloadId) -> None:
        """See that it runs: as slurmctld and the kubelet tell it, with the time at which it must end."""
        grant, workload = self.holdings[name].grant, self._asked[name]
        running = self.ledger.run(
            name, grant.attempt, gpus=grant.gpus, placement=grant.placement, at_ms=self.clock.at_ms
        )
        limit_s = workload.time_limit_s
        ends_ms = None if limit_s is None else self.clock.at_ms + limit_s * 1000
        self.holdings[name] = Holding(running, workload.priority, ends_ms, endless=workload.endless)
        self.desk.hold(self.holdings[name])

    def _hold(self, placed: Placed, grant: Grant) -> None:
        name = grant.workload
        holding = Holding(grant, placed.workload.priority, endless=placed.workload.endless)
        self.holdings[name], self._asked[name] = holding, placed.workload
        del self.waiting[name]
        self.desk.hold(holding)
        self.desk.withdraw(name)
        self._starting.append(name)
        self.grants += 1
        self.log.granted.append(grant)

    def _intend(self, earmark: Earmark) -> None:
        intent = f"preempt/{earmark.workload}/{self.clock.at_ms}"
        detail = {"placement": dict(earmark.placement), "victims": [victim.workload for victim in earmark.victims]}
        self.ledger.intend(Intent(intent, "preempt", earmark.workload, self.clock.at_ms, detail))

    def _mark(self, earmark: Earmark) -> None:
        """Keep what is taken back, and tell the victims to leave: they are gone in the next cycle."""
        self._marks[earmark.workload] = (f"preempt/{earmark.workload}/{self.clock.at_ms}", earmark)
        self.desk.earmark(earmark)
        for victim in earmark.victims:
            leaving = replace(self.holdings[victim.workload], leaving=True)
            self.holdings[victim.workload] = leaving
            self.desk.hold(leaving)
            self._victims.append(victim.workload)
            self.preemptions += 1

    def _preempt(self) -> None:
        """Victims end and wait again, as a requeued job does."""
        for name in self._victims:
            if name in self.holdings:
                self._end(name, "preempted")
                self.submit(self._asked[name])
        self._victims.clear()

    def _lapse(self) -> None:
        for name, (_, earmark) in list(self._marks.items()):
            if earmark.lapses_ms <= self.clock.at_ms:
                self._settle(name, "lapsed")

    def _settle(self, name: WorkloadId, outcome: str) -> None:
        intent, _ = self._marks.pop(name)
        self.ledger.settle(intent, outcome=outcome, at_ms=self.clock.at_ms)
        self.desk.unmark(name)
