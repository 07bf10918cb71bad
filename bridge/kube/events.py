"""Kubernetes Events about other people's objects, each told once in a while and never in a flood."""

import uuid
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Final

import structlog

from bridge import wellknown
from bridge.clock import Clock
from bridge.errors import BridgeError
from bridge.kube.port import EVENTS, Gateway, Object

_LOG = structlog.get_logger()
REPEAT_MS: Final = 600_000
REMEMBERED: Final = 5_000
MESSAGE_MAX: Final = 1024


class EventWriter:
    """Writes core/v1 Events; the same object, reason and message again within ten minutes writes nothing."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._gateway = gateway
        self._clock = clock
        self._told: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    def emit(self, about: Object, reason: str, message: str, *, warning: bool) -> None:
        """Tell; a failure to tell is logged and holds nothing up."""
        meta, now_ms = about["metadata"], self._clock.now_ms()
        key = (meta["uid"], reason, message)
        if now_ms - self._told.get(key, -REPEAT_MS) < REPEAT_MS:
            return
        self._told[key] = now_ms
        self._told.move_to_end(key)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        namespace = meta.get("namespace", "default")
        stamp = _stamp(now_ms)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name'][:200]}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.get("apiVersion", "v1"),
                "kind": about["kind"],
                "name": meta["name"],
                "uid": meta["uid"],
                **({"namespace": meta["namespace"]} if "namespace" in meta else {}),
            },
            "reason": reason,
            "message": message[:MESSAGE_MAX],
            "type": "Warning" if warning else "Normal",
            "source": {"component": wellknown.FIELD_MANAGER},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            self._gateway.create(EVENTS, event, namespace=namespace)
        except BridgeError as error:
            self._told.pop(key, None)
            _LOG.info("event.failed", about=f"{namespace}/{meta['name']}", reason=reason, error=str(error))


def _stamp(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
