"""Whose token it is: Slurm's own JWTs, Kubernetes tokens, and everything that is neither."""

import time

import jwt
import pytest

from bridge.api import directory, tokens
from bridge.api.identity import Identity, NotAuthenticatedError
from bridge.errors import UnknownStateError
from bridge.quota.model import TeamName
from bridge.workloads.tenants import Member, Tenant, Tenants

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
TENANTS = Tenants.of(
    [
        Tenant(TeamName("vision"), "vision", (Member("alice@example.org", "alice", 2001, 2001),)),
        Tenant(TeamName("nlp"), "nlp", (Member("bob@example.org", "bob", 2002, 2002),)),
        Tenant(TeamName("shared"), "shared", (Member("alice@example.org", "alice", 2001, 2001),)),
    ]
)


def slurm_token(key: bytes = KEY, algorithm: str = "HS256", **claims: object) -> str:
    full: dict[str, object] = {"iat": int(time.time()), "exp": int(time.time()) + 60, "sun": "alice"}
    full.update(claims)
    return jwt.encode({k: v for k, v in full.items() if v is not None}, key, algorithm=algorithm)


def no_review(token: str) -> Identity | None:
    raise AssertionError(f"a Slurm token was shown to Kubernetes: {token}")


def slurm_only() -> tokens.TokenAuthenticator:
    return tokens.TokenAuthenticator(
        keys=lambda: {"old": OTHER_KEY, "main": KEY},
        slurm_user=lambda user: directory.of_slurm_user(TENANTS, user),
        kubernetes=no_review,
    )


def test_a_token_of_any_cluster_here_names_its_slurm_user() -> None:
    for key in (KEY, OTHER_KEY):
        identity = slurm_only().identify(slurm_token(key))
        assert (identity.slurm_user, identity.teams, identity.admin) == (
            "alice",
            frozenset({"vision", "shared"}),
            False,
        )
        assert identity.kubernetes_user == "alice@example.org"


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (slurm_token(b"x" * 32), "not signed with the key of any cluster"),
        (slurm_token(exp=int(time.time()) - 60), "has expired"),
        (slurm_token(exp=None), "no claim 'exp'"),
        (slurm_token(sun=None), "no claim 'sun'"),
        (slurm_token(sun=""), "names no user"),
        (slurm_token(sun=["root"]), "names no user"),
        (slurm_token(iat=int(time.time()) + 600), "malformed"),
        (slurm_token()[:-4] + "AAAA", "not signed with the key"),
        ("", "no token"),
        ("x" * 9000, "9000 characters"),
    ],
)
def test_what_is_wrong_with_a_token_is_said(token: str, sentence: str) -> None:
    with pytest.raises(NotAuthenticatedError, match=sentence):
        slurm_only().identify(token)


def test_no_cluster_yet_means_nobody_gets_in() -> None:
    authenticator = tokens.TokenAuthenticator(keys=dict, slurm_user=lambda _: None, kubernetes=no_review)
    with pytest.raises(NotAuthenticatedError, match="not signed"):
        authenticator.identify(slurm_token())


@pytest.mark.parametrize("algorithm", ["none", "HS384"])
def test_only_slurms_algorithm_is_tried_against_its_keys(algorithm: str) -> None:
    token = jwt.encode({"sun": "root", "exp": int(time.time()) + 60}, "" if algorithm == "none" else KEY * 2, algorithm)
    authenticator = tokens.TokenAuthenticator(
        keys=lambda: {"main": KEY * 2}, slurm_user=lambda _: Identity("root", admin=True), kubernetes=lambda _: None
    )
    with pytest.raises(NotAuthenticatedError, match="Kubernetes does not accept"):
        authenticator.identify(token)


def test_other_tokens_are_kubernetes_to_judge() -> None:
    known = {"opaque": directory.of_kubernetes_user(TENANTS, "bob@example.org", ["devs"])}
    authenticator = tokens.TokenAuthenticator(keys=dict, slurm_user=lambda _: None, kubernetes=known.get)
    identity = authenticator.identify("opaque")
    assert (identity.name, identity.slurm_user, identity.teams) == ("bob@example.org", "bob", frozenset({"nlp"}))
    with pytest.raises(NotAuthenticatedError):
        authenticator.identify("other")


def test_a_review_that_failed_is_unknown_and_nobody_is_let_in() -> None:
    def down(_: str) -> Identity | None:
        raise UnknownStateError("the API server cannot be reached")

    with pytest.raises(UnknownStateError):
        tokens.TokenAuthenticator(keys=dict, slurm_user=lambda _: None, kubernetes=down).identify("opaque")


def test_admins_are_masters_the_platform_account_and_slurms_root() -> None:
    assert directory.of_kubernetes_user(TENANTS, "ops", ["system:masters"]).admin
    assert directory.of_kubernetes_user(TENANTS, "system:serviceaccount:slurm-bridge:platform-admin").admin
    assert directory.of_slurm_user(TENANTS, "root").admin
    assert not directory.of_kubernetes_user(TENANTS, "root").admin
    assert not directory.of_slurm_user(TENANTS, "alice").admin


def test_a_kubernetes_user_is_not_the_slurm_user_of_the_same_name() -> None:
    identity = directory.of_kubernetes_user(TENANTS, "alice")
    assert (identity.slurm_user, identity.teams) == (None, frozenset())
