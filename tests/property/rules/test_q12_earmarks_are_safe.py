"""Q12: earmarks are safe: what victims free is for the one that reclaimed it, and for nobody else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.model import Policy
from bridge.quota.model import TeamName
from bridge.workloads.model import System
from tests.property.oracle_platform import Platform, eights, flat, in_memory

SYSTEMS = st.sampled_from(list(System))
THIEVES = st.lists(
    st.tuples(st.sampled_from("abc"), SYSTEMS, st.sampled_from([1, 2, 4, 8]), st.integers(0, 3)), max_size=8
)


def reclaiming(owner: System, borrower: System) -> Platform:
    """Let b and c borrow everything, and a ask for its 8 back."""
    platform = Platform(1, in_memory(), specs=flat({"a": 8, "b": 4, "c": 4}), nodes=eights(2), policy=Policy())
    for team in ("b", "b", "c", "c"):
        platform.ask(team, 4, system=borrower)
    platform.pass_and_record_all()
    platform.ask("a", 8, system=owner)
    assert len(platform.pass_and_record_all().preemptions) == 1
    return platform


@settings(max_examples=settings().max_examples // 2, deadline=None)
@given(SYSTEMS, SYSTEMS, THIEVES, st.booleans())
def test_nobody_else_starts_on_what_dying_victims_free_one_by_one(
    owner: System, borrower: System, thieves: list[tuple[str, System, int, int]], crash: bool
) -> None:
    """Q12: victims die slowly; in between all sorts of work asks, also of the owner's own team, and the bridge dies."""
    platform = reclaiming(owner, borrower)
    (name, mark), *_ = platform.marks().items()
    for index, victim in enumerate(mark.victims):
        for team, system, gpus, _ in thieves[index::2]:
            platform.ask(team, gpus, system=system)
        platform.end(victim.workload, again=True)
        if crash:
            platform.restart()
        told = platform.pass_and_record_all()
        for placed in told.admitted:
            taken = {node: gpus for node, gpus in placed.placement.items() if node in mark.placement}
            assert placed.workload.id == name or not taken, f"{placed.workload.id} took {taken}"
    assert name in platform.running()
    assert platform.held()[TeamName("a")] == 8
    assert not platform.marks()


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(SYSTEMS, SYSTEMS, st.integers(1, 8))
def test_an_earmark_counts_against_quota_from_the_moment_it_is_recorded(
    owner: System, borrower: System, gpus: int
) -> None:
    """Q12: a may not use its guarantee a second time while the first is on its way."""
    platform = reclaiming(owner, borrower)
    again = platform.ask("a", gpus, system=owner)
    told = platform.pass_and_record_all()
    assert again.id not in {placed.workload.id for placed in told.admitted}
    assert told.preemptions == ()


def test_an_earmark_that_lapsed_binds_nobody() -> None:
    """Q12: bounded: when victims do not end in time, the nodes that are free go to others again."""
    platform = reclaiming(System.SLURM, System.SLURM)
    (name, mark), *_ = platform.marks().items()
    platform.end(mark.victims[0].workload, again=False)
    small = platform.ask("c", 4)
    platform.pass_and_record_all()
    assert small.id not in platform.running()
    platform.now_ms = mark.lapses_ms
    told = platform.decide()
    assert name in told.waiting
    assert all(new.workload != name for new in told.preemptions), "it lapsed, but is not settled yet"


def test_an_earmark_of_one_who_is_gone_is_free_for_others() -> None:
    """Q12: the owner withdraws; what was freed for it is free."""
    platform = reclaiming(System.SLURM, System.SLURM)
    (name, mark), *_ = platform.marks().items()
    for victim in mark.victims:
        platform.end(victim.workload, again=False)
    platform.withdraw_this(name)
    small = platform.ask("c", 4)
    platform.pass_and_record_all()
    assert small.id in platform.running()
