"""The way through the API server: whose token travels, in which header, and what each fault becomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from bridge import errors
from bridge.cli import kubeproxy
from bridge.cli.faults import CliError, Exit


@dataclass
class FakeApiServer:
    """Signs tokens and notes what passes through it."""

    fault: errors.BridgeError | None = None
    signed: list[tuple[str, str, int]] = field(default_factory=list)
    passed: list[tuple[str, str, str, Mapping[str, str], bytes | None]] = field(default_factory=list)

    def service_account_token(self, namespace: str, name: str, *, lifespan_s: int) -> str:
        if self.fault:
            raise self.fault
        self.signed.append((namespace, name, lifespan_s))
        return "signed"

    def through_service(
        self, method: str, service: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        if self.fault:
            raise self.fault
        self.passed.append((method, service, path, headers, body))
        return 200, b"{}"


def test_one_short_token_of_the_platform_admin_is_made_and_travels_in_its_own_header() -> None:
    server = FakeApiServer()
    way = kubeproxy.ViaKubernetes(server)
    assert way.request("GET", "/v1/queue", query={"state": ["running"]}, body=None).status == 200
    way.request("POST", "/v1/cancel", query={}, body=b"{}")
    assert server.signed == [("slurm-bridge", "platform-admin", 600)]
    assert [(m, s, p, b) for m, s, p, _, b in server.passed] == [
        ("GET", "slurm-bridge/slurm-bridge:8080", "/v1/queue?state=running", None),
        ("POST", "slurm-bridge/slurm-bridge:8080", "/v1/cancel", b"{}"),
    ]
    for _, _, _, headers, _ in server.passed:
        assert headers["X-Slurmbridge-Token"] == "signed"
        assert "Authorization" not in headers


def test_a_token_of_ones_own_needs_no_right_to_make_one() -> None:
    server = FakeApiServer()
    kubeproxy.ViaKubernetes(server, "mine").request("GET", "/v1/status", query={}, body=None)
    assert server.signed == []
    assert server.passed[0][3]["X-Slurmbridge-Token"] == "mine"


@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        (errors.RejectedError("serviceaccounts is forbidden"), Exit.NOT_ALLOWED, "forbidden; set SBRIDGE_TOKEN"),
        (errors.NotFoundError("serviceaccounts not found"), Exit.UNREACHABLE, "is the bridge deployed"),
        (errors.UnknownStateError("connection refused"), Exit.UNREACHABLE, "check KUBECONFIG"),
        (errors.OutcomeUnknownError("timed out"), Exit.UNREACHABLE, "check KUBECONFIG"),
    ],
)
def test_each_fault_of_the_way_has_its_exit_code(
    token: str, fault: errors.BridgeError, code: Exit, sentence: str
) -> None:
    with pytest.raises(CliError) as caught:
        kubeproxy.ViaKubernetes(FakeApiServer(fault), token).request("GET", "/v1/status", query={}, body=None)
    assert caught.value.code is code
    assert sentence in caught.value.sentence
