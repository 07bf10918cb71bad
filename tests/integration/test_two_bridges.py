"""Two bridges on one PostgreSQL: the leader is killed or stopped again and again under load (N8, rules 3 and 4).

Of four rounds, one kills the leader at any moment, one stops it (SIGSTOP) and lets it go on as a stale leader once
the other leads, and two do the same while it waits for the right to write: what it was about to record is then sent
by a leader whose term is over. `make test-takeovers` runs 50 rounds; by default there are 8.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest

from tests.integration import outcome
from tests.integration.twobridges import BRIDGES, LEASE_S, RENEW_S, Term, TwoBridges

ROUNDS: Final = int(os.environ.get("TAKEOVERS", "8"))
SEED: Final = 4
FEED_S: Final = 2.0
TASKS: Final = 4
SCRIPT: Final = "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID >> /home/alice/{name}.runs\nsleep 1\n"
ANSWER_S: Final = 1.5
"""What the API server, the database and a busy machine may take on top, from the signal to the recorded term."""
TAKEOVER_S: Final = LEASE_S + RENEW_S + ANSWER_S
"""A waiter sees the last renewal at most one period late, and looks again just when it runs out."""


@dataclass(slots=True)
class Load:
    """Small jobs of alice, a few every two seconds, from its own thread."""

    box: TwoBridges
    names: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Submit until told to stop."""
        while not self._over.wait(FEED_S):
            name = f"load-{len(self.names)}"
            done = self.box.slurm.sbatch(
                "alice", "--account=vision", "--output=/dev/null", "--gres=gpu:1", f"--array=0-{TASKS - 1}",
                script=SCRIPT.format(name=name),
            )  # fmt: skip
            if done.returncode:
                self.trouble.append(done.stderr)
                return
            self.names.append(name)

    def stop(self) -> None:
        """Submit no more."""
        self._over.set()


@dataclass(slots=True)
class Tally:
    """What the rounds showed."""

    taken_s: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)  # how stale leaders found out


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBridges]:
    with TwoBridges(tmp_path_factory.mktemp("two-bridges")) as running:
        yield running


@pytest.mark.timeout(240 + 40 * ROUNDS)
def test_leaders_are_killed_and_stopped_and_nothing_is_lost_or_done_twice(box: TwoBridges) -> None:
    load, tally, chance = Load(box), Tally(), random.Random(SEED)
    feeder = threading.Thread(target=load.run, name="load")
    feeder.start()
    try:
        for number in range(ROUNDS):
            leader = working_leader(box)
            box.wait("the other bridge is up", partial(box.alive, other(leader.holder)))
            time.sleep(chance.uniform(0, 0.5))  # any moment of a cycle, not a wait for something
            take_over(box, leader, tally, stops=bool(number % 2), at_write=number % 4 >= 2)
            assert not load.trouble, load.trouble
    finally:
        load.stop()
        feeder.join(60)
    box.wait("all work has ended", box.calm, 180)
    check(box, load)
    slowest = max(tally.taken_s)
    print(f"{ROUNDS} takeovers, median {sorted(tally.taken_s)[ROUNDS // 2]:.2f} s, slowest {slowest:.2f} s; "  # noqa: T201
          f"stale leaders: {dict(tally.ends)}; {len(load.names) * TASKS} jobs")  # fmt: skip
    assert slowest <= TAKEOVER_S


def working_leader(box: TwoBridges) -> Term:
    """Wait until the newest leader has granted something; return its term."""
    leader = box.terms()[-1]
    box.wait(
        f"{leader} grants", lambda: any(e.step == "reserve" and e.epoch == leader.epoch for e in box.all_entries())
    )
    return leader


def take_over(box: TwoBridges, leader: Term, tally: Tally, *, stops: bool, at_write: bool) -> None:
    """Take the leader out, see the other one lead, and bring the former back as the waiting one."""
    name = leader.holder
    if at_write:
        with box.write_lock():
            box.wait("the leader waits to write", box.writers_waiting)
            began_s = hit(box, name, stops=stops)
    else:
        began_s = hit(box, name, stops=stops)
    found = box.wait(f"{other(name)} leads", lambda: [t for t in box.terms() if t.epoch > leader.epoch])
    assert [term.holder for term in found] == [other(name)]
    tally.taken_s.append(found[0].at_ms / 1000 - began_s)
    if stops:
        said = len(box.said(name))
        box.signal(name, "CONT")
        box.wait(f"the stale {name} ends", lambda: box.exit_code(name) is not None, 60)
        assert box.exit_code(name) == 1, box.said(name)[said:]
        tally.ends["fenced" if "cycle.fenced" in box.said(name)[said:] else "saw its lease lost"] += 1
    box.start_one(name)


def hit(box: TwoBridges, name: str, *, stops: bool) -> float:
    """Kill the leader or stop it; return when (before, so that what is measured from it is never too short)."""
    began_s = time.time()
    if stops:
        box.signal(name, "STOP")
    else:
        box.kill_one(name)
    return began_s


def check(box: TwoBridges, load: Load) -> None:
    """Each job ran once and was charged once; no epoch went back; the ledger verifies."""
    ran = {name: Counter(box.runs(name)) for name in load.names}
    assert ran == {name: Counter(str(task) for task in range(TASKS)) for name in load.names}
    entries = box.all_entries()
    epochs = [entry.epoch for entry in entries]
    assert epochs == sorted(epochs)
    assert [entry.epoch for entry in entries if entry.step == "epoch"] == sorted({*epochs} - {0})
    for step in ("run", "release"):
        counts = Counter(entry.workload for entry in entries if entry.step == step)
        assert sorted(counts.values()) == [1] * (len(load.names) * TASKS)
    outcome.check_nothing_adopted(entries)
    with box.ledger() as ledger:
        assert not ledger.verify()


def other(bridge: str) -> str:
    """Return the other one's name."""
    return next(name for name in BRIDGES if name != bridge)
