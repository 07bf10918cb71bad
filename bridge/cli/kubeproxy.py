"""The way to the API from a laptop: the API server's service proxy, with what a kubeconfig allows.

The API server keeps the caller's Authorization for itself, so the bridge's token travels in a header of its own.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from bridge import errors, wellknown
from bridge.cli.faults import CliError, Exit
from bridge.cli.transport import Query, Reply, with_query

ADMIN_ACCOUNT = "platform-admin"
SERVICE, PORT = "slurm-bridge", 8080
TOKEN_HEADER = "X-Slurmbridge-Token"  # noqa: S105 - a header's name
TOKEN_LIFESPAN_S = 600  # the shortest that the API server signs

T = TypeVar("T")


class ApiServer(Protocol):
    """What is asked of the API server; bridge.kube.tokens does it."""

    def service_account_token(self, namespace: str, name: str, *, lifespan_s: int) -> str:
        """Have a token made for a service account (TokenRequest)."""
        ...

    def through_service(
        self, method: str, service: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Send through `service` ("namespace/name:port"); return the status and body, whatever they are."""
        ...


class ViaKubernetes:
    """Through the API server. Without a token, one is made for the platform's admin account, which takes that right."""

    def __init__(self, server: ApiServer, token: str = "") -> None:
        self._server = server
        self._token = token

    def request(self, method: str, path: str, *, query: Query, body: bytes | None) -> Reply:
        """Send; faults of the way are one sentence each."""
        headers = {TOKEN_HEADER: self._known_token(), "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        service = f"{wellknown.NAMESPACE}/{SERVICE}:{PORT}"
        status, content = _reaching(
            lambda: self._server.through_service(method, service, with_query(path, query), headers=headers, body=body)
        )
        return Reply(status, content)

    def _known_token(self) -> str:
        if not self._token:
            self._token = _reaching(
                lambda: self._server.service_account_token(
                    wellknown.NAMESPACE, ADMIN_ACCOUNT, lifespan_s=TOKEN_LIFESPAN_S
                )
            )
        return self._token


def connect(token: str) -> ViaKubernetes:
    """Find the API server: the current kubeconfig, or the pod's service account."""
    from bridge.kube import tokens

    return ViaKubernetes(_reaching(tokens.proxy), token)


def _reaching(call: Callable[[], T]) -> T:
    """Turn a fault of the API server into a sentence with the way out."""
    try:
        return call()
    except errors.NotFoundError as error:
        way_out = "is the bridge deployed in this cluster (`make deploy`), and is this the right context?"
        raise CliError(Exit.UNREACHABLE, f"Kubernetes does not find the bridge: {error}; {way_out}") from error
    except errors.RejectedError as error:
        way_out = "set SBRIDGE_TOKEN to a token of your own, or use the login pod"
        raise CliError(Exit.NOT_ALLOWED, f"Kubernetes refuses: {error}; {way_out}") from error
    except errors.BridgeError as error:
        way_out = f"check KUBECONFIG, then `kubectl -n {wellknown.NAMESPACE} get pods`"
        raise CliError(Exit.UNREACHABLE, f"no way to the bridge through Kubernetes: {error}; {way_out}") from error
