"""The port behind the API: what the last cycle saw. The controller implements it.

Every answer is a finished value from one snapshot. Methods are called from several threads, bounded in time.
What cannot be answered now raises UnknownStateError; a workload that positively is not, NotFoundError.
"""

from collections.abc import Sequence
from typing import Protocol

from bridge.api.identity import Identity
from bridge.api.views import CancelView, Explain, NodeRow, QueueRow, QuotaRow, StatusView
from bridge.ledger.port import Entry, Problem, Usage


class Source(Protocol):
    """What the API shows, and its one act. Sources show everything: the API decides who may see what."""

    def ready(self) -> bool:
        """Return True once a cycle has seen both systems; never raises."""
        ...

    def status(self) -> StatusView:
        """Health of the bridge and of what it reads; answers during outages, that is what it is for."""
        ...

    def nodes(self) -> Sequence[NodeRow]:
        """Every GPU node, by name."""
        ...

    def quota(self) -> Sequence[QuotaRow]:
        """Every team and flavor, parents before their children."""
        ...

    def queue(self) -> Sequence[QueueRow]:
        """Every workload: waiting ones by age, then those that hold, then ended ones while they are remembered."""
        ...

    def explain(self, workload: str) -> Explain:
        """Everything about the workload with this id."""
        ...

    def entries(self, *, after_seq: int, limit: int) -> Sequence[Entry]:
        """At most `limit` journal entries with seq > after_seq, in order."""
        ...

    def verify(self) -> Sequence[Problem]:
        """Recompute the ledger; empty is the proof."""
        ...

    def usage(self, *, from_ms: int, to_ms: int, cuts: Sequence[int] = ()) -> Sequence[Usage]:
        """GPU-ms per team, system, flavor, user and part of the window; `cuts`: where parts begin inside it."""
        ...

    def cancel(self, identity: Identity, workload: str) -> CancelView:
        """Record the intent to cancel (durable when this returns). The same again returns the same intent."""
        ...
