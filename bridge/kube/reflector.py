"""Keeps one kind's store true: list, then watch, for ever; list again when the server says the version is too old.

A failure never empties the store. It is told to the store at once, so that readers can refuse to act on it, and the
next attempt waits a random time that grows to a bound.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from bridge.errors import BridgeError, UnknownStateError
from bridge.kube.port import ExpiredError, Gateway, Kind
from bridge.kube.store import Store

_LOG = structlog.get_logger()

FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 10.0
WATCH_S: Final = 55
"""Short, because the end of a quiet watch is the only sign that the server is still there."""


class Reflector:
    """One thread for one kind. `changed` is called after each change, from that thread: only wake somebody in it."""

    def __init__(
        self,
        gateway: Gateway,
        kind: Kind,
        changed: Callable[[], None],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        watch_s: int = WATCH_S,
    ) -> None:
        self.kind = kind
        self.store = Store()
        self._gateway = gateway
        self._changed = changed
        self._namespace = namespace
        self._selector = label_selector
        self._watch_s = watch_s
        self._stop = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"reflect-{kind.plural}", daemon=True)

    def start(self) -> None:
        """Begin; `store` says when it is synced."""
        self._thread.start()

    def stop(self) -> None:
        """End soon: a watch in progress is left at its next word, the thread is a daemon."""
        self._stop.set()

    def _run(self) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list()
                version = self._watch(version)
            except ExpiredError as error:
                _LOG.info("reflector.expired", kind=self.kind.plural, error=str(error))
                version = ""
                self._back_off(f"{self.kind.plural}: {error}", failed=False)
            except BridgeError as error:
                version = ""  # what was missed meanwhile must be in the store before it counts as fresh again
                self._back_off(f"{self.kind.plural}: {error}", failed=True)
            except Exception as error:  # noqa: BLE001 -- told, logged, and tried again
                # A mistake of ours must show as trouble, not end the thread and leave a store that looks healthy.
                _LOG.exception("reflector.fault", kind=self.kind.plural)
                version = ""
                self._back_off(f"{self.kind.plural}: {type(error).__name__}: {error}", failed=True)

    def _list(self) -> str:
        listing = self._gateway.list(self.kind, namespace=self._namespace, label_selector=self._selector)
        self._failures = 0
        if self.store.replace(listing):
            self._changed()
        return listing.resource_version

    def _watch(self, version: str) -> str:
        """Follow until the watch ends by itself; return where to go on."""
        events = self._gateway.watch(
            self.kind, version, namespace=self._namespace, label_selector=self._selector, timeout_s=self._watch_s
        )
        begun_s = time.monotonic()
        for event in events:
            begun_s = 0.0
            self._failures = 0
            version = event.object["metadata"]["resourceVersion"]
            if self.store.apply(event):
                self._changed()
            if self._stop.is_set():
                return version
        if time.monotonic() - begun_s < min(1, self._watch_s / 2):
            raise UnknownStateError(f"a watch of {self.kind.plural} ended at once, without a word")
        self.store.heard()
        return version

    def _back_off(self, why: str, *, failed: bool) -> None:
        if self._stop.is_set():
            return
        self._failures += 1
        if failed and self.store.failed(why):
            _LOG.warning("reflector.failed", kind=self.kind.plural, error=why)
            self._changed()
        bound_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._failures, 10))
        self._stop.wait(random.uniform(bound_s / 4, bound_s))  # noqa: S311 -- jitter, not a secret
