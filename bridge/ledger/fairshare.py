"""Decayed use as the ledger records it: read whole once, then only the entries that are new.

The times are the entries' own (Slurm's and the pods'), so what ran while no bridge did counts when it is recorded,
for when it ran.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from bridge.admission.model import History
from bridge.errors import BrokenInvariantError
from bridge.ledger.decay import Keeper
from bridge.ledger.model import Step
from bridge.ledger.port import Entry, Held, Ledger
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import System, WorkloadId

FORGOTTEN_AFTER: Final = 40
"""Half-lives: what ended longer ago counts less than 1e-12 of what it was, and is not read at all."""

PAGE: Final = 1_000

_LONGEST_PERIOD_MS: Final = 60_000
_MOVING: Final = frozenset({Step.RESERVE, Step.ADOPT, Step.RUN, Step.ADJUST, Step.RELEASE, Step.VOID})


@dataclass(frozen=True, slots=True)
class _Holding:
    """An attempt that holds; `since_ms`: when its present amount began to run, None while it is reserved."""

    team: TeamName
    system: System
    flavor: FlavorName
    gpus: int
    since_ms: int | None

    def span(self, to_ms: int | None) -> Iterator[Held]:
        """Yield the running time at the present amount, when it runs."""
        if self.since_ms is not None:
            yield Held(self.team, self.system, self.flavor, self.gpus, self.since_ms, to_ms)


class FairShare:
    """Follows one ledger. Used by one thread.

    Invariant: after `history(now)` it knows exactly the entries up to the ledger's newest at that time, each once.
    Where the journal has a gap (archived meanwhile), it begins anew.
    """

    def __init__(self, ledger: Ledger, half_life_ms: int) -> None:
        self._ledger = ledger
        self._half_life_ms = half_life_ms
        self._keeper = Keeper(half_life_ms)
        self._holding: dict[tuple[WorkloadId, int], _Holding] = {}
        self._seq: int | None = None
        self._sampled: tuple[int, History] | None = None

    @property
    def period_ms(self) -> int:
        """How long a sample is good for: what is past fades by less than a fortieth meanwhile."""
        return min(_LONGEST_PERIOD_MS, self._half_life_ms // 30)

    def sample(self, now_ms: int) -> History:
        """Return the decayed use of a moment ago at most: the same object until it is due again."""
        if self._sampled is None or not 0 <= now_ms - self._sampled[0] < self.period_ms:
            self._sampled = (now_ms, self.history(now_ms))
        return self._sampled[1]

    def history(self, now_ms: int) -> History:
        """Return the decayed average devices of each team and flavor, of everything recorded so far."""
        if self._seq is None or not self._follow_all():
            self._begin(now_ms)
        return self._keeper.history(now_ms, chain.from_iterable(h.span(None) for h in self._holding.values()))

    def _begin(self, now_ms: int) -> None:
        self._keeper = Keeper(self._half_life_ms)
        self._holding = {}
        past = self._ledger.past(from_ms=now_ms - FORGOTTEN_AFTER * self._half_life_ms)
        self._keeper.fold(past.ended)
        self._keeper.carry(past.carried)
        for grant in past.grants:
            key = (grant.workload, grant.attempt)
            since_ms = past.since_ms.get(key)
            self._holding[key] = _Holding(grant.team, grant.system, grant.flavor, grant.gpus, since_ms)
        self._seq = past.seq

    def _follow_all(self) -> bool:
        """Take every new entry; False when some of them were archived before they were read here."""
        while page := self._ledger.log(after_seq=self._seq or 0, limit=PAGE):
            for entry in page:
                if entry.seq != (self._seq or 0) + 1:
                    return False
                self._follow(entry)
                self._seq = entry.seq
        return True

    def _follow(self, entry: Entry) -> None:
        """Move one attempt on, as the replay of the entries does."""
        if entry.step not in _MOVING or entry.workload is None or entry.attempt is None:
            return
        key = (entry.workload, entry.attempt)
        if entry.step in (Step.RESERVE, Step.ADOPT):
            since_ms = entry.at_ms if entry.step == Step.ADOPT else None
            if entry.team is None or entry.system is None or entry.flavor is None:
                raise BrokenInvariantError(f"entry {entry.seq} grants {key} without team, system or flavor")
            self._holding[key] = _Holding(entry.team, entry.system, entry.flavor, entry.gpus, since_ms)
            return
        before = self._holding.pop(key)
        self._keeper.fold(before.span(entry.at_ms))
        if entry.step in (Step.RUN, Step.ADJUST):
            self._holding[key] = replace(before, gpus=before.gpus + entry.gpus, since_ms=entry.at_ms)
