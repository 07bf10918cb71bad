"""Q10: victims only from borrowers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.admission.model import Policy
from bridge.quota.model import TeamName
from bridge.workloads.model import System
from bridge.workloads.reasons import Reason
from tests.property.oracle_platform import Platform, Shape, eights, flat, in_memory

CROWD = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(list(System)), st.sampled_from([1, 2, 4, 8])),
    min_size=4,
    max_size=16,
)


@settings(max_examples=settings().max_examples // 2, deadline=None)
@given(CROWD, CROWD)
def test_no_team_within_its_guarantee_loses_anything(
    first: list[tuple[str, System, int]], then: list[tuple[str, System, int]]
) -> None:
    """Q10: a crowd that borrows what it can, then another crowd; d has no guarantee and weight 0."""
    specs = flat({"a": 8, "b": 4, "c": 4, "d": 0}, weights={"c": 0, "d": 0})
    guarantee = {"a": 8, "b": 4, "c": 4, "d": 0}
    platform = Platform(1, in_memory(), specs=specs, nodes=eights(2), policy=Policy())
    for crowd in (first, then):
        for team, system, gpus in crowd:
            platform.ask(team, gpus, system=system)
        for _ in range(6):
            before = platform.held()
            told = platform.pass_and_record_all()
            lost: dict[TeamName, list[int]] = {}
            for mark in told.preemptions:
                for victim in mark.victims:
                    lost.setdefault(victim.team, []).append(victim.gpus)
                    assert before[victim.team] > guarantee[victim.team], f"{victim.team} borrows nothing"
            for loser, sizes in lost.items():  # but for one indivisible gang it stays at its guarantee or above
                assert before[loser] - (sum(sizes) - max(sizes)) > guarantee[loser]
            for mark in platform.marks().values():
                for victim in mark.victims:
                    platform.end(victim.workload, again=True)


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(st.integers(0, 2**32))
def test_each_victim_is_legal_at_the_level_where_the_paths_part(seed: int) -> None:
    """Q10, in deep trees: oracle_reclaim judges each preemption of a crowded platform on plain lists."""
    shape = Shape(teams=7, nodes=3, endless=0, preempts=1, history=False)
    platform = Platform(seed, in_memory(), shape)
    for _ in range(12):
        platform.submit()
    for _ in range(8):
        platform.pass_and_record_all()
        platform.now_ms += 360_000
        platform.submit(priority=3)
        for victim in [v for mark in platform.marks().values() for v in mark.victims]:
            if victim.workload in platform.running():
                platform.end(victim.workload, again=True)


@given(st.integers(1, 8), st.sampled_from(list(System)))
def test_work_that_cannot_be_preempted_never_borrows(gpus: int, system: System) -> None:
    """Q10: else what is lent to it could never be taken back."""
    platform = Platform(1, in_memory(), specs=flat({"a": 8, "b": 4}), nodes=eights(2))
    w = platform.ask("b", gpus, system=system, preemptible=False)
    told = platform.decide()
    assert (w.id in {placed.workload.id for placed in told.admitted}) == (gpus <= 4)
    other = platform.ask("b", 2, system=system, preemptible=False)
    told = platform.pass_and_record_all()
    if gpus <= 4 and gpus + 2 > 4:
        assert told.waiting[other.id].reason is Reason.GUARANTEE_ONLY
