"""In-memory Source and Authenticator: for tests of the API and the CLI, and to look at the tables by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bridge.api.identity import Identity, NotAuthenticatedError
from bridge.api.views import (
    CancelState,
    CancelView,
    Explain,
    NodeRow,
    QueueRow,
    QuotaRow,
    StatusView,
)
from bridge.errors import NotFoundError, UnknownStateError
from bridge.ledger.port import Entry, Problem, Usage


@dataclass
class FakeSource:
    """A source that holds what it is given. `unknown` makes every read of workloads fail, as in an outage."""

    status_view: StatusView
    node_rows: list[NodeRow] = field(default_factory=list)
    quota_rows: list[QuotaRow] = field(default_factory=list)
    queue_rows: list[QueueRow] = field(default_factory=list)
    explanations: dict[str, Explain] = field(default_factory=dict)
    journal: list[Entry] = field(default_factory=list)
    found_problems: list[Problem] = field(default_factory=list)
    usage_rows: list[Usage] = field(default_factory=list)
    is_ready: bool = True
    unknown: str = ""
    cancels: dict[str, str] = field(default_factory=dict)  # workload -> who asked first

    def ready(self) -> bool:
        """Return what the test set."""
        return self.is_ready

    def status(self) -> StatusView:
        """Answer always, as a real source must."""
        return self.status_view

    def nodes(self) -> Sequence[NodeRow]:
        """Every node."""
        self._known()
        return tuple(self.node_rows)

    def quota(self) -> Sequence[QuotaRow]:
        """Every team and flavor."""
        self._known()
        return tuple(self.quota_rows)

    def queue(self) -> Sequence[QueueRow]:
        """Every workload."""
        self._known()
        return tuple(self.queue_rows)

    def explain(self, workload: str) -> Explain:
        """Return the prepared explanation, or a bare one of a row that has none."""
        self._known()
        if workload in self.explanations:
            return self.explanations[workload]
        return Explain(workload=self._row(workload))

    def entries(self, *, after_seq: int, limit: int) -> Sequence[Entry]:
        """Return a page of the journal."""
        return tuple(entry for entry in self.journal if entry.seq > after_seq)[:limit]

    def verify(self) -> Sequence[Problem]:
        """Return what the test says was found."""
        return tuple(self.found_problems)

    def usage(self, *, from_ms: int, to_ms: int, cuts: Sequence[int] = ()) -> Sequence[Usage]:
        """Return the usage rows, whatever the window, in its first part; an empty window has none."""
        del cuts
        return tuple(replace(row, from_ms=from_ms) for row in self.usage_rows) if from_ms < to_ms else ()

    def cancel(self, identity: Identity, workload: str) -> CancelView:
        """Record who asked first."""
        first = self.cancels.setdefault(self._row(workload).id, identity.name)
        intent = f"cancel/{workload}"
        return CancelView(workload=workload, intent=intent, state=CancelState.RECORDED, text=f"asked by {first}")

    def _row(self, workload: str) -> QueueRow:
        for row in self.queue_rows:
            if row.id == workload:
                return row
        raise NotFoundError(f"workload {workload!r} is not known")

    def _known(self) -> None:
        if self.unknown:
            raise UnknownStateError(self.unknown)


@dataclass(frozen=True)
class FakeAuthenticator:
    """Knows the identity of each token it was given."""

    identities: Mapping[str, Identity]

    def identify(self, token: str) -> Identity:
        """Look the token up."""
        if token in self.identities:
            return self.identities[token]
        raise NotAuthenticatedError("no token, or one that is not known here")
