"""The quota tree by example: validation in clear sentences, borrowing, limits, lend limits, lowered quotas."""

import pytest

from bridge.errors import InvalidInputError
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Balances, Bound, Tree, problems

H100 = FlavorName("h100")
ROOT, VISION, NLP, ROBOTS = TeamName("root"), TeamName("vision"), TeamName("nlp"), TeamName("robots")


def team(name: TeamName, quota: Quota | None, parent: TeamName | None = ROOT, weight: int = 1) -> TeamSpec:
    return TeamSpec(name, parent, weight, {} if quota is None else {H100: quota})


def small(vision: Quota | None = None, nlp: Quota | None = None, root: Quota | None = None) -> list[TeamSpec]:
    """Sixteen GPUs: vision 8, nlp 4, four shared."""
    return [
        team(ROOT, root or Quota(16), parent=None),
        team(VISION, vision or Quota(8)),
        team(NLP, nlp or Quota(4)),
    ]


def balances(specs: list[TeamSpec], **used: int) -> Balances:
    return Balances(Tree.build(specs), {(TeamName(name), H100): gpus for name, gpus in used.items()})


def test_a_team_borrows_all_that_is_idle_up_to_its_limit() -> None:
    assert balances(small()).available(VISION, H100) == 16
    assert balances(small(vision=Quota(8, limit=12))).available(VISION, H100) == 12
    assert balances(small(), nlp=6).available(VISION, H100) == 10


def test_what_is_not_lent_stays_with_its_team() -> None:
    specs = small(nlp=Quota(4, lend_limit=1))
    assert balances(specs).available(VISION, H100) == 13
    assert balances(specs, vision=13).available(NLP, H100) == 3


def test_a_limit_of_an_ancestor_binds_and_is_named() -> None:
    held = balances(small(root=Quota(16, limit=16)), vision=10, nlp=4)
    binding = held.binding(VISION, H100, 3)
    assert binding is not None
    assert (binding.node, binding.kind, binding.held, binding.bound, binding.room) == (ROOT, Bound.LIMIT, 14, 16, 2)
    assert held.binding(VISION, H100, 2) is None


def test_the_shared_pool_binds_where_no_limit_does() -> None:
    binding = balances(small(), vision=10, nlp=5).binding(NLP, H100, 2)
    assert binding is not None
    assert (binding.node, binding.kind, binding.held, binding.bound, binding.room) == (ROOT, Bound.POOL, 15, 16, 1)


def test_a_team_that_borrowed_holds_back_an_owner_until_it_gives_back() -> None:
    held = balances(small(), vision=16)
    assert held.available(NLP, H100) == 0
    assert held.within(NLP, H100, 4)
    assert held.borrowed(VISION, H100) == 8
    held.refund(VISION, H100, 4)
    assert held.available(NLP, H100) == 4


def test_a_lowered_quota_leaves_a_negative_room_and_is_worked_off() -> None:
    """Rule 15."""
    held = balances(small(vision=Quota(4, limit=4)), vision=12)
    assert held.available(VISION, H100) == -8
    held.refund(VISION, H100, 9)
    assert held.available(VISION, H100) == 1


def test_guarantee_of_zero_opens_a_flavor_and_a_missing_one_does_not() -> None:
    specs = [*small(), team(ROBOTS, Quota(0)), team(TeamName("guests"), None)]
    held = balances(specs)
    assert held.available(ROBOTS, H100) == 16
    assert not held.within(ROBOTS, H100, 1)
    assert held.available(TeamName("guests"), H100) == 0
    assert not held.tree.opens(TeamName("guests"), H100)
    assert held.available(VISION, FlavorName("a100")) == 0


def test_an_ancestor_that_does_not_list_a_flavor_is_transparent() -> None:
    specs = [
        team(ROOT, Quota(10), parent=None),
        team(NLP, None),
        team(VISION, Quota(3), parent=NLP),
        team(ROBOTS, Quota(2), parent=NLP),
    ]
    held = balances(specs)
    assert held.tree.share(NLP, H100).guarantee == 5
    assert held.available(VISION, H100) == 10


def test_the_ceiling_is_what_a_team_could_hold_were_everyone_idle() -> None:
    held = balances(small(vision=Quota(8, limit=12), nlp=Quota(4, lend_limit=0)), vision=12, nlp=4)
    assert held.ceiling(VISION, H100) == 12
    assert held.ceiling(NLP, H100) == 16


