"""Tokens and the way through the API server: whose token it is, a token for an account, a request to a Service."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bridge.errors import OutcomeUnknownError, RejectedError, UnknownStateError
from bridge.kube import answers, kubeconfig
from bridge.kube.gateway import KubeGateway
from bridge.kube.port import Gateway
from bridge.kube.transport import LostAnswerError, Transport, found

_PROXY_READ_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a token belongs to, as the API server says."""

    username: str
    groups: tuple[str, ...] = ()


def review(gateway: Gateway, token: str) -> Caller | None:
    """Return whose token it is, None when the API server does not accept it; UnknownStateError when it cannot say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    try:
        status = gateway.post("/apis/authentication.k8s.io/v1/tokenreviews", body).get("status") or {}
    except OutcomeUnknownError as error:  # a review changes nothing, so its lost answer is a lost read
        raise UnknownStateError(str(error)) from error
    user = status.get("user") or {}
    if not status.get("authenticated") or not user.get("username"):
        return None
    return Caller(user["username"], tuple(user.get("groups") or ()))


def service_account_token(gateway: Gateway, namespace: str, name: str, *, lifespan_s: int) -> str:
    """Have a token made for a service account (at least 600 s, as the API server demands)."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": lifespan_s},
    }
    made = gateway.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
    token = (made.get("status") or {}).get("token")
    if not isinstance(token, str) or not token:
        raise RejectedError(f"the API server made no token for {namespace}/{name}")
    return token


class ServiceProxy:
    """What the command line asks of an API server, with what a kubeconfig allows."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._gateway = KubeGateway(transport)

    def service_account_token(self, namespace: str, name: str, *, lifespan_s: int) -> str:
        """Have a token made for a service account."""
        return service_account_token(self._gateway, namespace, name, lifespan_s=lifespan_s)

    def through_service(
        self, method: str, service: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Send through `service` ("namespace/name:port") over plain http; return its status and body, whatever they be.

        What the API server itself refuses (no such Service, no right, nobody behind it) is raised as its own fault.
        """
        namespace, _, target = service.partition("/")
        proxied = f"/api/v1/namespaces/{namespace}/services/http:{target}/proxy{path}"
        try:
            answer = self._transport.send(method, proxied, body=body, headers=headers, read_s=_PROXY_READ_S)
        except LostAnswerError as error:
            fault = UnknownStateError if method == "GET" else OutcomeUnknownError
            raise fault(str(error)) from error
        if answers.is_refusal(answer.status, answer.body):
            answers.refused(answer.status, answer.body, write=method != "GET")
        return answer.status, answer.body


def proxy() -> ServiceProxy:
    """Use the pod's service account or the current kubeconfig; a plain one without the official client."""
    file = None if "KUBERNETES_SERVICE_HOST" in os.environ else kubeconfig.path(os.environ)
    plain = None if file is None else kubeconfig.read(file, connections=2)
    return ServiceProxy(plain or found(connections=2))
