"""Runs one case: virtual clock, events in order, the planner's desk, the ledger. Deterministic.

Time jumps from event to event: a submission, an end, the end of a victim's grace, or the time that the planner
itself named. Between two of them nothing could be decided differently.

What is not simulated: the seconds in which a worker comes up or a pod starts. A start is a start.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from bridge.admission.decisions import Placed
from bridge.admission.desk import Desk
from bridge.admission.model import Earmark, Holding
from bridge.clock import FakeClock
from bridge.errors import BrokenInvariantError
from bridge.ledger.memory import MemoryLedger
from bridge.ledger.port import Intent
from bridge.simulate.cases import Case
from bridge.simulate.decay import Decay
from bridge.simulate.model import Settings
from bridge.simulate.outcome import Outcome, Stranded, Stretch, Taken
from bridge.workloads.model import Grant, System, Workload, WorkloadId

END, EVICT = 0, 1  # of two events at the same time, an end comes first

ROUNDS: Final = 1_000
"""Most passes at one moment: each but the last takes something back, and that ends (bridge.admission.potential)."""

SHORTEST_PAUSE_MS: Final = 60_000
"""First pause of a workload whose earmark lapsed; each further one is twice as long."""

Log = Callable[[int, str, Workload, str], None]
"""Called with each event: time, its name, the workload, nodes and devices ("n1=8;n2=8"; "" for none)."""


@dataclass(slots=True)
class _Life:
    """What is known of one job while it is simulated."""

    index: int
    workload: Workload
    left_ms: int  # run time that it still needs
    attempt: int = 0
    since_ms: int = 0
    taken_for: Workload | None = None  # its preemptor, while it is leaving


class Engine:
    """One run. Use `run` once."""

    def __init__(self, case: Case, settings: Settings, log: Log | None = None) -> None:
        self._case = case
        self._settings = settings
        self._log = log or _silence
        first_ms = case.work[0][0].submitted_ms if case.work else 0
        self._clock = FakeClock(first_ms)
        self._ledger = MemoryLedger(self._clock)
        self._ledger.open_epoch(1, "simulation")
        self._desk = Desk(case.tree, case.flavors, case.rules)
        for supply in case.supplies:
            self._desk.node(supply)
        self._decay = Decay(settings.half_life_ms, first_ms)
        self._remember_ms = first_ms + settings.history_step_ms
        self._lives = {workload.id: _Life(i, workload, job.duration_ms) for i, (job, workload) in enumerate(case.work)}
        self._events: list[tuple[int, int, WorkloadId, int]] = []  # (time, END or EVICT, who, attempt)
        self._holdings: dict[WorkloadId, Holding] = {}
        self._earmarks: dict[WorkloadId, Earmark] = {}
        self._intents: dict[WorkloadId, str] = {}  # the open intent of each earmark
        self._lapses: dict[WorkloadId, int] = {}  # how often its earmark lapsed
        self._waiting = 0
        self._stretches: list[Stretch] = []
        self._taken: list[Taken] = []
        self._counts = {"decisions": 0, "passes": 0, "preemptions": 0, "lapsed": 0}

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        """Run until nothing can happen any more. `progress` gets the number of ended jobs now and then."""
        case, cycle_ms = self._case, self._settings.cycle_ms
        arrived, wake_ms = 0, None
        while True:
            times = [self._events[0][0]] if self._events else []
            if arrived < len(case.work):
                times.append(case.work[arrived][0].submitted_ms)
            if wake_ms is not None and (self._earmarks or times):
                times.append(wake_ms)
            if not times:
                break
            now_ms = max(self._clock.now_ms(), -(-min(times) // cycle_ms) * cycle_ms)
            self._clock.advance(now_ms - self._clock.now_ms())
            with self._ledger.batch():
                self._pass_events(now_ms)
                arrived = self._arrive(arrived, now_ms)
                self._lapse(now_ms)
            self._remember(now_ms)
            wake_ms = self._decide(now_ms)
            if progress is not None:
                progress(len(self._stretches) - len(self._taken))
        return self._outcome(now_ms if case.work else 0)

    # What happens by itself.

    def _pass_events(self, now_ms: int) -> None:
        while self._events and self._events[0][0] <= now_ms:
            at_ms, kind, name, attempt = heapq.heappop(self._events)
            life = self._lives[name]
            if life.attempt == attempt and name in self._holdings:
                if kind == END:
                    self._end(life, at_ms)
                else:
                    self._evict(life, at_ms)

    def _arrive(self, arrived: int, now_ms: int) -> int:
        work = self._case.work
        while arrived < len(work) and work[arrived][0].submitted_ms <= now_ms:
            job, workload = work[arrived]
            self._wait(workload)
            self._log(job.submitted_ms, "submit", workload, "")
            arrived += 1
        return arrived

    def _wait(self, workload: Workload) -> None:
        self._desk.submit(workload)
        self._waiting += 1

    def _end(self, life: _Life, at_ms: int) -> None:
        self._release(life, at_ms, "end", kept_ms=at_ms - life.since_ms, preempted=False)

    def _evict(self, life: _Life, at_ms: int) -> None:
        """End a victim's attempt and let it wait again, with what its last checkpoint kept."""
        ran_ms = at_ms - life.since_ms
        kept_ms = self._kept_ms(life, ran_ms)
        workload, preemptor = life.workload, life.taken_for
        if preemptor is None:
            raise BrokenInvariantError(f"{workload.id} is evicted for nobody")
        lost = workload.gpus * (ran_ms - kept_ms)
        self._taken.append(Taken(at_ms, preemptor.team, workload.team, workload.gpus, lost))
        self._release(life, at_ms, "requeue", kept_ms=kept_ms, preempted=True)
        life.left_ms -= kept_ms
        self._wait(workload)

    def _kept_ms(self, life: _Life, ran_ms: int) -> int:
        """Return what lasts of an attempt: a pod's service is not undone; a job goes back to its last checkpoint."""
        if life.workload.system is System.KUBERNETES:
            return ran_ms
        step_ms = self._settings.checkpoint_ms
        return ran_ms // step_ms * step_ms if step_ms else 0

    def _release(self, life: _Life, at_ms: int, event: str, *, kept_ms: int, preempted: bool) -> None:
        workload = life.workload
        grant = self._ledger.release(workload.id, life.attempt, at_ms=at_ms, note=event)
        self._decay.change(workload.team, workload.flavor, -workload.gpus, at_ms)
        self._desk.free(workload.id)
        del self._holdings[workload.id]
        self._stretches.append(Stretch(life.index, life.since_ms, at_ms, kept_ms, preempted))
        life.taken_for = None
        self._log(at_ms, event, workload, _placed(grant))

    def _lapse(self, now_ms: int) -> None:
        for name in [name for name, mark in self._earmarks.items() if mark.lapses_ms <= now_ms]:
            self._settle(name, "lapsed", now_ms)
            times = self._lapses[name] = self._lapses.get(name, 0) + 1
            self._desk.pause(name, now_ms + SHORTEST_PAUSE_MS * 2 ** (times - 1))
            self._counts["lapsed"] += 1

    def _remember(self, now_ms: int) -> None:
        if now_ms >= self._remember_ms:
            self._desk.remember(self._decay.at(now_ms))
            self._remember_ms = now_ms + self._settings.history_step_ms

    # What is decided.

    def _decide(self, now_ms: int) -> int | None:
        """Carry out passes until one takes nothing back; return when to ask again though nothing happens."""
        if not self._waiting:
            return None
        for _ in range(ROUNDS):
            decisions = self._desk.decide(now_ms)
            self._counts["passes"] += 1
            if not decisions.admitted and not decisions.preemptions:
                return decisions.next_ms
            with self._ledger.batch():
                for placed in decisions.admitted:
                    self._start(placed, now_ms)
                for earmark in decisions.preemptions:
                    self._take_back(earmark, now_ms)
            if not decisions.preemptions:
                return decisions.next_ms
        raise BrokenInvariantError(f"at {now_ms} ms preemption did not come to rest within {ROUNDS} passes")

    def _start(self, placed: Placed, now_ms: int) -> None:
        workload = placed.workload
        life = self._lives[workload.id]
        reserved = self._ledger.reserve(workload, placed.placement, at_ms=now_ms)
        grant = self._ledger.run(
            workload.id, reserved.attempt, gpus=reserved.gpus, placement=reserved.placement, at_ms=now_ms
        )
        if workload.id in self._earmarks:
            self._settle(workload.id, "started", now_ms)
        self._desk.withdraw(workload.id)
        self._waiting -= 1
        limit_s = workload.time_limit_s
        ends_ms = None if limit_s is None else now_ms + limit_s * 1000
        holding = Holding(grant, workload.priority, ends_ms, endless=workload.endless)
        self._desk.hold(holding)
        self._holdings[workload.id] = holding
        self._decay.change(workload.team, workload.flavor, workload.gpus, now_ms)
        life.attempt, life.since_ms = grant.attempt, now_ms
        heapq.heappush(self._events, (now_ms + life.left_ms, END, workload.id, life.attempt))
        self._counts["decisions"] += 1
        self._log(now_ms, "start", workload, _placed(grant))

    def _take_back(self, earmark: Earmark, now_ms: int) -> None:
        """Record the preemption, keep what it frees, and tell the victims to go within their grace."""
        self._counts["preemptions"] += 1
        intent = f"preempt/{earmark.workload}/{self._counts['preemptions']}"
        self._ledger.intend(Intent(intent, "preempt", earmark.workload, now_ms, {"gpus": earmark.gpus}))
        self._earmarks[earmark.workload] = earmark
        self._intents[earmark.workload] = intent
        self._desk.earmark(earmark)
        preemptor = self._lives[earmark.workload].workload
        for victim in earmark.victims:
            life = self._lives[victim.workload]
            holding = self._holdings[victim.workload] = replace(self._holdings[victim.workload], leaving=True)
            self._desk.hold(holding)
            life.taken_for = preemptor
            heapq.heappush(self._events, (now_ms + victim.grace_ms, EVICT, victim.workload, victim.attempt))
            self._log(now_ms, "signal", life.workload, _placed(holding.grant))

    def _settle(self, name: WorkloadId, outcome: str, now_ms: int) -> None:
        self._ledger.settle(self._intents.pop(name), outcome=outcome, at_ms=now_ms)
        del self._earmarks[name]
        self._desk.unmark(name)

    def _outcome(self, now_ms: int) -> Outcome:
        case = self._case
        waiting = self._desk.decide(now_ms).waiting
        stranded = tuple(Stranded(name, waiting[name].text) for name in sorted(waiting))
        last_ms = max((stretch.to_ms for stretch in self._stretches), default=now_ms)
        self._check(last_ms)
        return Outcome(
            case,
            tuple(self._stretches),
            tuple(self._taken),
            stranded,
            **self._counts,
            ledger_entries=self._ledger.last_seq(),
            first_ms=case.work[0][0].submitted_ms if case.work else 0,
            last_ms=last_ms,
            arrivals_end_ms=case.work[-1][0].submitted_ms if case.work else 0,
        )

    def _check(self, last_ms: int) -> None:
        """Raise unless the ledger's own integral is what the attempts come to, and nothing is held."""
        work = self._case.work
        told = sum(work[each.job][1].gpus * (each.to_ms - each.from_ms) for each in self._stretches)
        charged = sum(row.gpu_ms for row in self._ledger.usage(from_ms=0, to_ms=last_ms + 1))
        if told != charged or self._holdings or self._ledger.grants():
            raise BrokenInvariantError(
                f"the ledger charged {charged} GPU-ms, the attempts come to {told}; {len(self._holdings)} still hold"
            )


def _placed(grant: Grant) -> str:
    return ";".join(f"{node}={gpus}" for node, gpus in sorted(grant.placement.items()))


def _silence(_at_ms: int, _event: str, _workload: Workload, _nodes: str) -> None:
    """Log nothing."""
