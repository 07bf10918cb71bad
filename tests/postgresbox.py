"""A real PostgreSQL for tests, in one container of our own postgres image; its data is in a tmpfs that can be small.

The container starts the server again when it ends, as a kubelet would.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from typing import Final, Self

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the reaper's image comes from a registry

import psycopg
from testcontainers.core.container import DockerContainer

from tests.slurmbox import image

DATA: Final = "/var/lib/postgresql/data"
READY_S: Final = 60.0
_AGAIN: Final = "while :; do start-postgres {arguments} & wait; sleep 0.2; done"


class PostgresBox:
    """One server. `data_mib` bounds its disk; `settings` are handed to the server."""

    def __init__(self, *, data_mib: int = 512, settings: dict[str, str] | None = None) -> None:
        self._password = secrets.token_hex(8)
        self._stack = contextlib.ExitStack()
        arguments = " ".join(f"-c {name}={value}" for name, value in (settings or {}).items())
        self._container = (
            DockerContainer(image("postgres"))
            .with_env("POSTGRES_PASSWORD", self._password)
            .with_exposed_ports(5432)
            .with_tmpfs_mount(DATA, f"size={data_mib}m")
            .with_kwargs(entrypoint=["sh", "-c", _AGAIN.format(arguments=arguments)])
        )

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._stack.enter_context(self._container)
            self.wait_ready()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the container."""
        self._stack.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._container.get_container_host_ip(), int(self._container.get_exposed_port(5432))

    def url(self, name: str | None = None, *, user: str = "bridge", address: tuple[str, int] | None = None) -> str:
        """Return a database URL; with a name, of an empty schema of that name; another address: of a proxy to it."""
        host, port = address or self.address
        url = f"postgresql://{user}:{self._password}@{host}:{port}/bridge"
        if name is None:
            return url
        with self.connect() as connection:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
        return f"{url}?options=-csearch_path%3D{name}"

    def join(self, network: str, alias: str) -> None:
        """Be reachable in a network of containers under this name, too."""
        container = self._container.get_wrapped_container()
        container.client.networks.get(network).connect(container, aliases=[alias])

    @contextlib.contextmanager
    def connect(self, *, user: str = "bridge") -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        """Return a connection of our own, past the ledger; each statement commits."""
        connection = psycopg.connect(self.url(user=user), autocommit=True, connect_timeout=5)
        with contextlib.closing(connection):
            yield connection

    def terminate(self) -> int:
        """End every session but our own, as an administrator does; return how many there were."""
        with self.connect(user="postgres") as connection:
            query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'bridge'"
            return len(connection.execute(query).fetchall())

    def run(self, *command: str) -> str:
        """Run a command in the container as the server's user; it must succeed."""
        done = self._container.get_wrapped_container().exec_run(list(command), user="postgres")
        told = bytes(done.output).decode(errors="replace")
        assert done.exit_code == 0, f"{command}: {told}"
        return told

    def crash(self) -> None:
        """Let the server die where it stands; it is started again on the same data."""
        self.run("pg_ctl", "stop", "--mode=immediate", f"--pgdata={DATA}")

    def wait_ready(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with self.connect() as connection:
                    connection.execute("SELECT 1")
                    return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    logs = self._container.get_wrapped_container().logs().decode(errors="replace")
                    raise AssertionError(f"PostgreSQL does not answer after {READY_S} s: {error}\n{logs}") from error
                time.sleep(0.1)
