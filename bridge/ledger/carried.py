"""What a checkpoint carries forward when the entries before it go to an archive. Pure.

Invariant: a replay that starts from the carried state and goes on with the entries after the checkpoint ends where the
replay from entry 1 ends, closed history apart. The sums of usage are exact: each archived span is cut at midnight UTC
and counted once, so every window that takes archived days whole or not at all has its exact integral.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from bridge.ledger import rows
from bridge.ledger.fold import Key, Replay
from bridge.ledger.model import Epoch, Span
from bridge.ledger.port import Intent
from bridge.ledger.rows import Codec
from bridge.workloads.model import Grant, WorkloadId

DAY_MS: Final = 86_400_000

_KINDS: Final[Mapping[str, Codec[Any]]] = {
    "grants": rows.GRANTS,
    "spans": rows.SPANS,
    "balances": rows.BALANCES,
    "capacity": rows.CAPACITY,
    "intents": rows.INTENTS,
    "epochs": rows.EPOCHS,
}


@dataclass(frozen=True, slots=True)
class Closed:
    """What ended before a checkpoint: it is archived, and no later entry can touch it."""

    grants: tuple[Grant, ...]
    spans: tuple[Span, ...]
    intents: tuple[Intent, ...]
    epochs: tuple[Epoch, ...]
    usage: tuple["DaySum", ...]

    @property
    def attempts(self) -> dict[WorkloadId, int]:
        """Return the newest closed attempt of each workload."""
        newest: dict[WorkloadId, int] = {}
        for grant in self.grants:
            newest[grant.workload] = max(grant.attempt, newest.get(grant.workload, 0))
        return newest


@dataclass(frozen=True, slots=True)
class DaySum:
    """GPU-milliseconds of archived spans within one UTC day. They lie within [from_ms, to_ms)."""

    day_ms: int
    team: str
    user: str
    system: str
    flavor: str
    gpu_ms: int
    from_ms: int
    to_ms: int

    def row(self) -> tuple[Any, ...]:
        """Return the columns behind the checkpoint's number."""
        return (
            self.day_ms,
            self.team,
            self.user,
            self.system,
            self.flavor,
            self.gpu_ms,
            self.from_ms,
            self.to_ms,
        )


def close(replay: Replay) -> Closed:
    """Take what has ended out of a replay and return it; what is left is the state to carry forward."""
    grants = [grant for _, grant in sorted(replay.grants.items()) if not grant.holds]
    spans = [span for _, span in sorted(replay.spans.items()) if span.to_ms is not None]
    intents = [intent for _, intent in sorted(replay.intents.items()) if intent.settled_ms is not None]
    newest = max(replay.epochs, default=None)
    epochs = [epoch for key, epoch in sorted(replay.epochs.items()) if key != newest]
    usage = day_sums(spans, replay.grants)
    for grant in grants:
        del replay.grants[rows.GRANTS.key(grant)]
    for span in spans:
        del replay.spans[rows.SPANS.key(span)]
    for intent in intents:
        del replay.intents[rows.INTENTS.key(intent)]
    for epoch in epochs:
        del replay.epochs[rows.EPOCHS.key(epoch)]
    return Closed(tuple(grants), tuple(spans), tuple(intents), tuple(epochs), usage)


def day_sums(spans: Iterable[Span], grants: Mapping[Key, Grant]) -> tuple[DaySum, ...]:
    """Return the GPU-milliseconds of closed spans by UTC day and who held them."""
    sums: dict[tuple[int, str, str, str, str], tuple[int, int, int]] = {}
    for span in spans:
        grant = grants[span.workload, span.attempt]
        end_ms, at_ms = span.to_ms or 0, span.from_ms
        while at_ms < end_ms:
            day_ms = at_ms // DAY_MS * DAY_MS
            until_ms = min(end_ms, day_ms + DAY_MS)
            key = (day_ms, grant.team, grant.user, str(grant.system), grant.flavor)
            gpu_ms, first_ms, last_ms = sums.get(key, (0, at_ms, until_ms))
            sums[key] = (gpu_ms + span.gpus * (until_ms - at_ms), min(first_ms, at_ms), max(last_ms, until_ms))
            at_ms = until_ms
    return tuple(DaySum(*key, *value) for key, value in sorted(sums.items()))


def dump_state(replay: Replay) -> str:
    """Return the text of what is open after a checkpoint."""
    state: dict[str, Any] = {"seq": replay.seq, "epoch": replay.epoch}
    for kind, codec in _KINDS.items():
        state[kind] = [codec.dump(value) for _, value in sorted(getattr(replay, kind).items())]
    return rows.to_json(state)


def load_state(text: str, attempts: Mapping[WorkloadId, int]) -> Replay:
    """Return the replay that goes on after a checkpoint; `attempts` are the archived ones."""
    state = rows.from_json(text)
    replay = Replay(seq=state["seq"], epoch=state["epoch"], attempts=dict(attempts))
    for kind, codec in _KINDS.items():
        for row in state[kind]:
            value = codec.load(row)
            getattr(replay, kind)[codec.key(value)] = value
    for key, span in replay.spans.items():
        replay.running[span.workload, span.attempt] = key
    for grant in replay.grants.values():
        replay.attempts[grant.workload] = max(grant.attempt, replay.attempts.get(grant.workload, 0))
    return replay


def digest(values: Iterable[tuple[Any, ...]]) -> str:
    """Return the sha256 of rows, whatever their order."""
    return sha256(rows.to_json(sorted(values)).encode()).hexdigest()
