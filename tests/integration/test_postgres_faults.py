"""Faults of a real PostgreSQL. Each: no grant without a record, a clear error or none, recovery without hands."""

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import psycopg
import pytest

from bridge.clock import FakeClock
from bridge.errors import BridgeError, OutcomeUnknownError, UnknownStateError
from bridge.ledger import journal
from bridge.ledger.journal import SqlLedger
from tests.contract.ledger_sample import NODE, T0, workload
from tests.integration.lossy import LossyProxy
from tests.postgresbox import DATA, PostgresBox

HELD = {NODE: 4}
LOCK_S = 30
RECOVERY_S = 40.0


@pytest.fixture(scope="module")
def box() -> Iterator[PostgresBox]:
    with PostgresBox(data_mib=160, settings={"max_wal_size": "32MB", "min_wal_size": "32MB"}) as running:
        yield running


@dataclass
class Client:
    """A bridge's ledger, and what it was told."""

    ledger: SqlLedger
    schema: str = ""
    told: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def grant(self, *, size: int = 1, during: Callable[[], object] | None = None) -> None:
        """Grant one batch; its workloads count as told when the call returned."""
        wanted = [workload(f"{uuid.uuid4().hex}") for _ in range(size)]
        with self.ledger.batch():
            for one in wanted:
                self.ledger.reserve(one, HELD, at_ms=T0)
            if during is not None:
                during()
        self.told.update(one.id for one in wanted)

    def keep_granting(self, until: Callable[[], bool]) -> list[str]:
        """Grant until a condition holds; return each different thing that was said meanwhile."""
        said: list[str] = []
        deadline = time.monotonic() + RECOVERY_S
        while not until():
            assert time.monotonic() < deadline, f"after {RECOVERY_S} s not yet; said {said[-3:]}"
            try:
                self.grant()
            except (UnknownStateError, OutcomeUnknownError) as error:
                if str(error) not in said:
                    said.append(str(error))
                time.sleep(0.2)
        return said

    def recovered(self) -> None:
        """Check that a write works again, on the ledger as it is, and that all that was told is there."""
        before = len(self.told)
        self.keep_granting(lambda: len(self.told) > before)
        recorded = {grant.workload for grant in self.ledger.grants()}
        assert self.told <= recorded, f"granted without a record: {self.told - recorded}"
        assert self.ledger.verify() == ()


