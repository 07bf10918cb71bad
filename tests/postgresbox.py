"""A real PostgreSQL for tests, in one container of our own postgres image; its data is in a tmpfs that can be small."""

import contextlib
import os
import secrets
import time
from typing import Final, Self

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the reaper's image comes from a registry

import psycopg
from testcontainers.core.container import DockerContainer

from tests.slurmbox import image

DATA: Final = "/var/lib/postgresql/data"
READY_S: Final = 60.0


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
            .with_tmpfs_mount(DATA, f"size={data_mib}m,mode=0777")
        )
        if arguments:
            self._container = self._container.with_command(arguments)

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

    def url(self, name: str | None = None, *, user: str = "bridge") -> str:
        """Return a database URL; with a name, of an empty schema of that name."""
        host, port = self._container.get_container_host_ip(), self._container.get_exposed_port(5432)
        url = f"postgresql://{user}:{self._password}@{host}:{port}/bridge"
        if name is None:
            return url
        with self.connect() as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')
        return f"{url}?options=-csearch_path%3D{name}"

    def connect(self, *, user: str = "bridge") -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection of our own, past the ledger; each statement commits."""
        return psycopg.connect(self.url(user=user), autocommit=True, connect_timeout=5)

    def docker_id(self) -> str:
        """Return the container's id."""
        return str(self._container.get_wrapped_container().id)

    def run(self, *command: str) -> tuple[int, str]:
        """Run a command in the container as the server's user."""
        done = self._container.get_wrapped_container().exec_run(list(command))
        return int(done.exit_code), bytes(done.output).decode(errors="replace")

    def restart(self) -> None:
        """Stop the server at once, and start it again on the same data (the container goes on)."""
        self._container.get_wrapped_container().restart(timeout=1)

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
