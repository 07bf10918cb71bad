"""The API server without a process per call, for what is sampled or timed: plain GETs and one watch."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes import client, config

from tests.e2e import shell

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """An event of a watch, and when it came."""

    at_ns: int
    kind: str
    object: dict[str, Any]


class ApiServer:
    """Connects as the kubeconfig says. One watch and several calls may go on at a time."""

    def __init__(self) -> None:
        shell.require()
        settings = client.Configuration()
        config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        self._host = settings.host
        self._http = urllib3.PoolManager(
            maxsize=4,
            ca_certs=settings.ssl_ca_cert,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            retries=False,
        )

    def get(self, path: str) -> Any:
        """Return one answer, parsed."""
        return self._call("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Create an object."""
        return self._call("POST", path, body)

    def delete(self, path: str) -> Any:
        """Delete an object."""
        return self._call("DELETE", path, None)

    def watch(self, path: str, *, version: str, timeout_s: int) -> Iterator[Seen]:
        """Yield events as they come, until the server ends the watch after `timeout_s`."""
        separator = "&" if "?" in path else "?"
        url = f"{self._host}{path}{separator}watch=1&resourceVersion={version}&timeoutSeconds={timeout_s}"
        reply = self._http.request("GET", url, preload_content=False, timeout=timeout_s + TIMEOUT_S)
        try:
            if reply.status != 200:
                raise shell.CommandError(f"watch of {path} was answered with {reply.status}")
            rest = b""
            for chunk in reply.stream(65536):
                at_ns = time.time_ns()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield Seen(at_ns, event["type"], event["object"])
        finally:
            reply.close()

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        reply = self._http.request(
            method,
            self._host + path,
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": "application/json"},
            timeout=TIMEOUT_S,
        )
        if reply.status >= 400:
            raise shell.CommandError(f"{method} {path} was answered with {reply.status}: {reply.data.decode()[:400]}")
        return json.loads(reply.data)
