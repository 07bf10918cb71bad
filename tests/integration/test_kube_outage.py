"""Reflectors and leadership over a real API server that is killed, frozen and brought back (N1)."""

import threading
import time
from collections.abc import Iterator

import pytest

from bridge.errors import OutcomeUnknownError
from bridge.kube import port
from bridge.kube.lease import Lease
from bridge.kube.port import Object
from bridge.kube.stores import ReflectedStores
from tests import kubebox
from tests.kubebox import KubeBox, unique
from tests.kubewait import wait


@pytest.fixture(scope="module")
def box() -> Iterator[KubeBox]:
    with KubeBox() as running:
        yield running


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def stores(box: KubeBox, woken: threading.Event) -> Iterator[ReflectedStores]:
    followed = ReflectedStores(box.gateway(read_s=2), [port.PODS, port.NODES], woken.set, watch_s=4)
    followed.start()
    followed.wait(20)
    yield followed
    followed.stop()


@pytest.fixture
def ns(box: KubeBox) -> str:
    name = unique("ns")
    box.gateway().create(port.NAMESPACES, {"metadata": {"name": name}})
    return name


def make(box: KubeBox, ns: str, name: str) -> Object:
    return box.gateway().create(port.PODS, kubebox.pod(name), namespace=ns)


def names(stores: ReflectedStores, ns: str) -> set[str]:
    return {p["metadata"]["name"] for p in stores.items(port.PODS) if p["metadata"]["namespace"] == ns}


def test_a_killed_api_server_is_noticed_at_once_loses_us_nothing_and_heals(
    box: KubeBox, stores: ReflectedStores, woken: threading.Event, ns: str
) -> None:
    make(box, ns, "a")
    wait("a is known", lambda: names(stores, ns) == {"a"})
    woken.clear()
    box.kill_api_server()
    wait("the outage is told", stores.trouble, 2)
    assert woken.is_set()
    assert names(stores, ns) == {"a"}
    box.wait_ready()
    box.gateway().delete(port.PODS, "a", namespace=ns)
    make(box, ns, "b")
    wait("it healed", lambda: not stores.trouble() and names(stores, ns) == {"b"}, 30, stores.trouble)


def test_an_api_server_that_hangs_is_noticed_and_its_writes_have_no_known_outcome(
    box: KubeBox, stores: ReflectedStores, ns: str
) -> None:
    make(box, ns, "a")
    wait("a is known", lambda: names(stores, ns) == {"a"})
    with box.frozen():
        with pytest.raises(OutcomeUnknownError):
            box.gateway(read_s=1).create(port.PODS, kubebox.pod("b"), namespace=ns)
        wait("it is told", stores.trouble, 15)
        assert names(stores, ns) == {"a"}
    # Whether b was made after all only looking can tell; the store ends up with the server's answer.
    make(box, ns, "c")

    def there() -> set[str]:
        return {p["metadata"]["name"] for p in box.gateway().list(port.PODS, namespace=ns).items}

    wait("it healed", lambda: not stores.trouble() and names(stores, ns) == there() >= {"a", "c"}, 30, stores.trouble)


def test_a_leader_that_the_api_server_does_not_answer_stops_leading_in_time(box: KubeBox, ns: str) -> None:
    lease = Lease(box.gateway(read_s=1), "leader", ns, "first", duration_s=3)
    lease.start()
    assert lease.wait(10) is not None
    with box.frozen():
        begun = time.monotonic()
        wait("it stopped leading", lambda: lease.current() is None, 5)
        assert time.monotonic() - begun < 3
    assert lease.wait(10) is not None
    lease.stop()
