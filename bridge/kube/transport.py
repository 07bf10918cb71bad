"""Bytes to and from one API server: the official client finds credentials, refreshes tokens and keeps the pool.

Nothing is retried here and every call has a connect and a read timeout. A call that certainly never left is told
apart from one whose answer was lost, because only the first may be sent again without looking.
"""

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import urllib3
from urllib3 import exceptions

from bridge.errors import InvalidInputError, UnknownStateError

if TYPE_CHECKING:  # the official client costs a command 0.8 s of CPU: it is imported where it is needed
    from kubernetes import client

CONNECT_S: Final = 3.0
READ_S: Final = 15.0
JSON: Final = "application/json"
# A peer that vanished (node lost, connection forgotten by a firewall) is noticed 11 s after its last word.
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))
_NEVER_SENT = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError, exceptions.NameResolutionError)


class LostAnswerError(Exception):
    """The request may have reached the server; its answer did not reach us."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body as they came."""

    status: int
    body: bytes


class Transport:
    """Thread safe; at most `connections` calls (watches included) at once keep their connection."""

    def __init__(self, host: str, pool: urllib3.PoolManager, credentials: Callable[[], dict[str, str]]) -> None:
        """`credentials` are the headers that say who we are, asked for anew with each call."""
        self._host = host.rstrip("/")
        self._pool = pool
        self._credentials = credentials

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        read_s: float = READ_S,
    ) -> Answer:
        """Send once. UnknownStateError when it never left, LostAnswerError when the answer was lost."""
        sent = {"Accept": JSON, **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Type", content_type)
        response = self._request(method, path, body, sent, read_s, stream=False)
        return Answer(response.status, response.data)

    @contextmanager
    def stream(self, path: str, *, read_s: float) -> Iterator[tuple[int, Iterator[bytes]]]:
        """GET and yield (status, chunks); a silence of `read_s` or a torn connection raises LostAnswerError."""
        response = self._request("GET", path, None, {"Accept": JSON}, read_s, stream=True)
        try:
            yield response.status, self._chunks(response)
        finally:
            response.close()  # an abandoned stream must not go back to the pool
            response.release_conn()

    def _chunks(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        try:
            yield from response.stream(amt=None)
        except (exceptions.HTTPError, OSError) as error:
            raise LostAnswerError(f"the stream from {self._host} ended early: {_first_line(error)}") from error

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], read_s: float, *, stream: bool
    ) -> urllib3.BaseHTTPResponse:
        headers |= self._credentials()
        try:
            return self._pool.request(
                method,
                self._host + path,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=read_s),
                retries=False,
                redirect=False,
                preload_content=not stream,
            )
        except _NEVER_SENT as error:
            raise UnknownStateError(f"cannot connect to {self._host}: {_first_line(error)}") from error
        except exceptions.SSLError as error:
            if isinstance(error.args[0], ssl.SSLCertVerificationError):
                raise UnknownStateError(f"{self._host} shows another certificate: {_first_line(error)}") from error
            raise LostAnswerError(f"no answer from {self._host}: {_first_line(error)}") from error
        except (exceptions.HTTPError, OSError) as error:
            raise LostAnswerError(f"no answer from {self._host}: {_first_line(error)}") from error


def in_cluster(*, connections: int = 32) -> Transport:
    """Use the pod's own service account; its token is read again as the kubelet renews it."""
    from kubernetes import client, config

    settings = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise InvalidInputError(f"this is no pod with a service account ({error}); set KUBECONFIG instead") from error
    return over(settings, connections=connections)


def from_kubeconfig(path: str | Path | None = None, *, context: str | None = None, connections: int = 32) -> Transport:
    """Use a kubeconfig: the named file, else KUBECONFIG, else ~/.kube/config."""
    from kubernetes import client, config

    settings = client.Configuration()
    where = None if path is None else str(path)
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=where, context=context, client_configuration=settings
        )
    except (config.ConfigException, OSError) as error:
        raise InvalidInputError(f"no usable kubeconfig ({error}); set KUBECONFIG to one") from error
    return over(settings, connections=connections)


def found(*, connections: int = 32) -> Transport:
    """Use the pod's service account when there is one, else the kubeconfig."""
    try:
        return in_cluster(connections=connections)
    except InvalidInputError:
        return from_kubeconfig(connections=connections)


def over(settings: "client.Configuration", *, connections: int) -> Transport:
    """Use settings of the official client."""
    from kubernetes import client, config

    settings.connection_pool_maxsize = connections
    settings.socket_options = socket_options()
    api = client.ApiClient(settings)
    host = str(settings.host)

    def credentials() -> dict[str, str]:
        """Return the client's own; a token's file is read again as it ages, and may be missing then."""
        try:
            found: Any = settings.auth_settings()
            return {each["key"]: each["value"] for each in found.values()}
        except (config.ConfigException, OSError) as error:
            raise UnknownStateError(f"no credentials for {host}: {_first_line(error)}") from error

    return Transport(host, api.rest_client.pool_manager, credentials)


def socket_options() -> list[tuple[int, int, int]]:
    """Return the options of every connection: no delay, and keepalive that notices a peer that vanished."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    return options + [(socket.IPPROTO_TCP, getattr(socket, n), v) for n, v in _KEEPALIVE if hasattr(socket, n)]


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
