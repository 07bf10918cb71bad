"""What a person types, what he may do, and how points in time are read."""

import pytest

from bridge.api import lookup, visibility, window
from bridge.api.identity import Identity, NotAllowedError
from bridge.api.views import QueueRow, State
from bridge.errors import InvalidInputError
from bridge.workloads.model import System
from tests.unit import platform_sample as sample

ROWS = sample.source().queue_rows


def found_id(ref: str, rows: list[QueueRow] = ROWS) -> str | None:
    found = lookup.find(ref, rows)
    assert not isinstance(found, lookup.Ambiguous)
    return found.id if found else None


@pytest.mark.parametrize(
    ("ref", "workload"),
    [
        (sample.OLD, sample.OLD),
        ("124_4", sample.SWEEP),
        ("131", sample.SWEEP),
        ("125", sample.FINETUNE),
        ("job/team-vision/finetune", sample.FINETUNE),
        ("team-vision/finetune", sample.FINETUNE),
        ("finetune", sample.FINETUNE),
        ("pod/team-vision/llm-server-7d9f8b6c5d-x2x9k", sample.SERVE),
        ("train-resnet", sample.TRAIN),  # the ended one of that name does not make it ambiguous
        ("124", None),
        ("job/team-nlp/finetune", None),
        ("", None),
    ],
)
def test_a_reference_finds_the_one_it_means(ref: str, workload: str | None) -> None:
    assert found_id(ref) == workload


def test_a_pod_and_a_job_of_one_name_are_told_apart_by_their_kind() -> None:
    twin = ROWS[3].model_copy(update={"id": "pod/x", "refs": ("pod/team-vision/finetune",), "where": ""})
    rows = [*ROWS, twin]
    assert isinstance(lookup.find("team-vision/finetune", rows), lookup.Ambiguous)
    assert found_id("pod/team-vision/finetune", rows) == "pod/x"


def test_a_jobid_that_was_used_again_means_the_living_job() -> None:
    stranger = ROWS[0].model_copy(update={"id": "slurm/main/before", "state": State.ENDED})
    assert found_id("123", [stranger, *ROWS]) == sample.TRAIN
    both_over = [stranger, stranger.model_copy(update={"id": "slurm/main/earlier"})]
    assert isinstance(lookup.find("123", both_over), lookup.Ambiguous)


def test_a_flood_of_candidates_is_cut_and_counted() -> None:
    rows = [ROWS[0].model_copy(update={"id": f"slurm/main/{n}"}) for n in range(50)]
    found = lookup.find("train-resnet", rows)
    assert isinstance(found, lookup.Ambiguous)
    assert (len(found.candidates), found.total) == (lookup.MAX_CANDIDATES, 50)


TRAIN, SERVE = ROWS[0], ROWS[2]


@pytest.mark.parametrize(
    ("identity", "row", "allowed"),
    [
        (sample.ALICE, TRAIN, True),
        (sample.BOB, TRAIN, False),
        (sample.ADMIN, TRAIN, True),
        (sample.ALICE, SERVE, False),  # a controller's pod
        (Identity("carol", slurm_user="carol", teams=frozenset({"vision"})), TRAIN, False),  # a team mate
        (Identity("alice", slurm_user="alice"), TRAIN, True),  # no longer a member, still the owner
        (Identity("alice", kubernetes_user="alice", teams=frozenset({"vision"})), TRAIN, False),  # a namesake
        (Identity("x", slurm_user="", teams=frozenset({"vision"})), TRAIN.model_copy(update={"user": ""}), False),
    ],
)
def test_only_owners_and_admins_cancel(identity: Identity, row: QueueRow, allowed: bool) -> None:
    if allowed:
        visibility.check_cancel(identity, row)
        return
    with pytest.raises(NotAllowedError):
        visibility.check_cancel(identity, row)


def test_an_owner_without_a_team_reads_why_his_own_work_was_refused() -> None:
    refused = TRAIN.model_copy(update={"team": "", "text": "account x is no team's"})
    nobody = Identity("alice", slurm_user="alice")
    assert visibility.rows(nobody, [refused, ROWS[1]]) == (refused, visibility.rows(nobody, [ROWS[1]])[0])
    assert visibility.own(nobody, [refused, ROWS[1]]) == (refused,)
    assert visibility.own(Identity("alice", kubernetes_user="alice"), [refused]) == ()


def test_a_pods_owner_is_a_kubernetes_user() -> None:
    row = SERVE.model_copy(update={"user": "alice@example.org"})
    assert row.system is System.KUBERNETES
    visibility.check_cancel(sample.ALICE, row)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("now", 1_000_000_000_000),
        ("90s", 999_999_910_000),
        ("24h", 999_913_600_000),
        ("1700000000000", 1_700_000_000_000),
        ("2026-12-01", 1_796_083_200_000),
        ("2026-12-01T00:00:00Z", 1_796_083_200_000),
        ("2026-12-01T01:00:00+01:00", 1_796_083_200_000),
    ],
)
def test_a_point_in_time_is_read_in_each_spelling(text: str, expected_ms: int) -> None:
    assert window.parse("from", text, now_ms=1_000_000_000_000) == expected_ms


@pytest.mark.parametrize("text", ["", "yesterday", "--5m", "5 m", "2026-13-01", "9" * 20])
def test_what_is_no_time_is_refused_with_the_field_the_value_and_the_way_out(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"from=.* is no time: write"):
        window.parse("from", text, now_ms=0)
