"""Serves the API from a thread of the controller's process, bounded in connections, headers and time."""

import socket
import threading
import time
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from bridge.errors import BridgeError

MAX_CONNECTIONS = 128
START_DEADLINE_S = 10.0
STOP_DEADLINE_S = 10.0


class ServerError(BridgeError):
    """The API could not be served, or did not stop in time."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A running server. `port` is the real one when 0 was asked for."""

    port: int
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        """Finish what is being answered, then stop; raises when that takes too long."""
        self.server.should_exit = True
        self.thread.join(STOP_DEADLINE_S)
        if self.thread.is_alive():
            self.server.force_exit = True
            raise ServerError(f"the API on port {self.port} did not stop within {STOP_DEADLINE_S:g} s")


def serve(app: FastAPI, host: str, port: int) -> Serving:
    """Return once requests are answered. The socket is ours, so a taken port is told at once."""
    try:
        listener = _listen(host, port)
    except OSError as error:
        raise ServerError(
            f"cannot listen on {host}:{port}: {error.strerror}; free the port or choose another"
        ) from error
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=MAX_CONNECTIONS,
            backlog=MAX_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=32 * 1024,
            server_header=False,
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="api", daemon=True)
    thread.start()
    serving = Serving(listener.getsockname()[1], server, thread)
    _await_start(serving)
    return serving


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)


def _await_start(serving: Serving) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while not serving.server.started:
        if not serving.thread.is_alive() or time.monotonic() > deadline:
            raise ServerError(f"the API did not start on port {serving.port} within {START_DEADLINE_S:g} s")
        time.sleep(0.01)