def test_own_work_of_a_parent_is_within_only_what_its_children_were_not_promised() -> None:
    held = balances(small())
    assert held.within(ROOT, H100, 4)
    assert not held.within(ROOT, H100, 5)
    assert held.available(ROOT, H100) == 16


def test_use_of_a_team_that_is_gone_is_kept_apart_and_stops_nobody() -> None:
    held = balances(small(), former=5, vision=1)
    assert held.strays == {(TeamName("former"), H100): 5}
    assert held.available(VISION, H100) == 15


def test_two_roots_share_nothing() -> None:
    held = balances([team(VISION, Quota(4), parent=None), team(NLP, Quota(8), parent=None)])
    assert held.available(VISION, H100) == 4


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        (
            [team(VISION, Quota(1), parent=TeamName("resaerch"))],
            'team "vision": parent "resaerch" does not exist; create that team or change parent',
        ),
        (
            [team(VISION, None, parent=NLP), team(NLP, None, parent=VISION)],
            "teams nlp -> vision -> nlp are each other's parents; give one of them no parent",
        ),
        (
            [team(VISION, None, parent=VISION)],
            "teams vision -> vision are each other's parents; give one of them no parent",
        ),
        (
            [team(VISION, None, parent=None), team(VISION, None, parent=None)],
            'team "vision" is defined 2 times; keep one of them',
        ),
        (
            small(root=Quota(8)),
            (
                'team "root": quotas[h100].guarantee is 8, its children\'s sum to 12 (nlp 4, vision 8); '
                "raise it to 12 or lower theirs"
            ),
        ),
        (
            small(vision=Quota(8, limit=6)),
            (
                'team "vision": quotas[h100].limit is 6, below its guarantee 8; raise the limit, lower the guarantee '
                "or leave the limit out"
            ),
        ),
        (
            [team(VISION, Quota(-1), parent=None)],
            'team "vision": quotas[h100].guarantee is -1; give 0 or more whole GPUs',
        ),
        (
            [team(VISION, Quota(1, lend_limit=-2), parent=None)],
            'team "vision": quotas[h100].lendLimit is -2; give 0 or more, or leave it out to lend everything',
        ),
        ([team(VISION, None, parent=None, weight=-1)], 'team "vision": weight is -1; give 0 or more'),
        ([team(TeamName(""), None, parent=None)], "a team has an empty name; give it one"),
    ],
)
def test_each_fault_has_one_clear_sentence(specs: list[TeamSpec], sentence: str) -> None:
    assert problems(specs) == [sentence]
    with pytest.raises(InvalidInputError) as caught:
        Tree.build(specs)
    assert str(caught.value) == sentence


def test_every_fault_is_told_at_once() -> None:
    specs = [*small(root=Quota(8)), team(ROBOTS, Quota(-1), parent=TeamName("nobody"), weight=-3)]
    assert len(problems(specs)) == 4


def test_a_promise_is_also_checked_across_an_ancestor_that_lists_nothing() -> None:
    specs = [team(ROOT, Quota(4), parent=None), team(NLP, None), team(VISION, Quota(5), parent=NLP)]
    assert len(problems(specs)) == 1


def test_a_broken_team_is_left_out_with_its_children_and_the_others_go_on() -> None:
    specs = [*small(nlp=Quota(-4)), team(ROBOTS, Quota(0), parent=NLP)]
    tree, faults = Tree.build_lenient(specs)
    assert tree.teams == (ROOT, VISION)
    assert [fault.leaves_out for fault in faults] == [{NLP}, {ROBOTS}]
    assert 'its parent "nlp" is left out for a fault of its own' in faults[1].text


def test_promises_beyond_the_parent_leave_out_only_those_it_cannot_back() -> None:
    tree, faults = Tree.build_lenient(small(root=Quota(8)))
    assert tree.teams == (ROOT, NLP)
    assert len(faults) == 1
    assert problems([tree.spec(name) for name in tree.teams]) == []


def test_a_ring_leaves_out_its_members_and_who_hangs_below() -> None:
    ring = [team(NLP, None, parent=ROBOTS), team(ROBOTS, None, parent=NLP), team(TeamName("leaf"), None, parent=NLP)]
    tree, faults = Tree.build_lenient([team(ROOT, Quota(1), parent=None), *ring])
    assert tree.teams == (ROOT,)
    assert len(faults) == 2
