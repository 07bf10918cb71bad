"""Two controllers of one platform on one PostgreSQL: one leads, the other waits. Each can be killed or stopped."""

import contextlib
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from bridge.clock import SystemClock
from bridge.ledger.journal import SqlLedger, open_ledger
from bridge.ledger.port import Entry
from tests.integration.bridgebox import API_PORT, BridgeBox, docker
from tests.postgresbox import PostgresBox

LEASE_S: Final = 3  # the shortest that the settings take
RENEW_S: Final = LEASE_S / 5  # as bridge.kube.lease renews, and looks at another's
IDLE_TIMEOUT_MS: Final = 2_000  # a leader that is stopped inside a transaction loses its session after this
BRIDGES: Final = ("bridge-0", "bridge-1")
_DATABASE: Final = "postgres"  # its name in the platform's network


@dataclass(frozen=True, slots=True)
class Term:
    """One bridge's leadership, as the ledger has it."""

    epoch: int
    holder: str
    at_ms: int


class TwoBridges(BridgeBox):
    """The platform of BridgeBox, led by one of two bridges."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.postgres = PostgresBox()
        self._opened: SqlLedger
        self._entries: list[Entry] = []

    def start(self) -> None:
        """Start both."""
        for bridge in BRIDGES:
            self.start_one(bridge)

    def start_one(self, bridge: str) -> None:
        """Start one, as its Deployment starts a container that ended: under the same name."""
        docker("start", self._container(bridge))

    def kill_one(self, bridge: str) -> None:
        """Kill -9."""
        docker("kill", self._container(bridge))

    def signal(self, bridge: str, name: str) -> None:
        """Send its process STOP or CONT: tini, the container's first process, must go on."""
        docker("exec", self._container(bridge), "sh", "-c", f"kill -{name} $(cat /proc/1/task/1/children)")

    def exit_code(self, bridge: str) -> int | None:
        """Return the exit code of one that ended, None of one that runs."""
        running, code = docker(
            "inspect", "--format", "{{.State.Running}} {{.State.ExitCode}}", self._container(bridge)
        ).split()
        return None if running == "true" else int(code)

    def said(self, bridge: str) -> str:
        """Return what a bridge has said since it was created, all its lives."""
        done = subprocess.run(
            ["docker", "logs", self._container(bridge)], capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout + done.stderr

    def log(self, lines: str = "all") -> str:
        """Return what both said."""
        del lines
        return "\n".join(f"--- {bridge}\n{self.said(bridge)[-6_000:]}" for bridge in BRIDGES)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[SqlLedger]:
        """Return the ledger, opened once: opening waits for writers, and a stopped one may hold the lock."""
        yield self._opened

    def all_entries(self) -> list[Entry]:
        """Return the whole journal so far, read on from where it was read before."""
        while entries := self._opened.log(after_seq=len(self._entries), limit=10_000):
            self._entries += entries
        return self._entries

    def terms(self) -> list[Term]:
        """Return every term of leadership so far."""
        return [
            Term(entry.epoch, str(entry.detail["holder"]), entry.at_ms)
            for entry in self.all_entries()
            if entry.step == "epoch"
        ]

    @contextlib.contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold what every writer of the ledger waits for."""
        with self.postgres.connect() as connection, connection.transaction():
            connection.execute("SELECT value FROM meta WHERE key = 'schema_version' FOR UPDATE")
            yield

    def writers_waiting(self) -> int:
        """Return how many sessions of bridges wait for that lock."""
        with self.postgres.connect() as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'"
            ).fetchone()
        assert found is not None
        return int(str(found[0]))

    def _container(self, bridge: str) -> str:
        return f"{self._name}-{bridge}"

    def alive(self, bridge: str) -> bool:
        """Return whether a bridge's API answers: then it also tries for the lease."""
        address = docker(
            "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", self._container(bridge)
        ).strip()
        try:
            with urllib.request.urlopen(f"http://{address}:{API_PORT}/healthz", timeout=2) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def _create_controllers(self) -> None:
        self._stack.enter_context(self.postgres)
        self.postgres.join(self.slurm.network, _DATABASE)
        self._opened = open_ledger(self.postgres.url(), SystemClock())
        self._stack.callback(self._opened.close)
        self._write_folders()
        for bridge in BRIDGES:
            self._create_container(
                self._container(bridge),
                {
                    "SBRIDGE_IDENTITY": bridge,
                    "SBRIDGE_LEASE_S": str(LEASE_S),
                    "SBRIDGE_FAULT": "",
                    "SBRIDGE_LEDGER_URL": self.postgres.url(address=(_DATABASE, 5432)),
                    "SBRIDGE_LEDGER_IDLE_TIMEOUT_MS": str(IDLE_TIMEOUT_MS),
                },
            )
