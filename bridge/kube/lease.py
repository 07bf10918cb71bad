"""Leadership on a coordination.k8s.io Lease. The epoch is `leaseTransitions + 1`: it grows with each term.

Invariant: of two processes at most one believes that it leads. A holder stops believing at a deadline by its own clock,
counted from before it sent its last good renewal; a taker waits for the whole duration from when it first saw that
renewal. No two machines' clocks are compared.

A holder of our own identity is a former process of this very pod: it is dead, so its lease is taken at once.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from bridge.errors import BridgeError, ConflictError, NotFoundError
from bridge.kube.port import LEASES, Gateway, Object

_LOG = structlog.get_logger()
_TICK_S = 0.01


@dataclass(frozen=True, slots=True)
class Leadership:
    """A term."""

    holder: str
    epoch: int


class Lease:
    """Tries to get and keep one Lease. `current()` is the term while it is certainly ours, else None.

    `floor` is the highest epoch on record: a Lease that somebody deleted starts above it, not at 1 again.
    """

    def __init__(
        self,
        gateway: Gateway,
        name: str,
        namespace: str,
        identity: str,
        *,
        duration_s: int = 15,
        lost: Callable[[], None] = lambda: None,
        floor: Callable[[], int] = lambda: 0,
    ) -> None:
        self._gateway = gateway
        self._name, self._namespace, self._identity = name, namespace, identity
        self._duration_s = duration_s
        self._lost = lost
        self._floor = floor
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._term: Leadership | None = None
        self._until = 0.0
        self._seen: tuple[str, float] = ("", 0.0)  # renewTime of another holder, and when we first saw it
        self._expires = 0.0  # when that is over, unless it is renewed
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Begin trying."""
        self._thread.start()

    def wait(self, timeout_s: float) -> Leadership | None:
        """Return the term once it is ours, None at the timeout."""
        deadline_s = time.monotonic() + timeout_s
        with self._news:
            while (term := self.current()) is None and (left_s := deadline_s - time.monotonic()) > 0:
                self._news.wait(left_s)
        return term

    def current(self) -> Leadership | None:
        """Return the term while nobody else can have taken it."""
        return self._term if self._term is not None and time.monotonic() < self._until else None

    def holder(self) -> str:
        """Return who was last seen to hold it; "" when unknown."""
        return self._identity if self.current() else self._seen[0].partition("|")[0]

    def stop(self) -> None:
        """Give it up, so that the next one need not wait."""
        self._stop.set()
        self._thread.join(timeout=self._duration_s)
        if self.current() is None:
            return
        self._term = None
        try:
            lease = self._gateway.get(LEASES, self._name, namespace=self._namespace)
            if lease["spec"].get("holderIdentity") == self._identity:
                self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except BridgeError as error:
            _LOG.info("lease.not_given_up", error=str(error))

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self._once(begun)
            except BridgeError as error:
                _LOG.debug("lease.failed", error=str(error))
            if self._term is not None and time.monotonic() >= self._until:
                _LOG.warning("lease.lost", epoch=self._term.epoch)
                self._term = None
                self._lost()
            self._stop.wait(self._pause_s())

    def _pause_s(self) -> float:
        """Look a few times per term, and just when another's lease runs out: a takeover waits for nothing more."""
        left_s = self._expires - time.monotonic() + _TICK_S
        period_s = self._duration_s / 5
        return min(period_s, left_s) if self._term is None and left_s > 0 else period_s

    def _once(self, begun: float) -> None:
        try:
            lease = self._gateway.get(LEASES, self._name, namespace=self._namespace)
        except NotFoundError:
            lease = self._create()
            self._take(lease, begun)
            return
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder == self._identity and self._term is not None:
            self._write(lease, {"renewTime": _now()})
            self._until = begun + self._duration_s * 2 / 3
        elif not holder or holder == self._identity or self._expired(spec):
            transitions = max(int(spec.get("leaseTransitions") or 0) + 1, self._floor())
            taken = {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._duration_s,
                "acquireTime": _now(),
                "renewTime": _now(),
                "leaseTransitions": transitions,
            }
            self._take(self._write(lease, taken), begun)
        else:
            self._until = 0.0  # somebody else holds it, whatever we believed

    def _expired(self, spec: Object) -> bool:
        """Judge another's lease by our own clock: unchanged for its whole duration since we first saw it so."""
        mark = f"{spec.get('holderIdentity')}|{spec.get('renewTime')}|{spec.get('leaseTransitions')}"
        if mark != self._seen[0]:
            self._seen = (mark, time.monotonic())
        self._expires = self._seen[1] + float(spec.get("leaseDurationSeconds") or self._duration_s)
        return time.monotonic() > self._expires

    def _take(self, lease: Object, begun: float) -> None:
        self._term = Leadership(self._identity, int(lease["spec"].get("leaseTransitions") or 0) + 1)
        self._until = begun + self._duration_s * 2 / 3
        with self._news:
            self._news.notify_all()
        _LOG.info("lease.taken", holder=self._identity, epoch=self._term.epoch)

    def _create(self) -> Object:
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration_s,
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": self._floor(),
        }
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        return self._gateway.create(LEASES, body, namespace=self._namespace)

    def _write(self, lease: Object, spec: Object) -> Object:
        """Write against the version that was read: of two takers one gets ConflictError."""
        patch = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
        try:
            return self._gateway.patch(LEASES, self._name, patch, namespace=self._namespace)
        except ConflictError:
            if self._term is not None:
                self._until = 0.0
            raise


def _now() -> str:
    """Return the time as MicroTime wants it: six digits."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
