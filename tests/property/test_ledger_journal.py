"""The ledger against a naive model, over random sequences with repeats, late repeats, crashes and a stale leader.

Rules 1, 3, 4, 7, 8 and 19. After every step the ledger must verify clean and tell what the model tells.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bridge.clock import FakeClock
from bridge.errors import BridgeError, StaleLeaderError
from bridge.ledger import journal
from bridge.ledger.port import CapacityRow, Intent, Ledger
from bridge.quota.model import FlavorName
from bridge.workloads.model import Grant, NodeName, System, Workload, WorkloadId
from tests.contract.ledger_sample import workload

NODES = [NodeName("n1"), NodeName("n2")]
WORKLOADS = [
    workload("a", gpus=1),
    workload("b", gpus=4),
    workload("c", gpus=2, team="nlp"),
    workload("d", gpus=3, team="nlp", system=System.KUBERNETES),
]
GPUS = st.integers(-1, 6)
TIMES = st.integers(0, 20)
HORIZON = 25


class CrashError(Exception):
    """The process died at a commit."""


@dataclass
class Attempt:
    """What the model knows of one grant: amounts by time, nothing derived."""

    state: str
    amounts: list[tuple[int, int]] = field(default_factory=list)  # (from_ms, gpus) while running
    gpus: int = 0
    ended_ms: int = 0

    def held_at(self, now_ms: int) -> int:
        """Return the GPUs running at a moment."""
        if not self.amounts or (self.state == "released" and now_ms >= self.ended_ms):
            return 0
        return next((gpus for from_ms, gpus in reversed(self.amounts) if from_ms <= now_ms), 0)


Model = dict[tuple[WorkloadId, int], Attempt]
Act = Callable[[Ledger], object]


class LedgerMachine(RuleBasedStateMachine):
    """Drives a ledger file and a dictionary side by side."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._url = f"sqlite:///{Path(self._folder.name) / 'ledger.db'}"
        self._dies_at: str | None = None
        self._epoch = 0
        self._done: list[Act] = []
        self.model: Model = {}
        self.capacity: dict[NodeName, CapacityRow] = {}
        self.intents: dict[str, str | None] = {}
        self.ledger = self._open()

    @initialize()
    def lead(self) -> None:
        self._epoch += 1
        self.ledger.open_epoch(self._epoch, "leader")

    def teardown(self) -> None:
        self.ledger.close()
        self._folder.cleanup()

    # --- steps, each with what the model makes of it ---------------------------------------------------------

    @rule(wanted=st.sampled_from(WORKLOADS), node=st.sampled_from(NODES), at_ms=TIMES, adopt=st.booleans())
    def grant(self, wanted: Workload, node: NodeName, at_ms: int, adopt: bool) -> None:
        latest = self._latest(wanted.id)
        if latest == 0 or self.model[wanted.id, latest].state not in ("reserved", "running"):
            amounts = [(at_ms, wanted.gpus)] if adopt else []
            self.model[wanted.id, latest + 1] = Attempt("running" if adopt else "reserved", amounts, wanted.gpus)
        placement = {node: wanted.gpus}
        if adopt:
            self._do(lambda ledger: ledger.adopt(wanted, placement, at_ms=at_ms, note=""), repeatable=False)
        else:
            self._do(lambda ledger: ledger.reserve(wanted, placement, at_ms=at_ms), repeatable=False)

    @rule(wanted=st.sampled_from(WORKLOADS), attempt=st.integers(1, 3), gpus=GPUS, at_ms=TIMES)
    def run_it(self, wanted: Workload, attempt: int, gpus: int, at_ms: int) -> None:
        known = self.model.get((wanted.id, attempt))
        fits = known is not None and (bool(known.amounts) or (known.state == "reserved" and gpus >= 1))
        if known is not None and fits and not known.amounts:
            known.state, known.gpus, known.amounts = "running", gpus, [(at_ms, gpus)]
        self._do(lambda ledger: ledger.run(wanted.id, attempt, gpus=gpus, placement={}, at_ms=at_ms), refused=not fits)

    @rule(wanted=st.sampled_from(WORKLOADS), attempt=st.integers(1, 3), gpus=GPUS, at_ms=TIMES)
    def adjust_it(self, wanted: Workload, attempt: int, gpus: int, at_ms: int) -> None:
        known = self.model.get((wanted.id, attempt))

        def act(ledger: Ledger) -> Grant:
            return ledger.adjust(wanted.id, attempt, gpus=gpus, placement={NODES[0]: 1}, at_ms=at_ms)

        if known is None or not known.amounts:
            self._do(act, refused=True)
            return
        adjusted = dict(known.amounts[1:])
        if at_ms in adjusted:  # a repeat, whatever happened since; or another amount for the same moment
            self._do(act, refused=adjusted[at_ms] != gpus)
            return
        same = known.gpus == gpus and len(known.amounts) > 1
        fits = known.state == "running" and gpus >= 1 and (same or at_ms >= known.amounts[-1][0])
        if fits and not same:
            known.gpus = gpus
            known.amounts.append((at_ms, gpus))
        self._do(act, refused=not fits)

    @rule(wanted=st.sampled_from(WORKLOADS), attempt=st.integers(1, 3), at_ms=TIMES)
    def release_it(self, wanted: Workload, attempt: int, at_ms: int) -> None:
        known = self.model.get((wanted.id, attempt))
        fits = known is not None and known.state != "voided"
        if known is not None and known.state in ("reserved", "running"):
            fits = not known.amounts or at_ms >= known.amounts[-1][0]
            if fits:
                known.state, known.ended_ms = "released", at_ms
        self._do(lambda ledger: ledger.release(wanted.id, attempt, at_ms=at_ms), refused=not fits)

    @rule(wanted=st.sampled_from(WORKLOADS), attempt=st.integers(1, 3), at_ms=TIMES)
    def void_it(self, wanted: Workload, attempt: int, at_ms: int) -> None:
        known = self.model.get((wanted.id, attempt))
        fits = known is not None and known.state in ("reserved", "voided")
        if known is not None and fits:
            known.state = "voided"
        self._do(lambda ledger: ledger.void(wanted.id, attempt, at_ms=at_ms, note=""), refused=not fits)

    @rule(node=st.sampled_from(NODES), columns=st.tuples(*[st.integers(-1, 3)] * 5), off=st.sampled_from([0, 0, 0, 1]))
    def capacity_of(self, node: NodeName, columns: tuple[int, int, int, int, int], off: int) -> None:
        row = CapacityRow(node, FlavorName("h100"), sum(columns) + off, *columns)
        refused = off > 0 or min(columns) < 0
        if not refused:
            self.capacity[node] = row
        self._do(lambda ledger: ledger.capacity([row], at_ms=1), refused=refused, repeatable=False)

    @rule(name=st.sampled_from("xy"), outcome=st.none() | st.sampled_from(["done", "lost"]))
    def intent(self, name: str, outcome: str | None) -> None:
        if outcome is None:
            self.intents.setdefault(name, None)
            self._do(lambda ledger: ledger.intend(Intent(name, "cancel", WORKLOADS[0].id, 1, {})))
            return
        refused = name not in self.intents
        if not refused and self.intents[name] is None:
            self.intents[name] = outcome
        self._do(lambda ledger: ledger.settle(name, outcome=outcome, at_ms=2), refused=refused)

    # --- what goes wrong -------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 40))
    def repeat(self, which: int) -> None:
        """Send an old transfer again, in whatever order: nothing changes."""
        if self._done:
            newest = self.ledger.last_seq()
            self._done[which % len(self._done)](self.ledger)
            assert self.ledger.last_seq() == newest

    @rule(when=st.sampled_from(["before", "after"]))
    def crash_at_the_next_commit(self, when: str) -> None:
        self._dies_at = when

    @rule(wanted=st.sampled_from(WORKLOADS))
    def a_stale_leader_writes(self, wanted: Workload) -> None:
        self._dies_at = None
        stale, self.ledger = self.ledger, self._open()
        self.lead()
        try:
            stale.void(wanted.id, 1, at_ms=1, note="stale")
        except StaleLeaderError:
            return
        finally:
            stale.close()
        raise AssertionError("a stale leader was let through")

    @rule(
        wanted=st.lists(st.sampled_from(WORKLOADS), min_size=1, max_size=3), when=st.sampled_from(["before", "after"])
    )
    def a_batch_dies(self, wanted: list[Workload], when: str) -> None:
        """Reserve several in one transaction and die around its commit: all or none."""
        before = replace_all(self.model)
        for one in wanted:
            latest = self._latest(one.id)
            if latest == 0 or self.model[one.id, latest].state not in ("reserved", "running"):
                self.model[one.id, latest + 1] = Attempt("reserved", [], one.gpus)
        changed = self.model != before
        self._dies_at = when
        try:
            with self.ledger.batch():
                for one in wanted:
                    self.ledger.reserve(one, {NODES[0]: one.gpus}, at_ms=3)
            assert not changed, "the fault hook was not called"
        except CrashError:
            assert changed
            self._restart()
        self._dies_at = None
        if when == "before":
            self.model = before

    # --- what must always hold -------------------------------------------------------------------------------

    @invariant()
    def it_adds_up(self) -> None:
        assert list(self.ledger.verify()) == []

    @invariant()
    def it_tells_what_the_model_tells(self) -> None:
        told = {(g.workload, g.attempt): (g.state.value, g.gpus) for g in self.ledger.grants(holding=False)}
        assert told == {key: (known.state, known.gpus) for key, known in self.model.items()}
        assert {row.node: row for row in self.ledger.capacity_rows()} == self.capacity
        told_intents = {
            i.id: i.outcome if i.settled_ms is not None else None for i in self.ledger.intents(open_only=False)
        }
        assert told_intents == self.intents

    @invariant()
    def usage_is_the_sum_over_every_millisecond(self) -> None:
        expected: dict[tuple[str, System], int] = {}
        for (name, _), known in self.model.items():
            owner = next(one for one in WORKLOADS if one.id == name)
            gpu_ms = sum(known.held_at(now_ms) for now_ms in range(3, HORIZON))
            if gpu_ms:
                key = (owner.team, owner.system)
                expected[key] = expected.get(key, 0) + gpu_ms
        told: dict[tuple[str, System], int] = {}
        for row in self.ledger.usage(from_ms=3, to_ms=HORIZON):  # one row for each user
            told[row.team, row.system] = told.get((row.team, row.system), 0) + row.gpu_ms
        assert told == expected

    # --- the machinery ---------------------------------------------------------------------------------------

    def _open(self) -> Ledger:
        return journal.open_ledger(self._url, FakeClock(0), self._fault)

    def _fault(self, site: str) -> None:
        if self._dies_at is not None and site.endswith(f"{self._dies_at}-commit"):
            raise CrashError(site)

    def _restart(self) -> None:
        self._dies_at = None
        self.ledger.close()
        self.ledger = self._open()
        self.lead()

    def _latest(self, wanted: WorkloadId) -> int:
        return max((attempt for name, attempt in self.model if name == wanted), default=0)

    def _do(self, act: Act, *, refused: bool = False, repeatable: bool = True) -> None:
        """Carry a step out as a client does that may die on the way: after a restart the same step is sent again."""
        newest = self.ledger.last_seq()
        try:
            act(self.ledger)
        except CrashError:
            self._restart()
            act(self.ledger)
        except BridgeError:
            assert refused, "refused what the model allows"
            assert self.ledger.last_seq() == newest, "a refusal left an entry"
            return
        assert not refused, "allowed what the model refuses"
        if repeatable:
            self._done.append(act)


def replace_all(model: Model) -> Model:
    """Return a copy that shares nothing that changes."""
    return {key: replace(known, amounts=list(known.amounts)) for key, known in model.items()}


# Each example commits some forty times to a real file: a third of the profile's number is worth its time.
LedgerMachine.TestCase.settings = settings(
    max_examples=settings().max_examples // 3, stateful_step_count=25, deadline=None
)
test_ledger = LedgerMachine.TestCase
