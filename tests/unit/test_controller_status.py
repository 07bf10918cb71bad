"""What `status` says of the systems that the bridge reads: how old its knowledge is, and their versions."""

import threading

import pytest

from bridge.clock import FakeClock
from bridge.controller.source import BeatSource, Leader
from bridge.kube import port
from bridge.kube.fake import FakeKube
from bridge.kube.stores import ReflectedStores
from bridge.ledger.memory import MemoryLedger
from tests.unit.platform_of_three import Three


def test_kubernetes_age_is_the_reflectors_and_not_a_constant() -> None:
    stores = ReflectedStores(FakeKube(), [port.NODES, port.PODS], threading.Event().set)
    assert stores.age_s() is None, "nothing was read yet"
    stores.start()
    try:
        stores.wait(10.0)
        age_s = stores.age_s()
    finally:
        stores.stop()
    assert age_s is not None
    assert 0.0 <= age_s < 10.0


@pytest.mark.parametrize("age_s", [None, 3.5])
def test_status_shows_age_and_version(age_s: float | None) -> None:
    platform = Three()
    source = BeatSource(
        platform.ledger,
        platform.clock,
        leader=lambda: Leader("test", 1, leading=True),
        failures=dict,
        wake=lambda: None,
        kube_age_s=lambda: age_s,
    )
    source.kube_version = "1.37"
    source.publish(platform.cycle.once())
    shown = source.status().kubernetes
    platform.ledger.close()
    assert (shown.ok, shown.age_s, shown.version) == (True, age_s, "1.37")


def test_before_the_first_cycle_nothing_is_claimed() -> None:
    clock = FakeClock(0)
    source = BeatSource(
        MemoryLedger(clock), clock, leader=lambda: Leader("", 0, leading=False), failures=dict, wake=lambda: None
    )
    shown = source.status().kubernetes
    assert (shown.ok, shown.age_s) == (False, None)
