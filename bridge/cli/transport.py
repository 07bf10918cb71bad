"""The way to the API: straight to its URL, or through the Kubernetes API server's service proxy.

The standard library's client is used because a command that a person types 50 times a day should not spend more time
on importing an HTTP client than on asking (httpx: 0.4 s here).
"""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from bridge.cli.faults import CliError, Exit

TIMEOUT_S = 30.0
MAX_REPLY_BYTES = 64 * 1024 * 1024

Query = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, unread."""

    status: int
    body: bytes


class Transport(Protocol):
    """Sends one request to the API; each call is bounded in time."""

    def request(self, method: str, path: str, *, query: Query, body: bytes | None) -> Reply:
        """Return the reply, whatever its status; raises CliError when there was none."""
        ...


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The API never redirects: following one would hand the token to whoever says so."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        """Follow nothing; the caller sees the 3xx."""


class Direct:
    """Straight to `url` with a bearer token."""

    def __init__(self, url: str, token: str) -> None:
        if not url.startswith(("http://", "https://")) or not urllib.parse.urlsplit(url).hostname:
            raise CliError(Exit.USAGE, f"SBRIDGE_URL={url!r} is no URL: write http://HOST:PORT or https://HOST:PORT")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise CliError(Exit.USAGE, "the token has characters that no token has; check SBRIDGE_TOKEN and SLURM_JWT")
        self._url = url.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirect)

    def request(self, method: str, path: str, *, query: Query, body: bytes | None) -> Reply:
        """Send; a connection that fails or an answer that does not come is one sentence."""
        request = urllib.request.Request(self._url + with_query(path, query), data=body, method=method)  # noqa: S310 - checked above
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Accept", "application/json")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as reply:
                return Reply(reply.status, reply.read(MAX_REPLY_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.read(MAX_REPLY_BYTES))
        except TimeoutError as error:
            raise CliError(Exit.UNREACHABLE, f"the bridge at {self._url} did not answer in time; try again") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise CliError(
                Exit.UNREACHABLE, f"the bridge at {self._url} cannot be reached ({reason}); check SBRIDGE_URL"
            ) from error


def with_query(path: str, query: Query) -> str:
    """Append the query, a list as a repeated name."""
    encoded = urllib.parse.urlencode(query, doseq=True)
    return f"{path}?{encoded}" if encoded else path