@pytest.fixture
def client(box: PostgresBox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("SBRIDGE_LEDGER_LOCK_TIMEOUT_MS", "2000")
    schema = f"faults_{uuid.uuid4().hex[:12]}"
    with closing(journal.open_ledger(box.url(schema), FakeClock(T0))) as ledger:
        ledger.open_epoch(1, "one")
        running = Client(ledger, schema)
        running.grant(size=3)
        yield running
        running.recovered()


def test_a_session_that_is_ended_between_two_calls_is_not_noticed(box: PostgresBox, client: Client) -> None:
    assert box.terminate() >= 1
    client.grant()
    assert box.terminate() >= 1
    assert len(client.ledger.grants()) == 4


def test_a_session_that_is_ended_inside_a_batch_costs_nothing(box: PostgresBox, client: Client) -> None:
    """The draft is written again on another connection, because its base is still the newest entry."""
    client.grant(size=5, during=box.terminate)
    assert len(client.ledger.grants()) == 8


def test_a_session_that_is_ended_before_the_commit_costs_nothing(box: PostgresBox) -> None:
    sites: list[str] = []

    def hook(site: str) -> None:
        sites.append(site)
        if site == "ledger.batch.before-commit":
            box.terminate()

    with closing(journal.open_ledger(box.url(f"hook_{uuid.uuid4().hex[:12]}"), FakeClock(T0), hook)) as ledger:
        ledger.open_epoch(1, "one")
        client = Client(ledger)
        client.grant(size=5)
        assert sites[-2:] == ["ledger.batch.before-commit", "ledger.batch.after-commit"]
        client.recovered()


def test_a_commit_whose_answer_is_lost_is_found_by_looking(box: PostgresBox) -> None:
    with LossyProxy(box.address) as proxy:

        def hook(site: str) -> None:
            if site == "ledger.batch.before-commit":
                proxy.lose.set()

        url = box.url(f"lost_{uuid.uuid4().hex[:12]}", address=proxy.address)
        with closing(journal.open_ledger(url, FakeClock(T0), hook)) as ledger:
            ledger.open_epoch(1, "one")
            client = Client(ledger)
            client.grant(size=5)
            assert (proxy.lost, ledger.last_seq()) == (1, 6)  # once, not twice
            client.recovered()


def test_a_commit_that_cannot_be_looked_at_is_unknown_and_repeating_it_is_safe(box: PostgresBox) -> None:
    with LossyProxy(box.address) as proxy:

        def hook(site: str) -> None:
            if site == "ledger.reserve.before-commit":
                proxy.down.set()
                proxy.lose.set()

        url = box.url(f"unknown_{uuid.uuid4().hex[:12]}", address=proxy.address)
        with closing(journal.open_ledger(url, FakeClock(T0), hook)) as ledger:
            ledger.open_epoch(1, "one")
            with pytest.raises(OutcomeUnknownError, match="whether it was written cannot be seen until the database"):
                ledger.reserve(workload(), HELD, at_ms=T0)
            with pytest.raises(UnknownStateError, match="the connection to the database is lost or refused"):
                ledger.grants()
            proxy.down.clear()
            assert ledger.reserve(workload(), HELD, at_ms=T0 + 9).reserved_ms == T0  # the first one's
            assert (ledger.last_seq(), ledger.verify()) == (2, ())


def test_a_server_that_dies_and_comes_back(box: PostgresBox, client: Client) -> None:
    before = len(client.told)
    box.crash()
    said = client.keep_granting(lambda: len(client.told) > before + 3)
    assert all("connection to the database is lost or refused" in sentence for sentence in said), said


def test_a_lock_that_somebody_holds_for_long(box: PostgresBox, client: Client) -> None:
    """Each write gives up within its bound and says why; reading goes on; afterwards all is well."""
    released = threading.Event()

    def hold(locked: threading.Event) -> None:
        with box.connect() as connection, connection.transaction():
            connection.execute("SELECT set_config('search_path', %s, true)", [client.schema])
            connection.execute("SELECT * FROM meta FOR UPDATE")
            locked.set()
            time.sleep(LOCK_S)  # the fault itself: the lock is held this long
        released.set()

    locked = threading.Event()
    holder = threading.Thread(target=hold, args=(locked,))
    holder.start()
    assert locked.wait(10)
    before, refused = len(client.told), 0
    while not released.is_set():
        began = time.monotonic()
        try:
            client.grant()
        except UnknownStateError as error:
            refused += 1
            assert "another session has held the ledger's write lock for 2 s (lock_timeout)" in str(error)  # noqa: PT017
            assert time.monotonic() - began < 10
            assert len(client.ledger.grants()) == before
    holder.join(10)
    assert refused >= 3
    client.grant()


def test_a_full_disk(box: PostgresBox, client: Client) -> None:
    """Writes fail with a sentence and leave nothing half; when there is room again they go on."""
    box.run("sh", "-c", f"cat /dev/zero > {DATA}/fill 2>/dev/null; test -s {DATA}/fill")
    said: list[str] = []
    deadline = time.monotonic() + RECOVERY_S
    while not said:
        assert time.monotonic() < deadline, "the disk is full and nothing failed"
        try:
            client.grant(size=500)
        except BridgeError as error:
            assert isinstance(error, UnknownStateError | OutcomeUnknownError)  # noqa: PT017
            said.append(str(error))
    assert "disk is full or failing" in said[0] or "connection to the database is lost or refused" in said[0], said
    box.run("rm", f"{DATA}/fill")


def test_a_leader_that_froze_inside_a_pipeline_is_not_waited_for(box: PostgresBox) -> None:
    """Such a session is not idle to the server, so no timeout ends it: who takes over does."""
    name = "frozen_" + uuid.uuid4().hex[:8]
    url = box.url(name)
    with closing(journal.open_ledger(url, FakeClock(T0))) as ledger, box.connect() as frozen:
        frozen.execute("SET application_name = 'slurm-bridge'")
        frozen.execute("SELECT set_config('search_path', %s, false)", [name])
        frozen.autocommit = False
        with pytest.raises(psycopg.OperationalError), frozen.pipeline():  # noqa: PT012  # it is frozen inside
            assert frozen.execute("SELECT value FROM meta FOR UPDATE").fetchone() is not None
            began = time.monotonic()
            ledger.open_epoch(2, "two")
            assert time.monotonic() - began < 8
            frozen.execute("SELECT 1").fetchone()
        assert ledger.newest_epoch() == 2


def test_a_session_that_is_no_bridges_is_never_ended(box: PostgresBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBRIDGE_LEDGER_LOCK_TIMEOUT_MS", "2000")
    name = "others_" + uuid.uuid4().hex[:8]
    with closing(journal.open_ledger(box.url(name), FakeClock(T0))) as ledger, box.connect() as other:
        other.execute("SELECT set_config('search_path', %s, false)", [name])
        with other.transaction():
            other.execute("SELECT value FROM meta FOR UPDATE")
            with pytest.raises(UnknownStateError, match="another session has held the ledger's write lock"):
                ledger.open_epoch(2, "two")
            assert other.execute("SELECT 1").fetchone() == (1,)
        ledger.open_epoch(2, "two")
