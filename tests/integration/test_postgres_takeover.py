"""Rule 3 with real processes: fifty leaders one after the other, each killed or frozen in the middle of its writes.

A frozen one is let go on when its successor leads: it must not write another entry. SBRIDGE_TEST_TAKEOVERS says how
often; 50 by default.
"""

import contextlib
import multiprocessing
import multiprocessing.context
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Self

import pytest

from bridge.clock import SystemClock
from bridge.ledger import journal
from tests.integration import ledger_leader
from tests.integration.ledger_leader import CAPACITY
from tests.postgresbox import PostgresBox

ROUNDS = int(os.environ.get("SBRIDGE_TEST_TAKEOVERS", "50"))
IDLE_MS = 1_000
"""After this long the server ends the transaction of a frozen leader."""

TAKEOVER_S = IDLE_MS / 1000 + 9.0
"""From the order to lead to the first commit: that, and what two shared cores take."""

START_S = 60.0


class Bridge:
    """One process that stands by, leads, and comes to a bad end."""

    def __init__(self, context: multiprocessing.context.ForkServerContext, url: str, name: str) -> None:
        self._ours, theirs = context.Pipe()
        settings = {"SBRIDGE_LEDGER_IDLE_TIMEOUT_MS": str(IDLE_MS)}
        self._process = context.Process(target=ledger_leader.serve, args=(url, name, theirs, settings), daemon=True)
        self._process.start()
        theirs.close()
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join(10)
        self._reader.join(10)
        self._ours.close()

    def lead(self, epoch: int) -> None:
        """Make it the leader."""
        self._ours.send(epoch)

    def wait(self, word: str, times: int, bound_s: float) -> float:
        """Wait until it has said a word so often; return how long that took, in seconds."""
        began = time.monotonic()
        with self._said:
            there = self._said.wait_for(lambda: self.count(word) >= times, bound_s)
        assert there, f"not {times} x {word!r} within {bound_s} s; said {self.lines[-5:]}"
        return time.monotonic() - began

    def count(self, word: str) -> int:
        """Return how often it has said a word."""
        return sum(line.startswith(word) for line in self.lines)

    def signal(self, number: int) -> None:
        """Send a signal to it."""
        os.kill(int(self._process.pid or 0), number)

    def told(self) -> set[str]:
        """Return the workloads that it was granted."""
        return {name for line in self.lines if line.startswith("told ") for name in line.split()[1:]}

    def exit_code(self, bound_s: float) -> int | None:
        """Wait for its end."""
        self._process.join(bound_s)
        return self._process.exitcode

    def _read(self) -> None:
        while True:
            try:
                line = self._ours.recv()
            except (EOFError, OSError):
                return
            with self._said:
                self.lines.append(line)
                self._said.notify_all()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with PostgresBox() as box:
        yield box.url()


@pytest.mark.timeout(900)
def test_no_stale_leader_writes_and_nothing_told_is_lost(url: str) -> None:
    """Q3, Q4: killed or frozen at any moment under load."""
    chance, takeovers, told, frozen = random.Random(4), [], set(), 0
    with contextlib.ExitStack() as stack:
        journal.open_ledger(url, SystemClock()).close()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.integration.ledger_leader"])
        bridges = [stack.enter_context(Bridge(context, url, f"b{number}")) for number in range(3)]
        leader: Bridge | None = None
        for epoch in range(1, ROUNDS + 2):
            following = bridges.pop(0)
            following.wait("ready", 1, START_S)
            bridges.append(stack.enter_context(Bridge(context, url, f"b{epoch + 3}")))
            freeze = leader is not None and chance.random() < 0.5
            if leader is not None:
                time.sleep(chance.random() * 0.05)  # anywhere in its cycle: that is the test
                leader.signal(signal.SIGSTOP if freeze else signal.SIGKILL)
            following.lead(epoch)
            takeovers.append(following.wait("told", 1, TAKEOVER_S))
            if leader is not None and freeze:
                leader.signal(signal.SIGCONT)
                assert leader.exit_code(20) == 3, leader.lines[-3:]
                frozen += 1
            if leader is not None:
                leader.__exit__()
                told |= leader.told()
            following.wait("told", 3, 20)
            leader = following
        assert leader is not None
        leader.__exit__()
        told |= leader.told()
    assert frozen > ROUNDS // 5
    check(url, told)
    takeovers.sort()
    print(f"{ROUNDS} takeovers, {frozen} of them from a frozen leader: {len(told)} grants told; "  # noqa: T201
          f"p50 {takeovers[len(takeovers) // 2]:.2f} s, max {takeovers[-1]:.2f} s")  # fmt: skip


def check(url: str, told: set[str]) -> None:
    """Every grant that was told is recorded, epochs never go back, never more than the capacity was held."""
    with closing(journal.open_ledger(url, SystemClock())) as ledger:
        assert ledger.verify() == ()
        assert told <= {grant.workload for grant in ledger.grants(holding=False)}
        held, epoch, after = 0, 0, 0
        while page := ledger.log(after_seq=after, limit=5000):
            for entry in page:
                assert entry.epoch >= epoch, f"entry {entry.seq} of epoch {entry.epoch} after epoch {epoch}"
                held, epoch, after = held + entry.gpus, entry.epoch, entry.seq
                assert 0 <= held <= CAPACITY, f"entry {entry.seq}: {held} devices held"
        assert epoch == ROUNDS + 1
    assert len(told) > ROUNDS * 5
