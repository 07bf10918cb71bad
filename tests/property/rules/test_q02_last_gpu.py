"""Q2: one winner of the last GPU."""

from hypothesis import given
from hypothesis import strategies as st

from bridge.workloads.model import System
from tests.property.oracle_platform import Platform, eights, flat, in_memory

TEAMS = st.sampled_from(["a", "b"])
SYSTEMS = st.sampled_from(list(System))


@given(st.lists(TEAMS, min_size=2, max_size=6), SYSTEMS, st.sampled_from([1, 2, 4]))
def test_the_last_devices_of_a_node_go_to_exactly_one(teams: list[str], system: System, gpus: int) -> None:
    """Q2: the node is filled up to the last devices; all who come then see them free, one gets them."""
    platform = Platform(0, in_memory(), specs=flat({"a": 8, "b": 0}), nodes=eights(1))
    platform.ask("a", 8 - gpus, system=system, priority=9)
    platform.pass_and_record_all()
    for team in teams:
        platform.ask(team, gpus, system=system)
    told = platform.decide()
    assert len(told.admitted) == 1
    platform.carry_out(told)
    assert platform.decide().admitted == ()
    assert platform.held()[told.admitted[0].workload.team] >= gpus
    assert sum(platform.held().values()) == 8


@given(st.lists(st.tuples(TEAMS, SYSTEMS), min_size=2, max_size=6), st.integers(1, 2))
def test_the_last_nodes_go_to_exactly_one_of_both_systems(askers: list[tuple[str, System]], nodes: int) -> None:
    """Q2: a job and a pod want the same free nodes at the same moment."""
    platform = Platform(0, in_memory(), specs=flat({"a": 64, "b": 64}), nodes=eights(nodes))
    for team, system in askers:
        platform.ask(team, 8, nodes=nodes, system=system)
    told = platform.decide()
    assert len(told.admitted) == 1
    platform.carry_out(told)
    assert platform.decide().admitted == ()


@given(st.lists(st.tuples(TEAMS, SYSTEMS), min_size=2, max_size=6))
def test_the_last_of_a_quota_goes_to_exactly_one_though_nodes_have_room(askers: list[tuple[str, System]]) -> None:
    """Q2: the same for quota, with a whole free node for each."""
    platform = Platform(0, in_memory(), specs=flat({"a": 4, "b": 4}), nodes=eights(len(askers)))
    for team, system in askers:
        platform.ask(team, 8, system=system)
    told = platform.decide()
    assert len(told.admitted) == 1
    platform.carry_out(told)
    assert platform.decide().admitted == ()
    assert sum(platform.held().values()) == 8
