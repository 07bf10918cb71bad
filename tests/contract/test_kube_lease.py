"""Leadership over the in-memory API server and a real one: one leader at a time, each term with a higher epoch."""

from typing import Any

import pytest

from bridge.errors import UnknownStateError
from bridge.kube import port
from bridge.kube.fake import FakeKube
from bridge.kube.lease import Lease
from bridge.kube.port import Gateway
from tests.kubebox import unique
from tests.kubewait import wait


class Cable:
    """One process's way to the API server, which can be cut."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        if self.cut:
            raise UnknownStateError("the cable is cut")
        return getattr(self._gateway, name)


@pytest.fixture(params=["fake", "real"])
def gateway(request: pytest.FixtureRequest) -> Gateway:
    return FakeKube() if request.param == "fake" else request.getfixturevalue("kube_box").gateway()


@pytest.fixture
def ns(gateway: Gateway) -> str:
    name = unique("ns")
    gateway.create(port.NAMESPACES, {"metadata": {"name": name}})
    return name


def started(gateway: Any, ns: str, identity: str, **options: Any) -> Lease:
    lease = Lease(gateway, "leader", ns, identity, duration_s=2, **options)
    lease.start()
    return lease


def epoch(lease: Lease) -> int:
    term = lease.current()
    return term.epoch if term else 0


def test_one_leads_and_the_next_takes_over_at_once_when_it_is_given_up(gateway: Gateway, ns: str) -> None:
    first = started(gateway, ns, "first")
    assert first.wait(5) is not None
    assert epoch(first) == 1
    second = started(gateway, ns, "second")
    assert second.wait(2.5) is None
    assert epoch(first) == 1
    first.stop()
    assert epoch(first) == 0
    assert second.wait(5) is not None
    assert epoch(second) == 2
    assert second.holder() == "second"
    second.stop()


def test_a_leader_that_is_cut_off_stops_believing_before_another_leads(gateway: Gateway, ns: str) -> None:
    cable, lost = Cable(gateway), list[str]()
    first = started(cable, ns, "first", lost=lambda: lost.append("lost"))
    assert first.wait(5) is not None
    second = started(gateway, ns, "second")
    cable.cut = True
    both = []

    def second_leads() -> bool:
        leads, believes = second.current(), first.current()
        both.append(leads is not None and believes is not None)
        return leads is not None

    wait("the second leads", second_leads, 15)
    assert not any(both)
    assert epoch(second) == 2
    wait("the first was told", lambda: lost == ["lost"])
    cable.cut = False
    assert first.wait(1) is None
    second.stop()
    assert first.wait(5) is not None
    assert epoch(first) == 3
    first.stop()


def test_the_same_pod_started_again_leads_at_once_in_a_new_term(gateway: Gateway, ns: str) -> None:
    cable = Cable(gateway)
    killed = started(cable, ns, "pod")
    assert killed.wait(5) is not None
    cable.cut = True  # as if it were killed: nothing is given up
    again = started(gateway, ns, "pod")
    assert again.wait(1) is not None
    assert epoch(again) == 2
    again.stop()
    killed.stop()


def test_a_deleted_lease_starts_above_the_epochs_on_record(gateway: Gateway, ns: str) -> None:
    lease = started(gateway, ns, "first", floor=lambda: 7)
    assert lease.wait(5) is not None
    assert epoch(lease) == 8
    lease.stop()


def test_who_sees_another_holder_stops_believing_at_once(gateway: Gateway, ns: str) -> None:
    lease = started(gateway, ns, "first")
    assert lease.wait(5) is not None
    thief = {"spec": {"holderIdentity": "thief", "leaseTransitions": 5, "leaseDurationSeconds": 60}}
    gateway.patch(port.LEASES, "leader", thief, namespace=ns)
    wait("it stopped", lambda: lease.current() is None, 1.0)
    assert lease.holder() == "thief"
    lease.stop()


def test_a_taking_whose_answer_was_lost_ends_in_one_leader(ns: str) -> None:
    kube = FakeKube()
    kube.fail("create", "leases", applied=True)
    lease = started(kube, ns, "first")
    assert lease.wait(5) is not None
    assert kube.get(port.LEASES, "leader", namespace=ns)["spec"]["leaseTransitions"] + 1 == epoch(lease)
    lease.stop()
