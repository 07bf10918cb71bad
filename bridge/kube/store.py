"""What is known of one kind: the last list, moved on by the watch and by the answers to our own writes.

Invariant: an object is only ever replaced by a newer version of itself, and only a whole list or a DELETED event takes
one out. A failed read changes nothing but `trouble`.
"""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from bridge.kube.port import EventType, Listing, Object, WatchEvent

Key = tuple[str, str]  # (namespace or "", name)

GONE_KEPT_S: Final = 600.0
GONE_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class Freshness:
    """`synced` once a list was read; `age_s` since the server's last word; `trouble` is "" while the watch works."""

    synced: bool
    age_s: float
    trouble: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent look."""

    objects: dict[Key, Object]
    resource_version: str
    freshness: Freshness


class Store:
    """Thread safe. One reflector writes; many readers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[Key, Object] = {}
        self._gone: OrderedDict[str, tuple[float, Object]] = OrderedDict()
        self._version = ""
        self._synced = False
        self._contact_s = 0.0
        self._trouble = "not read yet"
        self._items: tuple[Object, ...] | None = ()

    def snapshot(self) -> Snapshot:
        """Return everything."""
        with self._lock:
            return Snapshot(dict(self._objects), self._version, self._freshness())

    def freshness(self) -> Freshness:
        """Return how far what is known can be trusted."""
        with self._lock:
            return self._freshness()

    def items(self) -> tuple[Object, ...]:
        """Return the objects; the same tuple while nothing changed. They are shared: never modify one."""
        with self._lock:
            if self._items is None:
                self._items = tuple(self._objects.values())
            return self._items

    def gone(self) -> dict[str, Object]:
        """Return the last state of objects that left during the last ten minutes, by UID."""
        with self._lock:
            oldest_s = time.monotonic() - GONE_KEPT_S
            while self._gone and next(iter(self._gone.values()))[0] < oldest_s:
                self._gone.popitem(last=False)
            return {uid: obj for uid, (_, obj) in self._gone.items()}

    def replace(self, listing: Listing) -> bool:
        """Take over a whole list; what it lacks is gone, but for what we wrote after it. Return if anything changed."""
        with self._lock:
            listed = {_key(obj): obj for obj in listing.items}
            at = _number(listing.resource_version)
            changed = False
            for key, obj in list(self._objects.items()):
                if key not in listed and _version(obj) <= at:
                    self._remove(key, obj)
                    changed = True
            for key, obj in listed.items():
                changed |= self._put(key, obj)
            self._version = listing.resource_version
            changed |= not self._synced
            self._synced = True
            self._heard()
            return changed

    def apply(self, event: WatchEvent) -> bool:
        """Move on by one event. Return whether an object changed."""
        with self._lock:
            obj = event.object
            changed = False
            if event.type is EventType.DELETED:
                key = _key(obj)
                known = self._objects.get(key)
                if known is not None and _version(known) <= _version(obj):
                    self._remove(key, obj)
                    changed = True
            elif event.type is not EventType.BOOKMARK:
                changed = self._put(_key(obj), obj)
            self._version = obj["metadata"]["resourceVersion"]
            self._heard()
            return changed

    def remember(self, obj: Object) -> None:
        """Take the answer to a write of ours, so that the next look sees it before the watch tells."""
        with self._lock:
            key = _key(obj)
            # Up to its version the watch has told everything: what it does not know by then was deleted since.
            if key in self._objects or _version(obj) > _number(self._version):
                self._put(key, obj)

    def heard(self) -> None:
        """Note that the server answered well."""
        with self._lock:
            self._heard()

    def failed(self, why: str) -> bool:
        """Note that it did not; what is known stays. Return whether this is news."""
        with self._lock:
            news = self._trouble == ""
            self._trouble = why
            return news

    def _freshness(self) -> Freshness:
        age_s = time.monotonic() - self._contact_s if self._contact_s else float("inf")
        return Freshness(self._synced, age_s, self._trouble)

    def _heard(self) -> None:
        self._contact_s = time.monotonic()
        if self._synced:
            self._trouble = ""

    def _put(self, key: Key, obj: Object) -> bool:
        known = self._objects.get(key)
        if known is not None:
            if _version(known) >= _version(obj):
                return False
            if known["metadata"]["uid"] != obj["metadata"]["uid"]:
                self._bury(known)
        obj["metadata"].pop("managedFields", None)  # half of a pod's size, and nobody reads it here
        self._objects[key] = obj
        self._items = None
        return True

    def _remove(self, key: Key, last: Object) -> None:
        known = self._objects.pop(key)
        self._bury(last if last["metadata"]["uid"] == known["metadata"]["uid"] else known)
        self._items = None

    def _bury(self, obj: Object) -> None:
        self._gone[obj["metadata"]["uid"]] = (time.monotonic(), obj)
        while len(self._gone) > GONE_MAX:
            self._gone.popitem(last=False)


def _key(obj: Object) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _version(obj: Object) -> int:
    return _number(obj["metadata"]["resourceVersion"])


def _number(version: str) -> int:
    """Versions are comparable numbers, one sequence for all kinds; anything else orders before everything."""
    return int(version) if version.isdecimal() else 0
