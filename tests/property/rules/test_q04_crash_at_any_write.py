"""Q4: crash at any write, rebuild equals."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.decisions import Decisions
from tests.property.oracle_platform import Platform, Shape, in_memory, on_disk

STEPS = 14


class CrashError(Exception):
    """The process died at a commit."""


class Deadly:
    """Counts commits, and dies at one of them."""

    def __init__(self, dies_at: int, when: str) -> None:
        self.left, self.when = dies_at, f"{when}-commit"

    def __call__(self, site: str) -> None:
        if site.endswith(self.when):
            self.left -= 1
            if self.left == 0:
                raise CrashError(site)


def told(decisions: Decisions) -> tuple[object, ...]:
    waiting = {name: decisions.waiting[name] for name in sorted(decisions.waiting)}
    return decisions.admitted, decisions.preemptions, decisions.next_ms, waiting


def live(platform: Platform, deadly: Deadly | None) -> None:
    """Live through the same steps; after a death the interrupted step's writes are sent again from the start."""
    for _ in range(STEPS):
        before = platform.rng.getstate(), dict(platform.asked), platform.now_ms, platform.made, dict(platform.nodes)
        specs, policy, history = platform.specs, platform.policy, dict(platform.history)
        try:
            platform.step()
        except CrashError:
            assert deadly is not None
            platform.rng.setstate(before[0])
            platform.asked, platform.now_ms, platform.made, platform.nodes = before[1:]
            platform.specs, platform.policy, platform.history = specs, policy, history
            platform.restart()
            platform.look_after_crash()


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.sampled_from(["before", "after"]))
def test_after_a_death_at_any_commit_the_ledger_verifies_and_a_new_bridge_decides_as_the_old_one(
    seed: int, dies_at: int, when: str
) -> None:
    """Q4: what is rebuilt from the ledger decides exactly as what never died, and nothing is lost or doubled."""
    deadly = Deadly(0, when)
    with on_disk(deadly) as make:
        platform = Platform(seed, make, Shape(teams=5, faults=False))
        deadly.left = dies_at
        live(platform, deadly)
        deadly.left = 0
        assert list(platform.ledger.verify()) == []
        kept = told(platform.decide())
        platform.restart()
        assert told(platform.decide()) == kept


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["before", "after"]))
def test_a_death_within_a_batch_leaves_all_of_it_or_nothing(seed: int, when: str) -> None:
    """Q4: what one pass decided is recorded whole or not at all, and then decided again."""
    with on_disk(deadly := Deadly(0, when)) as make:
        platform = Platform(seed, make, Shape(teams=5, preempts=0, faults=False))
        for _ in range(6):
            platform.submit()
        decided = platform.decide()
        deadly.left = 1
        died = False
        try:
            with platform.ledger.batch():
                platform.carry_out(decided)
        except CrashError:
            died = True
        assert died == bool(decided.admitted)
        deadly.left = 0
        platform.restart()
        granted = {grant.workload for grant in platform.ledger.grants()}
        wanted = {placed.workload.id for placed in decided.admitted}
        assert granted == (wanted if when == "after" else set())
        if when == "before":
            assert told(platform.decide()) == told(decided)
        assert list(platform.ledger.verify()) == []


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32))
def test_a_desk_that_lived_through_everything_decides_as_a_new_one(seed: int) -> None:
    """Q4: nothing that matters is kept in memory only."""
    platform = Platform(seed, in_memory())
    for _ in range(20):
        platform.step()
        kept = told(platform.decide())
        platform.desk = platform.fresh()
        assert told(platform.decide()) == kept
