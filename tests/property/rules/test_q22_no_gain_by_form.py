"""Q22: splitting, merging, requeueing or flooding does not raise a team's share over a window by more than one gang."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.model import Policy
from bridge.ledger.decay import decayed
from bridge.ledger.port import Held
from bridge.quota.model import Quota, TeamName, TeamSpec
from bridge.workloads.model import System, WorkloadId
from tests.property.oracle_platform import FLAVORS, MINUTE_MS, Platform, eights, flat, in_memory

WINDOW_MIN = 120
STEP_MIN = 5
LENGTH_MIN = 10
FLEET = 32
HALF_LIFE_MS = 60 * MINUTE_MS


@dataclass(frozen=True)
class Habit:
    """How a team asks for the same work: pieces of so many devices, as many at once in the queue, requeued or not."""

    gpus: int = 4
    queue: int = 8
    requeues: bool = False


def share(ours: Habit, theirs: Habit, weights: dict[str, int]) -> float:
    """Return the share of the GPU time that `us` gets in a window where both always want more than there is."""
    specs = flat({"us": 0, "them": 0, "idle": FLEET}, weights=weights)
    waits = Policy(preempts=False)
    platform = Platform(1, in_memory(), specs=specs, nodes=eights(FLEET // 8), policy=waits, compares=False)
    habits, spans = {"us": ours, "them": theirs}, dict[WorkloadId, tuple[str, int, int]]()
    done: list[Held] = []
    for minute in range(0, WINDOW_MIN, STEP_MIN):
        platform.now_ms += STEP_MIN * MINUTE_MS
        for team, habit in habits.items():
            _ask(platform, team, habit)
        ended = [name for name, (_, _, since) in spans.items() if platform.now_ms - since >= LENGTH_MIN * MINUTE_MS]
        for name in ended:
            team, gpus, since = spans.pop(name)
            done.append(Held(TeamName(team), System.SLURM, FLAVORS[0], gpus, since, platform.now_ms))
            platform.end(name, again=habits[team].requeues and minute % 2 == 0)
        still = [Held(TeamName(t), System.SLURM, FLAVORS[0], g, since, None) for t, g, since in spans.values()]
        platform.history = dict(decayed([*done, *still], platform.now_ms, HALF_LIFE_MS))
        platform.desk.remember(platform.history)
        for placed in platform.pass_and_record_all().admitted:
            spans[placed.workload.id] = (placed.workload.team, placed.workload.gpus, platform.now_ms)
    done += [Held(TeamName(t), System.SLURM, FLAVORS[0], g, since, platform.now_ms) for t, g, since in spans.values()]
    held = {team: sum(s.gpus * ((s.to_ms or 0) - s.from_ms) for s in done if s.team == team) for team in habits}
    return held["us"] / (WINDOW_MIN * MINUTE_MS)


def _ask(platform: Platform, team: str, habit: Habit) -> None:
    """Fill the team's queue up."""
    waiting = [w for w in platform.snapshot().waiting if w.team == team]
    for _ in range(habit.queue - len(waiting)):
        platform.ask(team, habit.gpus, time_limit_s=LENGTH_MIN * 60)


FORMS: dict[str, Callable[[Habit], Habit]] = {
    "split": lambda habit: Habit(1, habit.queue * habit.gpus, habit.requeues),
    "merged": lambda habit: Habit(8, habit.queue, habit.requeues),
    "flooded": lambda habit: Habit(habit.gpus, habit.queue * 4, habit.requeues),
    "requeued": lambda habit: Habit(habit.gpus, habit.queue, requeues=True),
}
LARGEST = 8


@settings(max_examples=max(6, settings().max_examples // 10), deadline=None)
@given(st.sampled_from(sorted(FORMS)), st.sampled_from([2, 4, 8]), st.sampled_from([(1, 1), (1, 3), (2, 1)]))
def test_another_form_of_the_same_demand_gains_at_most_one_gang(form: str, gpus: int, weights: tuple[int, int]) -> None:
    """Q22: two teams that both want everything for two hours; one of them changes how it asks.

    The gain is in devices held on average; one gang is the largest request of either side.
    """
    pair = dict(zip(("us", "them"), weights, strict=True))
    plain = Habit(gpus)
    before, after = share(plain, plain, pair), share(FORMS[form](plain), plain, pair)
    assert after - before <= LARGEST, f"{form}: {before:.1f} -> {after:.1f} of {FLEET} devices on average"
    fair = FLEET * weights[0] / sum(weights)
    assert abs(before - fair) <= LARGEST, f"{before:.1f}, fair is {fair:.1f}"


def test_who_borrowed_yesterday_comes_after_who_did_not() -> None:
    """Q22: history counts; a burst today after a quiet day is not a loss against one who took everything then."""
    platform = Platform(1, in_memory(), specs=flat({"us": 0, "them": 0, "idle": 8}), nodes=eights(1))
    platform.history = {(TeamName("us"), FLAVORS[0]): 6.0}
    platform.desk.remember(platform.history)
    platform.ask("us", 8, submitted_ms=platform.now_ms - 10)
    theirs = platform.ask("them", 8)
    assert [placed.workload.id for placed in platform.decide().admitted] == [theirs.id]


def test_above_the_team_what_is_held_is_compared_and_not_what_is_asked() -> None:
    """Q22: below a common parent, who cuts a gang into pieces does not come first for it: the older one does."""
    idle = flat({"idle": 16})
    nothing = {FLAVORS[0]: Quota(0)}
    specs = [*idle, *(TeamSpec(TeamName(name), idle[0].name, 1, nothing) for name in ("left", "right"))]
    specs += [TeamSpec(TeamName(f"{name}-child"), TeamName(name), 1, nothing) for name in ("left", "right")]
    platform = Platform(1, in_memory(), specs=specs, nodes=eights(2))
    platform.history = {(TeamName("right-child"), FLAVORS[0]): 1.0}
    platform.desk.remember(platform.history)
    gang = platform.ask("left-child", 8, nodes=2)
    piece = platform.ask("right-child", 1)
    assert [placed.workload.id for placed in platform.decide().admitted] == [gang.id]
    assert piece.id in platform.asked
