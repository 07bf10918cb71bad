"""The store and the reflectors over the in-memory API server: it only moves on, and says when it is stale."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import RejectedError, UnknownStateError
from bridge.kube import port
from bridge.kube.fake import FakeKube
from bridge.kube.port import EventType, Listing, Object, WatchEvent
from bridge.kube.store import Store
from bridge.kube.stores import ReflectedStores
from tests.kubewait import wait

NS = "n"


def obj(name: str, version: int, uid: str = "") -> Object:
    meta = {"name": name, "namespace": NS, "uid": uid or f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": {**meta, "managedFields": [{}]}}


def event(word: EventType, name: str, version: int, uid: str = "") -> WatchEvent:
    return WatchEvent(word, obj(name, version, uid))


def listing(version: int, *objects: Object) -> Listing:
    return Listing(tuple(objects), str(version))


def known(store: Store) -> dict[str, str]:
    return {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in store.items()}


# --- the store ---------------------------------------------------------------------------------------------------
def test_a_store_that_was_never_read_is_in_trouble() -> None:
    fresh = Store().freshness()
    assert (fresh.synced, fresh.trouble) == (False, "not read yet")
    assert fresh.age_s == float("inf")


def test_a_list_and_its_events_are_followed() -> None:
    store = Store()
    assert store.replace(listing(10, obj("a", 5), obj("b", 6)))
    assert store.apply(event(EventType.MODIFIED, "a", 11))
    assert store.apply(event(EventType.ADDED, "c", 12))
    assert store.apply(event(EventType.DELETED, "b", 13))
    assert known(store) == {"a": "11", "c": "12"}
    assert store.snapshot().resource_version == "13"
    assert store.freshness().trouble == ""


def test_a_failure_is_told_and_takes_nothing_away() -> None:
    """N1."""
    store = Store()
    store.replace(listing(10, obj("a", 5)))
    assert store.failed("away")
    assert not store.failed("still away")
    assert known(store) == {"a": "5"}
    assert store.freshness().trouble == "still away"
    store.replace(listing(10, obj("a", 5)))
    assert store.freshness().trouble == ""


def test_a_bookmark_moves_the_version_and_is_no_change() -> None:
    store = Store()
    store.replace(listing(10))
    assert not store.apply(WatchEvent(EventType.BOOKMARK, {"metadata": {"resourceVersion": "20"}}))
    assert store.snapshot().resource_version == "20"


def test_the_answer_to_our_write_is_seen_at_once_and_not_undone_by_older_news() -> None:
    store = Store()
    store.replace(listing(10, obj("a", 5)))
    store.remember(obj("a", 15))
    store.remember(obj("b", 16))
    assert known(store) == {"a": "15", "b": "16"}
    assert not store.apply(event(EventType.MODIFIED, "a", 12))
    store.replace(listing(13, obj("a", 12)))
    assert known(store) == {"a": "15", "b": "16"}
    assert store.apply(event(EventType.DELETED, "b", 17))
    assert known(store) == {"a": "15"}


def test_a_late_answer_does_not_bring_back_what_was_deleted() -> None:
    store = Store()
    store.replace(listing(10, obj("a", 5)))
    store.apply(event(EventType.DELETED, "a", 15))
    store.remember(obj("a", 14))
    assert known(store) == {}


def test_an_old_deletion_does_not_take_the_new_object_of_that_name() -> None:
    store = Store()
    store.replace(listing(10, obj("a", 5, "one")))
    store.remember(obj("a", 16, "two"))
    store.apply(event(EventType.DELETED, "a", 15, "one"))
    assert known(store) == {"a": "16"}
    assert set(store.gone()) == {"one"}


def test_what_left_is_remembered_as_it_was_last_seen() -> None:
    store = Store()
    store.replace(listing(10, obj("a", 5), obj("b", 6)))
    store.apply(event(EventType.DELETED, "a", 11))
    store.replace(listing(12))
    assert {uid: o["metadata"]["resourceVersion"] for uid, o in store.gone().items()} == {"u-a": "11", "u-b": "6"}


def test_items_are_the_same_while_nothing_changed_and_without_managed_fields() -> None:
    store = Store()
    store.replace(listing(10, obj("a", 5)))
    first = store.items()
    assert not store.replace(listing(11, obj("a", 5)))
    assert store.items() is first
    assert "managedFields" not in first[0]["metadata"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["write", "delete", "hear", "list", "fail"]))))
def test_whatever_the_order_of_news_the_store_ends_where_the_server_is(steps: list[tuple[str, str]]) -> None:
    """The server moves on; the watch, lists and answers come late, in their own order; nothing old ever wins."""
    store, world, pending, version = Store(), dict[str, Object](), list[WatchEvent](), 10
    store.replace(listing(version))
    for name, step in steps:
        version += 1
        if step == "write":
            word = EventType.MODIFIED if name in world else EventType.ADDED
            world[name] = obj(name, version, (world.get(name) or obj(name, version, f"u{version}"))["metadata"]["uid"])
            pending.append(WatchEvent(word, world[name]))
            store.remember(world[name])
            assert known(store)[name] == str(version)
        elif step == "delete" and name in world:
            uid = world.pop(name)["metadata"]["uid"]
            pending.append(WatchEvent(EventType.DELETED, obj(name, version, uid)))
        elif step == "hear" and pending:
            store.apply(pending.pop(0))
        elif step == "list":
            pending.clear()
            store.replace(listing(version, *world.values()))
        elif step == "fail":
            store.failed("away")
    for told in pending:
        store.apply(told)
    assert known(store) == {n: o["metadata"]["resourceVersion"] for n, o in world.items()}


# --- reflectors --------------------------------------------------------------------------------------------------
@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def stores(kube: FakeKube, woken: threading.Event) -> Iterator[ReflectedStores]:
    followed = ReflectedStores(kube, [port.PODS, port.NODES], woken.set, watch_s=5)
    followed.start()
    followed.wait(5)
    yield followed
    followed.stop()
    kube.tear()


def names(stores: ReflectedStores) -> set[str]:
    return {pod["metadata"]["name"] for pod in stores.items(port.PODS)}


def make(kube: FakeKube, name: str) -> Object:
    return kube.create(port.PODS, {"metadata": {"name": name}, "spec": {}}, namespace=NS)


def test_changes_arrive_and_wake(kube: FakeKube, stores: ReflectedStores, woken: threading.Event) -> None:
    woken.clear()
    make(kube, "a")
    assert woken.wait(5)
    wait("a is known", lambda: names(stores) == {"a"})
    kube.delete(port.PODS, "a", namespace=NS)
    wait("a has left", lambda: names(stores) == set())
    assert [p["metadata"]["name"] for p in stores.gone().values()] == ["a"]


def test_an_outage_is_told_at_once_keeps_everything_and_heals(
    kube: FakeKube, stores: ReflectedStores, woken: threading.Event
) -> None:
    """N1."""
    make(kube, "a")
    wait("a is known", lambda: names(stores) == {"a"})
    woken.clear()
    kube.calls.down = True
    kube.tear()
    wait("the outage is told", stores.trouble)
    assert woken.is_set()
    assert names(stores) == {"a"}
    kube.calls.down = False
    make(kube, "b")
    wait("it healed", lambda: not stores.trouble() and names(stores) == {"a", "b"})


def test_a_torn_watch_misses_nothing(kube: FakeKube, stores: ReflectedStores) -> None:
    for number in range(20):
        make(kube, f"p{number}")
        kube.tear()
    wait("all are known", lambda: len(names(stores)) == 20 and not stores.trouble(), 20)


def test_a_version_that_is_too_old_is_listed_again(kube: FakeKube, stores: ReflectedStores) -> None:
    make(kube, "a")
    kube.compact()
    make(kube, "b")
    wait("both are known", lambda: names(stores) == {"a", "b"} and not stores.trouble())


def test_what_left_during_an_outage_has_left_after_it(kube: FakeKube, stores: ReflectedStores) -> None:
    make(kube, "a")
    wait("a is known", lambda: names(stores) == {"a"})
    kube.fail("watch", "pods", times=3)
    kube.tear()
    kube.delete(port.PODS, "a", namespace=NS)
    wait("a has left", lambda: names(stores) == set() and not stores.trouble())


@pytest.mark.parametrize("error", [RejectedError("forbidden"), KeyError("a mistake of ours")])
def test_whatever_fails_is_trouble_and_tried_again(kube: FakeKube, error: Exception) -> None:
    kube.fail("list", "pods", times=2, error=error)
    stores = ReflectedStores(kube, [port.PODS], lambda: None, watch_s=1)
    stores.start()
    wait("it is told", lambda: str(error) in stores.trouble())
    wait("it works then", lambda: not stores.trouble())
    stores.stop()
    kube.tear()


def test_stores_that_cannot_be_read_say_so_at_the_bound(kube: FakeKube) -> None:
    kube.calls.down = True
    stores = ReflectedStores(kube, [port.PODS], lambda: None)
    stores.start()
    with pytest.raises(UnknownStateError, match=r"not read within 0.3 s: pods"):
        stores.wait(0.3)
    stores.stop()


def test_silence_beyond_the_bound_is_trouble(kube: FakeKube) -> None:
    stores = ReflectedStores(kube, [port.PODS], lambda: None, stale_s=0.2, watch_s=60)
    stores.start()
    stores.wait(5)
    wait("it is stale", lambda: "no word from the API server" in stores.trouble())
    stores.stop()
    kube.tear()


def test_our_own_write_is_known_before_the_watch_tells(kube: FakeKube) -> None:
    stores = ReflectedStores(kube, [port.PODS], lambda: None)
    stores.start()
    stores.wait(5)
    kube.calls.down = True
    kube.tear()
    wait("the watch is gone", stores.trouble)
    kube.calls.down = False
    stores.remember(port.PODS, make(kube, "a"))
    assert "a" in names(stores)
    stores.remember(port.SECRETS, {"metadata": {}})  # a kind that is not followed
    stores.stop()
