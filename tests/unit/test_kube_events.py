"""Events: told once in a while, about the very object, and never in the way of the work."""

import pytest

from bridge.clock import FakeClock
from bridge.kube import port
from bridge.kube.events import MESSAGE_MAX, REPEAT_MS, EventWriter
from bridge.kube.fake import FakeKube
from bridge.kube.port import Object


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def writer(kube: FakeKube, clock: FakeClock) -> EventWriter:
    return EventWriter(kube, clock)


def made(kube: FakeKube, name: str = "a") -> Object:
    return kube.create(port.PODS, {"metadata": {"name": name}, "spec": {}}, namespace="n")


def events(kube: FakeKube) -> tuple[Object, ...]:
    return kube.list(port.EVENTS).items


def test_an_event_is_about_the_very_object(kube: FakeKube, writer: EventWriter) -> None:
    pod = made(kube)
    writer.emit(pod, "Waiting", "no h100 is free", warning=True)
    (event,) = events(kube)
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "n", "uid": pod["metadata"]["uid"],
    }  # fmt: skip
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Waiting", "no h100 is free")
    assert event["metadata"]["namespace"] == "n"


def test_the_same_said_again_writes_nothing_and_something_new_does(
    kube: FakeKube, writer: EventWriter, clock: FakeClock
) -> None:
    """N15."""
    pod, other = made(kube), made(kube, "b")
    for _ in range(3):
        writer.emit(pod, "Waiting", "1 free", warning=False)
        clock.advance(1_000)
    assert len(events(kube)) == 1
    writer.emit(pod, "Waiting", "2 free", warning=False)
    writer.emit(other, "Waiting", "1 free", warning=False)
    assert len(events(kube)) == 3
    clock.advance(REPEAT_MS)
    writer.emit(pod, "Waiting", "1 free", warning=False)
    assert len(events(kube)) == 4


def test_an_event_that_cannot_be_written_holds_nothing_up_and_is_told_later(
    kube: FakeKube, writer: EventWriter
) -> None:
    pod = made(kube)
    kube.fail("create", "events")
    writer.emit(pod, "Waiting", "x", warning=False)
    assert events(kube) == ()
    writer.emit(pod, "Waiting", "x", warning=False)
    assert len(events(kube)) == 1


def test_an_event_about_a_node_is_in_the_default_namespace(kube: FakeKube, writer: EventWriter) -> None:
    node = kube.create(port.NODES, {"metadata": {"name": "g1"}})
    writer.emit(node, "DrainedInSlurm", "x" * 5_000, warning=True)
    (event,) = events(kube)
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]
    assert len(event["message"]) == MESSAGE_MAX
