"""An API server in memory: the same Gateway, the same contract suite. For tests, and for trying things without one.

It keeps what the bridge relies on: versions and watches, conflicts, UID preconditions, status as a subresource,
finalizers and graceful deletion, evictions against disruption budgets. It does not validate specs, run controllers or
collect garbage.
"""

import bisect
import copy
import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bridge.errors import ConflictError, NotFoundError, RejectedError, UnknownStateError
from bridge.kube import answers, lifecycle, patches, port
from bridge.kube.failures import Failure, Failures, Hook
from bridge.kube.port import EventType, ExpiredError, Kind, Listing, Object, PatchType, WatchEvent

Key = tuple[str, str]

LOG_KEPT: Final = 50_000


class FakeKube:
    """Gateway over dictionaries. `tokens` maps bearer tokens to (username, groups) for TokenReview.

    `calls.down = True` refuses every connection; `calls.writes` lists what was written, "create.pods" and so on.
    """

    def __init__(self, *, fault: Hook | None = None) -> None:
        self.calls = Failures(fault)
        self.tokens: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._news = threading.Condition(threading.RLock())
        self._kinds: dict[Kind, dict[Key, Object]] = {}
        self._log: dict[Kind, list[tuple[int, WatchEvent]]] = {}
        self._revision = 1
        self._oldest = 0
        self._torn = 0

    # --- the port ----------------------------------------------------------------------------------------------
    def list(self, kind: Kind, *, namespace: str | None = None, label_selector: str = "") -> Listing:
        """List."""
        with self.calls.read("list", kind.plural), self._news:
            every = self._kinds.get(kind, {}).values()
            found = [copy.deepcopy(obj) for obj in every if lifecycle.chosen(obj, namespace, label_selector)]
            return answers.listing(found, str(self._revision))

    def watch(
        self,
        kind: Kind,
        resource_version: str,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        timeout_s: int = 300,
    ) -> Iterator[WatchEvent]:
        """Stream changes, a bookmark at the end."""
        position, deadline_s, torn = int(resource_version), time.monotonic() + timeout_s, self._torn
        with self.calls.read("watch", kind.plural):
            pass
        while True:
            with self._news:
                fresh = self._after(kind, position, torn)
                position = max(position, self._revision)
                left_s = deadline_s - time.monotonic()
                if not fresh and left_s > 0:
                    self._news.wait(left_s)
                    continue
            for event in fresh:
                if lifecycle.chosen(event.object, namespace, label_selector):
                    yield copy.deepcopy(event)
            if not fresh:
                yield WatchEvent(EventType.BOOKMARK, {"metadata": {"resourceVersion": str(position)}})
                return

    def get(self, kind: Kind, name: str, *, namespace: str | None = None) -> Object:
        """Return one object."""
        with self.calls.read("get", kind.plural), self._news:
            return copy.deepcopy(self._one(kind, name, namespace))

    def create(self, kind: Kind, obj: Object, *, namespace: str | None = None) -> Object:
        """Create."""
        with self.calls.write("create", kind.plural), self._news:
            made = lifecycle.created(kind, obj, namespace)
            if lifecycle.key(made) in self._kinds.get(kind, {}):
                raise ConflictError(f'{kind.plural} "{made["metadata"]["name"]}" already exists')
            return self._keep(kind, made, EventType.ADDED)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        type: PatchType = PatchType.MERGE,  # noqa: A002 -- the port's word
        subresource: str = "",
        force: bool = False,  # noqa: ARG002 -- nobody else owns fields here
    ) -> Object:
        """Patch; APPLY makes what is absent, and never takes fields away."""
        with self.calls.write("patch", kind.plural, subresource), self._news:
            plain = json.loads(json.dumps(patch))
            try:
                known = self._one(kind, name, namespace)
            except NotFoundError:
                if type is not PatchType.APPLY:
                    raise
                return self._keep(kind, lifecycle.created(kind, plain, namespace), EventType.ADDED)
            wanted = patches.apply(known, plain, type)
            changed = lifecycle.updated(kind, known, wanted, subresource)
            if changed == known:
                return copy.deepcopy(known)
            if lifecycle.finished(changed):
                return self._drop(kind, changed)
            return self._keep(kind, changed, EventType.MODIFIED)

    def delete(
        self, kind: Kind, name: str, *, namespace: str | None = None, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        """Delete, or begin to."""
        with self.calls.write("delete", kind.plural), self._news:
            self._delete(kind, name, namespace, uid, grace_s)

    def post(self, path: str, body: Object) -> Object:
        """Evict a pod, review or make a token."""
        parts = path.strip("/").split("/")
        with self.calls.write("post", parts[-1]), self._news:
            match parts:
                case [*_, "tokenreviews"]:
                    who = self.tokens.get(body["spec"]["token"])
                    user = {"username": who[0], "groups": list(who[1])} if who else {}
                    return {**body, "status": {"authenticated": who is not None, "user": user}}
                case [_, _, "namespaces", namespace, "pods", name, "eviction"]:
                    return self._evict(namespace, name, body)
                case [_, _, "namespaces", namespace, "serviceaccounts", name, "token"]:
                    token = uuid.uuid4().hex
                    self.tokens[token] = (f"system:serviceaccount:{namespace}:{name}", ("system:serviceaccounts",))
                    return {**body, "status": {"token": token}}
                case _:
                    raise NotFoundError(f"the fake has no {path}")

    def version(self) -> tuple[int, int]:
        """Return the version that the real thing is tested with."""
        with self.calls.read("get", "version"):
            return 1, 37

    # --- what tests do to it -----------------------------------------------------------------------------------
    def fail(
        self, verb: str, plural: str = "", *, times: int = 1, applied: bool = False, error: Exception | None = None
    ) -> None:
        """Let the next calls of a verb fail; `applied` ones take effect and lose their answer."""
        self.calls.add(Failure(verb, plural, times, applied, error))

    def compact(self) -> None:
        """Forget old versions: a watch from an earlier one expires."""
        with self._news:
            self._oldest = self._revision
            self._log.clear()
            self._news.notify_all()

    def tear(self) -> None:
        """End every watch in the middle."""
        with self._news:
            self._torn += 1
            self._news.notify_all()

    def kubelet_stopped(self, name: str, namespace: str) -> None:
        """Say that a deleted pod's containers have ended, as its kubelet would: the pod goes away."""
        with self._news:
            self._delete(port.PODS, name, namespace, None, 0)

    # --- parts -------------------------------------------------------------------------------------------------
    def _delete(self, kind: Kind, name: str, namespace: str | None, uid: str | None, grace_s: int | None) -> None:
        known = self._one(kind, name, namespace)
        if uid is not None and known["metadata"]["uid"] != uid:
            raise ConflictError(f"the UID in the precondition ({uid}) is not that of {name}")
        going = lifecycle.deleting(kind, known, grace_s)
        if lifecycle.finished(going):
            self._drop(kind, going)
        elif going != known:
            self._keep(kind, going, EventType.MODIFIED)

    def _evict(self, namespace: str, name: str, body: Object) -> Object:
        labels = self._one(port.PODS, name, namespace)["metadata"].get("labels") or {}
        for budget in self._kinds.get(port.PDBS, {}).values():
            wanted = ((budget.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
            same = budget["metadata"]["namespace"] == namespace and wanted.items() <= labels.items()
            if same and not (budget.get("status") or {}).get("disruptionsAllowed"):
                raise RejectedError("Cannot evict pod as it would violate the pod's disruption budget.")
        options = body.get("deleteOptions") or {}
        uid = (options.get("preconditions") or {}).get("uid")
        self._delete(port.PODS, name, namespace, uid, options.get("gracePeriodSeconds"))
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _one(self, kind: Kind, name: str, namespace: str | None) -> Object:
        try:
            return self._kinds.get(kind, {})[namespace or "" if kind.namespaced else "", name]
        except KeyError:
            raise NotFoundError(f'{kind.plural} "{name}" not found') from None

    def _keep(self, kind: Kind, obj: Object, word: EventType) -> Object:
        self._revision += 1
        obj["metadata"]["resourceVersion"] = str(self._revision)
        self._kinds.setdefault(kind, {})[lifecycle.key(obj)] = obj
        log = self._log.setdefault(kind, [])
        log.append((self._revision, WatchEvent(word, copy.deepcopy(obj))))
        if len(log) > LOG_KEPT:
            self.compact()
        self._news.notify_all()
        return copy.deepcopy(obj)

    def _drop(self, kind: Kind, obj: Object) -> Object:
        last = self._keep(kind, obj, EventType.DELETED)
        del self._kinds[kind][lifecycle.key(obj)]
        return last

    def _after(self, kind: Kind, position: int, torn: int) -> Sequence[WatchEvent]:
        """Return what happened after a version, under the lock."""
        if self.calls.down or torn != self._torn:
            raise UnknownStateError("the stream from the fake ended early")
        if position < self._oldest:
            raise ExpiredError(f"too old resource version: {position} ({self._oldest})")
        log = self._log.get(kind, [])
        start = bisect.bisect_right(log, position, key=lambda entry: entry[0])
        return [event for _, event in log[start:]]
