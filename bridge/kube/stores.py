"""All the kinds that one process follows as one thing: read them, remember a write, say why not to trust them."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from bridge.errors import UnknownStateError
from bridge.kube import port
from bridge.kube.port import Gateway, Kind, Object
from bridge.kube.reflector import WATCH_S, Reflector
from bridge.kube.store import Snapshot

STALE_S: Final = 90.0
"""Above a watch's longest silence, so only a reflector that does not notice by itself is caught by it."""


class ReflectedStores:
    """Reflectors of `kinds`. `changed` runs in their threads after each change: only wake somebody in it."""

    def __init__(
        self,
        gateway: Gateway,
        kinds: Iterable[Kind],
        changed: Callable[[], None],
        *,
        stale_s: float = STALE_S,
        watch_s: int = WATCH_S,
    ) -> None:
        self._changed = changed
        self._stale_s = stale_s
        self._news = threading.Condition()
        self._reflectors = {kind: Reflector(gateway, kind, self._tell, watch_s=watch_s) for kind in kinds}

    def start(self) -> None:
        """Begin to follow."""
        for reflector in self._reflectors.values():
            reflector.start()

    def stop(self) -> None:
        """End soon."""
        for reflector in self._reflectors.values():
            reflector.stop()

    def wait(self, bound_s: float) -> None:
        """Return when every kind was read once; UnknownStateError with what is missing at the bound."""
        deadline_s = time.monotonic() + bound_s
        with self._news:
            while why := self._unsynced():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise UnknownStateError(f"not read within {bound_s:g} s: {why}")
                self._news.wait(min(left_s, 0.5))

    def items(self, kind: Kind) -> tuple[Object, ...]:
        """Return the objects of a kind as last known; the same tuple while nothing changed."""
        return self._reflectors[kind].store.items()

    def snapshot(self, kind: Kind) -> Snapshot:
        """Return one kind with its version and freshness."""
        return self._reflectors[kind].store.snapshot()

    def trouble(self) -> str:
        """Return why what is known may not be acted on; "" when every kind is synced and fresh."""
        for kind, reflector in self._reflectors.items():
            fresh = reflector.store.freshness()
            if fresh.trouble:
                return fresh.trouble
            if fresh.age_s > self._stale_s:
                return f"{kind.plural}: no word from the API server for {fresh.age_s:.0f} s"
        return ""

    def age_s(self) -> float | None:
        """Return the seconds since the last word on the kind that was silent longest; None: one was never read."""
        oldest_s = max(reflector.store.freshness().age_s for reflector in self._reflectors.values())
        return None if math.isinf(oldest_s) else oldest_s

    def gone(self) -> Mapping[str, Object]:
        """Return the last state of pods that left during the last ten minutes, by UID."""
        return self._reflectors[port.PODS].store.gone()

    def remember(self, kind: Kind, obj: Object) -> None:
        """Take the answer to a write of ours, so that the next look sees it."""
        if kind in self._reflectors:
            self._reflectors[kind].store.remember(obj)

    def _unsynced(self) -> str:
        found = {kind.plural: r.store.freshness() for kind, r in self._reflectors.items()}
        return "; ".join(f"{plural} ({f.trouble})" for plural, f in found.items() if not f.synced)

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()
        self._changed()
