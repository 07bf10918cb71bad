"""The one loop: look, plan, record, act, publish. Level-triggered: an event only wakes it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from bridge.clock import Clock
from bridge.controller import plan as planner
from bridge.controller.act import Actor
from bridge.controller.desk import AdmissionDesk
from bridge.controller.observe import Observer
from bridge.controller.plan import Plan
from bridge.controller.poller import Poller
from bridge.controller.world import World
from bridge.errors import BridgeError, StaleLeaderError

_LOG = structlog.get_logger()
_FRESH_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Beat:
    """One cycle that was carried out: what the API shows until the next."""

    number: int
    world: World
    plan: Plan
    ended_ms: int
    duration_ms: int


class Reconciler(Protocol):
    """What follows each cycle: keeps the clusters' objects and the statuses of custom resources."""

    def reconcile(self, beat: Beat) -> None:
        """Write what differs; raises BridgeError when something could not be written."""
        ...


class Cycle:
    """Runs cycles while leading. One thread; `wake` may be called from any."""

    def __init__(
        self,
        observer: Observer,
        poller: Poller,
        actor: Actor,
        clock: Clock,
        *,
        publish: Callable[[Beat], None],
        reconciler: Reconciler,
        leading: Callable[[], bool],
    ) -> None:
        self._observer = observer
        self._poller = poller
        self._actor = actor
        self._clock = clock
        self._publish = publish
        self._reconciler = reconciler
        self._leading = leading
        self._woken = threading.Event()
        self._stop = threading.Event()
        self._not_before = 0.0
        self._number = 0
        self._desk = AdmissionDesk()

    def wake(self) -> None:
        """Run a cycle soon."""
        self._woken.set()

    def stop(self) -> None:
        """End after the cycle in progress."""
        self._stop.set()
        self._woken.set()

    def run(self, idle_s: float = 1.0) -> None:
        """Cycle until stopped or no longer leading. A fault of one cycle is logged; the next one looks again."""
        while not self._stop.is_set() and self._leading():
            self._woken.wait(idle_s)
            self._woken.clear()
            try:
                self.once()
            except StaleLeaderError:
                _LOG.warning("cycle.fenced", note="another leader took over")
                return
            except BridgeError as error:
                _LOG.error("cycle.failed", error=str(error), kind=type(error).__name__)

    def once(self) -> Beat:
        """Look, plan, record, act, publish."""
        begun = time.monotonic()
        # 1. Observe. Slurm's reading must be younger than our last act towards it.
        world = self._observer.look(self._poller.view(self._not_before, _FRESH_WAIT_S))
        # 2. Plan: pure.
        plan = planner.plan(world, self._desk)
        if plan.changes_intents:
            self._observer.read_intents_again()
        # 3. Record, durably, before anything is sent.
        self._actor.write(plan.writes)
        # 4. Act.
        if self._actor.carry_out(plan.acts):
            self._not_before = time.monotonic()
            self._poller.poke()
        self._poller.set_busy(plan.moving)
        # 5. Tell: the API, the custom resources, the clusters' own objects.
        self._number += 1
        duration_ms = int((time.monotonic() - begun) * 1000)
        beat = Beat(self._number, world, plan, self._clock.now_ms(), duration_ms)
        self._publish(beat)
        self._reconciler.reconcile(beat)
        _LOG.debug("cycle", number=beat.number, ms=duration_ms, acts=len(plan.acts), waiting=len(plan.waits))
        if (plan.writes or plan.acts) and not self._actor.failures:
            self._woken.set()
        return beat
