"""The parts of a cluster that are not manifests: names, keys, people, and the follower in a mirror pod."""

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cluster import follower, keys, names, users
from bridge.crd import parse
from bridge.crd.team import Team
from bridge.errors import InvalidInputError

LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


def team(name: str, *members: tuple[str, int, int]) -> Team:
    people = [{"user": user, "slurmUser": user, "uid": uid, "gid": gid} for user, uid, gid in members]
    return parse.team({"metadata": {"name": name}, "spec": {"members": people}})


# --- names ------------------------------------------------------------------------------------------------
def test_a_worker_is_called_after_its_set_and_its_node() -> None:
    assert names.worker("h100", "g1") == "h100-g1"


def test_two_nodes_with_one_short_name_give_two_workers() -> None:
    """N14: two FQDNs with one short name."""
    first, second = names.worker("h100", "g1.east.example.org"), names.worker("h100", "g1.west.example.org")
    assert first != second
    assert first.startswith("h100-g1-")


def test_a_set_and_a_node_that_spell_the_same_text_do_not_meet() -> None:
    assert names.worker("a-b", "c") != names.worker("a", "b-c")


@given(st.lists(st.tuples(LABEL, st.lists(LABEL, min_size=1, max_size=4).map(".".join)), unique=True, max_size=30))
def test_worker_names_are_labels_and_never_collide(pairs: list[tuple[str, str]]) -> None:
    """N14: names are hashed without collision and fit a DNS label."""
    made = {names.worker(nodeset, node) for nodeset, node in pairs}
    assert len(made) == len(pairs)
    for name in made:
        assert len(name) <= 63
        assert name[0].isalnum()
        assert name[-1].isalnum()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_a_node_name_that_is_no_label_is_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidInputError, match="64 characters"):
        names.node_label("n" * 64)


# --- keys -------------------------------------------------------------------------------------------------
def test_keys_come_back_from_their_secret_as_they_were_made() -> None:
    made = keys.make()
    assert (len(made.slurm), len(made.jwt)) == (1024, 32)
    assert made != keys.make()
    assert keys.read(keys.secret("slurm", "main", made)) == made


def test_a_secret_without_a_key_is_never_completed_by_guessing() -> None:
    secret = keys.secret("slurm", "main", keys.make())
    del secret["data"]["slurm.key"]
    with pytest.raises(InvalidInputError, match=r"slurm/slurm-keys has no slurm\.key"):
        keys.read(secret)


# --- people -----------------------------------------------------------------------------------------------
def test_members_become_passwd_and_group_lines_each_once() -> None:
    found = users.directory(
        [team("vision", ("alice", 2001, 2001)), team("nlp", ("bob", 2002, 3000), ("alice", 2001, 2001))]
    )
    assert found.passwd.splitlines() == [
        "alice:*:2001:2001:alice:/home/alice:/bin/bash",
        "bob:*:2002:3000:bob:/home/bob:/bin/bash",
    ]
    assert found.group == "alice:*:2001:\ng3000:*:3000:\n"
    assert found.problems == ()


def test_one_user_with_two_uids_keeps_the_first_teams_and_is_told() -> None:
    found = users.directory([team("vision", ("alice", 2001, 2001)), team("nlp", ("alice", 2009, 2009))])
    assert "alice:*:2009:" in found.passwd
    assert len(found.problems) == 1
    assert "member alice has uid 2001 gid 2001, but team nlp gives uid 2009" in found.problems[0]


def test_two_users_with_one_uid_are_told_and_only_one_gets_it() -> None:
    found = users.directory([team("nlp", ("alice", 2001, 2001), ("bob", 2001, 2001))])
    assert found.passwd.count(":2001:2001:") == 1
    assert found.problems == ("Team nlp: member bob has uid 2001, which is alice's; give each user a uid of his own",)


# --- follower ---------------------------------------------------------------------------------------------
class Followed:
    """A follower in a thread, with its output in a pipe."""

    def __init__(self, directory: Path) -> None:
        self.file, self.ended = directory / "out.log", directory / "ended"
        self.code: int | None = None
        self._read, write = os.pipe()
        self.text = b""
        self._thread = threading.Thread(target=self._follow, args=(write,), daemon=True)
        self._thread.start()
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    def _follow(self, write: int) -> None:
        self.code = follower.follow(str(self.file), str(self.ended), out=write)
        os.close(write)

    def _collect(self) -> None:
        while data := os.read(self._read, 4096):
            self.text += data

    def wait_for(self, text: bytes, within_s: float = 10) -> None:
        deadline = time.monotonic() + within_s
        while text not in self.text:
            assert time.monotonic() < deadline, (text, self.text)
            time.sleep(0.01)

    def finish(self) -> tuple[int | None, bytes]:
        for thread in (self._thread, self._reader):
            thread.join(10)
            assert not thread.is_alive()
        return self.code, self.text


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Followed:
    monkeypatch.setattr(follower, "POLL_S", 0.01)
    monkeypatch.setattr(follower, "QUIET_S", 0.1)
    return Followed(tmp_path)


def test_output_is_followed_from_a_file_that_appears_late_to_its_last_byte(followed: Followed) -> None:
    """J10: follow works, and the end comes after the last line."""
    followed.file.write_text("one\n")
    followed.wait_for(b"one\n")
    with followed.file.open("a") as file:
        file.write("two\n")
    followed.wait_for(b"two\n")
    with followed.file.open("a") as file:
        file.write("last, without newline")
    followed.ended.write_text("7")
    assert followed.finish() == (7, b"one\ntwo\nlast, without newline")


def test_an_empty_annotation_means_the_job_goes_on(followed: Followed) -> None:
    followed.ended.write_text("")
    followed.file.write_text("x" * 200_000)
    followed.wait_for(b"x" * 200_000)
    assert followed.code is None
    followed.ended.write_text("0")
    assert followed.finish()[0] == 0


def test_a_requeued_jobs_output_is_printed_anew(followed: Followed) -> None:
    followed.file.write_text("first attempt\n")
    followed.wait_for(b"first attempt\n")
    followed.file.write_text("again\n")
    followed.wait_for(b"again\n")
    followed.ended.write_text("0")
    code, text = followed.finish()
    assert code == 0
    assert text == b"first attempt\n(the output begins anew: the job was started again)\nagain\n"


def test_a_job_without_output_ends_with_its_code_and_a_sentence(followed: Followed) -> None:
    followed.ended.write_text("3")
    code, text = followed.finish()
    assert code == 3
    assert b"ended without output" in text
