"""The API's Source: finished answers from the last beat and the ledger. Thread safe: it only reads a frozen beat."""

import importlib.metadata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from bridge.api.identity import Identity
from bridge.api.views import (
    CancelState,
    CancelView,
    Explain,
    Holder,
    NodeRow,
    Problem,
    QueueRow,
    QuotaRow,
    StatusView,
    SystemHealth,
)
from bridge.capacity import columns, readiness
from bridge.capacity.demand import demands
from bridge.clock import Clock
from bridge.controller import explanation, queue
from bridge.controller.cycle import Beat
from bridge.errors import NotFoundError, UnknownStateError
from bridge.ledger import port
from bridge.ledger.port import Entry, Intent, Ledger, Usage
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances
from bridge.workloads.model import Grant, NodeName, System, WorkloadId

ENDED_SHOWN: Final = 1_000
"""Ended attempts that the queue still lists; older ones are found by their workload id (`explain`)."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads."""

    identity: str
    epoch: int
    leading: bool


class BeatSource:
    """Source over the last published beat. `kube_version` is set by whoever learns it."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        leader: Callable[[], Leader],
        failures: Callable[[], dict[str, str]],
        wake: Callable[[], None],
        kube_age_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.kube_version = ""
        self._kube_age_s = kube_age_s
        self._ledger = ledger
        self._clock = clock
        self._leader = leader
        self._failures = failures
        self._wake = wake
        self._beat: Beat | None = None

    def publish(self, beat: Beat) -> None:
        """Show this beat from now on."""
        self._beat = beat

    @property
    def beat(self) -> Beat:
        """The last beat; UnknownStateError before the first."""
        if self._beat is None:
            raise UnknownStateError("the bridge has not finished its first cycle; try again in a moment")
        return self._beat

    def ready(self) -> bool:
        """Return True once a cycle has seen Kubernetes and its settings."""
        return self._beat is not None and self._beat.world.kube.ok

    def status(self) -> StatusView:
        """Health of the bridge and of what it reads."""
        leader, beat, now = self._leader(), self._beat, self._clock.now_ms()
        if beat is None:
            nothing = SystemHealth(name="kubernetes", ok=False, text="no cycle yet")
            return StatusView(
                version=_version(), leader=leader.identity, leading=leader.leading, epoch=leader.epoch,
                cycles=0, last_cycle_ms=0, last_cycle_age_s=None, kubernetes=nothing,
            )  # fmt: skip
        world = beat.world
        kube = SystemHealth(
            name="kubernetes",
            ok=world.kube.ok,
            age_s=self._kube_age_s(),
            version=self.kube_version,
            text=world.kube.error,
        )
        slurm = SystemHealth(
            name=world.slurm.cluster or "slurm",
            ok=world.slurm.ok,
            age_s=max(0, now - world.slurm.read_ms) / 1000 if world.slurm.read_ms else None,
            text=world.slurm.error,
        )
        newest = self._ledger.last_seq()
        return StatusView(
            version=_version(),
            leader=leader.identity,
            leading=leader.leading,
            epoch=leader.epoch,
            cycles=beat.number,
            last_cycle_ms=beat.duration_ms,
            last_cycle_age_s=max(0, now - beat.ended_ms) / 1000,
            kubernetes=kube,
            slurm=(slurm,),
            ledger_seq=newest,
            problems=tuple(self._problems(beat)),
        )

    def _problems(self, beat: Beat) -> list[Problem]:
        found = [Problem(about="configuration", text=text) for text in beat.world.settings.problems]
        found += [Problem(about=f"act {act}", text=text) for act, text in sorted(self._failures().items())]
        known = readiness.problems(beat.plan.capacity, beat.plan.grants, now_ms=beat.world.now_ms)
        found += [Problem(about=f"node {p.node}", text=p.text) for p in known]
        return found

    def nodes(self) -> Sequence[NodeRow]:
        """Every GPU node, by name, with who holds it."""
        beat = self.beat
        found = []
        demand = demands(beat.plan.capacity, beat.plan.grants)
        holders = _holders(beat.plan.grants)
        for view in beat.plan.capacity:
            record = view.record
            found.append(
                NodeRow(
                    node=view.name,
                    flavor=view.flavor,
                    **asdict(columns.columns(view, demand[view.name])),
                    ready=view.ready,
                    holders=holders.get(view.name, ()),
                    slurm_node=record.name if record else "",
                    slurm_state="+".join([record.state, *sorted(record.flags)]) if record else "",
                    slurm_reason=record.reason if record else "",
                )
            )
        return found

    def quota(self) -> Sequence[QuotaRow]:
        """Every team and flavor, parents before children."""
        return quota_rows(self.beat)

    def queue(self) -> Sequence[QueueRow]:
        """Every workload."""
        return queue.rows(self.beat, self._ledger.ended(limit=ENDED_SHOWN), self._clock.now_ms())

    def explain(self, workload: str) -> Explain:
        """Everything about one workload: its row, what binds it, who holds that, and what happened when."""
        ended = self._ledger.ended(limit=ENDED_SHOWN)
        rows = queue.rows(self.beat, ended, self._clock.now_ms())
        row = next((r for r in rows if r.id == workload), None)
        history = self._ledger.history(WorkloadId(workload))
        if row is None:
            raise NotFoundError(f"workload {workload!r} is not known; `sbridge queue --all` lists those that are")
        grant = next((g for g in (*self.beat.plan.grants, *ended) if g.workload == workload), None)
        return explanation.explain(self.beat, row, rows, history, grant)

    def entries(self, *, after_seq: int, limit: int) -> Sequence[Entry]:
        """Journal entries in order."""
        return self._ledger.log(after_seq=after_seq, limit=limit)

    def verify(self) -> Sequence[port.Problem]:
        """Recompute the ledger."""
        return self._ledger.verify()

    def usage(self, *, from_ms: int, to_ms: int, cuts: Sequence[int] = ()) -> Sequence[Usage]:
        """GPU-ms within the window."""
        return self._ledger.usage(from_ms=from_ms, to_ms=to_ms, cuts=cuts)

    def cancel(self, identity: Identity, workload: str) -> CancelView:
        """Record the intent; the next cycle sends it, and repeats it until the end is seen."""
        now = self._clock.now_ms()
        wanted = Intent(f"cancel/{workload}", "cancel", WorkloadId(workload), now, {"by": identity.name})
        intent = self._ledger.intend(wanted)
        self._wake()
        state = CancelState.CONFIRMED if intent.settled_ms is not None else CancelState.RECORDED
        return CancelView(workload=workload, intent=intent.id, state=state, text=intent.outcome)


def quota_rows(beat: Beat) -> list[QuotaRow]:
    """Return every team and flavor of one beat, parents before children."""
    tree = beat.world.settings.tree
    used: Counter[tuple[TeamName, FlavorName]] = Counter()
    by_system: Counter[tuple[TeamName, FlavorName, System]] = Counter()
    for grant in beat.plan.grants:
        used[grant.team, grant.flavor] += grant.gpus
        by_system[grant.team, grant.flavor, grant.system] += grant.gpus
    pending: Counter[tuple[TeamName, FlavorName]] = Counter()
    held = {grant.workload for grant in beat.plan.grants}
    for workload in beat.plan.demand.waiting:
        if workload.id not in held:
            pending[workload.team, workload.flavor] += workload.gpus
    balances = Balances(tree, used)
    found = []
    for team in tree.teams:
        spec = tree.spec(team)
        for flavor in sorted(spec.quotas):
            found.append(  # noqa: PERF401 -- a comprehension would hide eleven columns
                QuotaRow(
                    team=team,
                    parent=spec.parent,
                    flavor=flavor,
                    guarantee=spec.quotas[flavor].guarantee,
                    limit=spec.quotas[flavor].limit,
                    used_slurm=by_system[team, flavor, System.SLURM],
                    used_kubernetes=by_system[team, flavor, System.KUBERNETES],
                    used_total=balances.total(team, flavor),
                    borrowed=balances.borrowed(team, flavor),
                    available=balances.available(team, flavor),
                    pending=pending[team, flavor],
                )
            )
    return found


def _holders(grants: Iterable[Grant]) -> Mapping[NodeName, tuple[Holder, ...]]:
    """Return who holds each node's devices, by team, system and flavor."""
    held: dict[NodeName, dict[tuple[str, System, str], tuple[int, int]]] = {}
    for grant in grants:
        key = (str(grant.team), grant.system, str(grant.flavor))
        for node, share in grant.placement.items():
            gpus, count = held.setdefault(node, {}).get(key, (0, 0))
            held[node][key] = (gpus + share, count + 1)
    return {
        node: tuple(
            Holder(team=team, system=system, flavor=flavor, gpus=gpus, workloads=count)
            for (team, system, flavor), (gpus, count) in sorted(shares.items())
        )
        for node, shares in held.items()
    }


def _version() -> str:
    return importlib.metadata.version("slurm-kube-bridge")
