"""What the entries alone say: a replay from entry 1, written apart from the rules that made them. Pure.

It never stops at a fault: each one is told with its entry and its numbers, and the replay goes on, so that one
report shows everything that is wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.ledger.model import Balance, Epoch, Span, Step
from bridge.ledger.port import CapacityRow, Entry, Intent
from bridge.workloads.model import Grant, GrantState, WorkloadId

Key = tuple[Any, ...]


@dataclass(slots=True)
class Replay:
    """Every projection as it stands after the entries so far, by primary key, and what was wrong on the way."""

    seq: int = 0
    epoch: int = 0
    grants: dict[Key, Grant] = field(default_factory=dict)
    spans: dict[Key, Span] = field(default_factory=dict)
    balances: dict[Key, Balance] = field(default_factory=dict)
    capacity: dict[Key, CapacityRow] = field(default_factory=dict)
    intents: dict[Key, Intent] = field(default_factory=dict)
    epochs: dict[Key, Epoch] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    attempts: dict[WorkloadId, int] = field(default_factory=dict)  # the newest one of each workload
    running: dict[Key, Key] = field(default_factory=dict)  # an attempt: its open span

    def add(self, entry: Entry) -> None:
        """Replay one entry."""
        if entry.seq != self.seq + 1:
            self._fault(entry, f"follows entry {self.seq}: {entry.seq - self.seq - 1} are missing")
        self.seq = entry.seq
        if entry.epoch < self.epoch:
            self._fault(entry, f"was written in epoch {entry.epoch}, after epoch {self.epoch} had begun")
        self.epoch = max(self.epoch, entry.epoch)
        match entry.step:
            case Step.RESERVE | Step.ADOPT:
                self._granted(entry)
            case Step.RUN | Step.ADJUST | Step.RELEASE | Step.VOID:
                self._moved(entry)
            case Step.CAPACITY:
                self._capacity(entry)
            case Step.INTENT | Step.SETTLE:
                self._intent(entry)
            case Step.EPOCH:
                self.epochs[(entry.epoch,)] = Epoch(entry.epoch, str(entry.detail["holder"]), entry.at_ms)
            case Step.NOTE:
                pass
            case _:
                self._fault(entry, f"has the unknown step {entry.step!r}")
        self._balance(entry)

    def held(self) -> dict[Key, int]:
        """Return what the grants that hold now come to, by team, flavor and system."""
        sums: dict[Key, int] = {}
        for grant in self.grants.values():
            if grant.state in (GrantState.RESERVED, GrantState.RUNNING):
                key = (grant.team, grant.flavor, grant.system.value)
                sums[key] = sums.get(key, 0) + grant.gpus
        return sums

    def _granted(self, entry: Entry) -> None:
        workload, attempt = entry.workload, entry.attempt
        if workload is None or attempt is None or entry.team is None or entry.flavor is None or entry.system is None:
            self._fault(entry, f"is {_named(entry)} without workload, attempt, team, flavor or system")
            return
        last = self.attempts.get(workload, 0)
        before = self.grants.get((workload, last))
        if attempt != last + 1:
            self._fault(entry, f"grants attempt {attempt} of {workload} after attempt {last}")
        if before is not None and before.state in (GrantState.RESERVED, GrantState.RUNNING):
            self._fault(entry, f"grants attempt {attempt} of {workload} while attempt {last} is {before.state}")
        self.attempts[workload] = attempt
        detail = entry.detail
        running = entry.step == Step.ADOPT
        self.grants[workload, attempt] = Grant(
            workload=workload,
            attempt=attempt,
            team=entry.team,
            flavor=entry.flavor,
            system=entry.system,
            gpus=entry.gpus,
            state=GrantState.RUNNING if running else GrantState.RESERVED,
            placement=_placement(detail),
            user=str(detail["user"]),
            name=str(detail["name"]),
            submitted_ms=_integer(detail, "submitted_ms"),
            reserved_ms=entry.at_ms,
            running_ms=entry.at_ms if running else None,
            note=str(detail["note"]),
        )
        if running:
            self._begin(entry, (workload, attempt), entry.gpus)

    def _moved(self, entry: Entry) -> None:
        key = (entry.workload, entry.attempt)
        grant = self.grants.get(key)
        if grant is None:
            self._fault(
                entry, f"is {_named(entry)} of {entry.workload} attempt {entry.attempt}, which was never granted"
            )
            return
        if (entry.team, entry.flavor, entry.system) != (grant.team, grant.flavor, grant.system):
            self._fault(
                entry,
                f"charges {entry.team}/{entry.flavor}/{entry.system}, "
                f"the grant is of {grant.team}/{grant.flavor}/{grant.system}",
            )
        wanted = GrantState.RUNNING if entry.step == Step.ADJUST else GrantState.RESERVED
        allowed = (GrantState.RESERVED, GrantState.RUNNING) if entry.step == Step.RELEASE else (wanted,)
        if grant.state not in allowed:
            what = f"{_named(entry)} of {entry.workload} attempt {entry.attempt}"
            self._fault(entry, f"is {what}, which is {grant.state}")
        if entry.step in (Step.RELEASE, Step.VOID):
            self._ended(entry, key, grant)
        else:
            self._charged(entry, key, grant)

    def _charged(self, entry: Entry, key: Key, grant: Grant) -> None:
        gpus = grant.gpus + entry.gpus
        if gpus < 1:
            self._fault(
                entry, f"leaves {gpus} GPUs to {entry.workload} attempt {entry.attempt}, which holds {grant.gpus}"
            )
        began_ms = entry.at_ms if entry.step == Step.RUN else grant.running_ms
        self.grants[key] = replace(
            grant, state=GrantState.RUNNING, gpus=gpus, placement=_placement(entry.detail), running_ms=began_ms
        )
        self._end(entry, key)
        self._begin(entry, key, gpus)

    def _ended(self, entry: Entry, key: Key, grant: Grant) -> None:
        if entry.gpus != -grant.gpus:
            self._fault(
                entry,
                f"gives back {-entry.gpus} GPUs of {entry.workload} attempt {entry.attempt}, which holds {grant.gpus}",
            )
        state = GrantState.RELEASED if entry.step == Step.RELEASE else GrantState.VOIDED
        note = str(entry.detail["note"]) or grant.note
        self.grants[key] = replace(grant, state=state, ended_ms=entry.at_ms, note=note)
        self._end(entry, key)

    def _begin(self, entry: Entry, key: Key, gpus: int) -> None:
        workload, attempt = key
        self.spans[(entry.seq,)] = Span(entry.seq, workload, attempt, entry.at_ms, None, gpus)
        self.running[key] = (entry.seq,)

    def _end(self, entry: Entry, key: Key) -> None:
        span_key = self.running.pop(key, None)
        if span_key is None:
            return
        span = self.spans[span_key]
        if entry.at_ms < span.from_ms:
            self._fault(entry, f"ends at {entry.at_ms} ms what began at {span.from_ms} ms")
        self.spans[span_key] = replace(span, to_ms=entry.at_ms)

    def _balance(self, entry: Entry) -> None:
        if not entry.gpus:
            return
        if entry.team is None or entry.flavor is None or entry.system is None:
            self._fault(entry, f"moves {entry.gpus} GPUs of no team, flavor or system")
            return
        key = (entry.team, entry.flavor, entry.system.value)
        before = self.balances.get(key)
        after = (before.gpus if before else 0) + entry.gpus
        if after < 0:
            self._fault(entry, f"takes the balance of {'/'.join(key)} to {after}")
        self.balances[key] = Balance(entry.team, entry.flavor, entry.system, after)

    def _capacity(self, entry: Entry) -> None:
        row = CapacityRow(**entry.detail)  # type: ignore[arg-type]  # written by us; a wrong type shows as a difference
        columns = (row.worker, row.pods, row.unmanaged, row.idle, row.unavailable)
        if sum(columns) != row.total or min(columns) < 0:
            self._fault(entry, f"puts {sum(columns)} GPUs of node {row.node} into columns, it has {row.total}")
        self.capacity[(row.node,)] = row

    def _intent(self, entry: Entry) -> None:
        key = (entry.detail["id"],)
        known = self.intents.get(key)
        if entry.workload is None:
            self._fault(entry, f"is {_named(entry)} of no workload")
        elif entry.step == Step.INTENT:
            detail: Any = entry.detail["detail"]
            self.intents[key] = Intent(str(key[0]), str(entry.detail["kind"]), entry.workload, entry.at_ms, detail)
        elif known is None or known.settled_ms is not None:
            self._fault(entry, f"settles {key[0]!r}, which is not open")
        else:
            self.intents[key] = replace(known, settled_ms=entry.at_ms, outcome=str(entry.detail["outcome"]))

    def _fault(self, entry: Entry, text: str) -> None:
        self.faults.append(f"entry {entry.seq} {text}")


def _named(entry: Entry) -> str:
    return f"{'an' if entry.step[0] in 'aei' else 'a'} {entry.step}"


def _placement(detail: Mapping[str, Any]) -> dict[Any, int]:
    return dict(detail["placement"])


def _integer(detail: Mapping[str, Any], name: str) -> int:
    return int(detail[name])
