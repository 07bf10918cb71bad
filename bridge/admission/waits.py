"""Why each workload waits, made only when asked: the judgement of the pass, asked again at the state it ended with.

A live view: it speaks of the desk as it is when asked, with the pass's proposals counted until they are recorded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bridge.admission import explain, prospects, refusals
from bridge.admission.ahead import Kept
from bridge.admission.judgement import Verdict, judge
from bridge.admission.queues import Shape
from bridge.admission.round import Round
from bridge.errors import BrokenInvariantError
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import System, Workload, WorkloadId
from bridge.workloads.reasons import Reason, Waiting


class Waits(Mapping[WorkloadId, Waiting]):
    """All flavors' waits as one mapping."""

    def __init__(self, parts: Sequence["SectionWaits"]) -> None:
        """Chain the flavors: each workload waits in one of them."""
        self._parts = tuple(parts)

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def __iter__(self) -> Iterator[WorkloadId]:
        for part in self._parts:
            yield from part

    def __contains__(self, name: object) -> bool:
        return any(name in part for part in self._parts)

    def __getitem__(self, name: WorkloadId) -> Waiting:
        for part in self._parts:
            if name in part:
                return part[name]
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


class SectionWaits(Mapping[WorkloadId, Waiting]):
    """Those of one flavor."""

    def __init__(self, ended: Round, flavors: frozenset[FlavorName]) -> None:
        """Explain what a pass left waiting; `flavors`: those there are."""
        self._round = ended
        self._section = ended.section
        self._flavors = flavors
        self._admitted = {placed.workload.id for placed in ended.placed}
        self._version = -1
        self._told: dict[object, Waiting] = {}  # equal asks are told the same, but for their place in the queue
        self._held: dict[tuple[TeamName, FlavorName, System], int] | None = None

    def __len__(self) -> int:
        return len(self._section.waiting) - sum(1 for name in self._admitted if name in self._section.waiting)

    def __iter__(self) -> Iterator[WorkloadId]:
        return (name for name in self._section.waiting if name not in self._admitted)

    def __contains__(self, name: object) -> bool:
        return name in self._section.waiting and name not in self._admitted

    def __getitem__(self, name: WorkloadId) -> Waiting:
        if name not in self:
            raise KeyError(name)
        section = self._section
        if self._version != section.version:
            self._version, self._held = section.version, None
            self._told.clear()
        workload, shape = section.waiting[name], section.shape(name)
        if shape is None:
            return explain.granted(workload, section.holds(name) or 0)
        refused = refusals.refusal(section, shape)
        if refused is not None:
            return self._refused(workload, shape, refused)
        told = self._blocked(workload, shape)
        place, of = section.queues[workload.team].position(workload)
        return replace(told, numbers={**told.numbers, "position": place, "queue": of})

    def _refused(self, workload: Workload, shape: Shape, reason: Reason) -> Waiting:
        section = self._section
        sentences: dict[Reason, Callable[[], Waiting]] = {
            Reason.UNSUPPORTED: lambda: explain.malformed(workload),
            Reason.NO_SUCH_FLAVOR: lambda: explain.no_such_flavor(workload, self._flavors),
            Reason.UNKNOWN_TEAM: lambda: explain.unknown_team(workload),
            Reason.FLAVOR_CLOSED: lambda: explain.flavor_closed(workload, section.tree),
            Reason.NEVER_FITS_QUOTA: lambda: explain.exceeds_quota(
                workload, section.ceiling(workload.team), refusals.most(section, shape)
            ),
            Reason.NEVER_FITS_NODES: lambda: explain.exceeds_nodes(workload, section.nodes()),
        }
        key = (shape, reason)
        if key not in self._told:
            self._told[key] = sentences[reason]()
        return self._told[key]

    def _blocked(self, workload: Workload, shape: Shape) -> Waiting:
        """Tell what the pass found in the way, in the state that it left."""
        section, ended = self._section, self._round
        earmark = ended.earmarks.get(workload.id) or section.marked(workload.id)
        if earmark is not None:
            told = explain.reclaiming(workload, earmark)
            return replace(told, numbers={**told.numbers, **prospects.reclaiming(earmark)})
        closure = ended.closure(workload, shape)
        before = len(ended.keepers) if closure is None else closure.keepers
        keepers = [each for each in ended.keepers[:before] if each.workload.id != workload.id]
        key = (shape, before, workload.time_limit_s, closure is None)
        if key not in self._told:
            with ended.replay():
                verdict = judge(section, workload, shape, Kept(keepers), ended.now_ms)
                self._told[key] = self._tell(workload, shape, verdict)
        return self._told[key]

    def _tell(self, workload: Workload, shape: Shape, verdict: Verdict) -> Waiting:
        section = self._section
        match verdict.reason:
            case Reason.GUARANTEE_ONLY:
                told = explain.guarantee_only(workload, section.balances)
            case Reason.QUOTA:
                binding = section.balances.binding(workload.team, section.flavor, workload.gpus)
                if binding is None:
                    raise BrokenInvariantError(f"{workload.id} does not fit its quota, yet no tree node binds")
                told = explain.quota(workload, section.balances, binding, self._systems())
            case Reason.BEHIND_GANG if verdict.behind is not None:
                told = explain.behind(workload, verdict.behind.workload)
            case Reason.STARTING:
                told = explain.next_pass(workload)
            case _:
                told = explain.capacity(workload, section.nodes())
        more = prospects.numbers(section, workload, shape, verdict)
        return replace(told, numbers={**told.numbers, **more})

    def _systems(self) -> dict[tuple[TeamName, FlavorName, System], int]:
        """Each subtree's devices by system, with what the pass granted."""
        if self._held is None:
            section, held = self._section, dict[tuple[TeamName, FlavorName, System], int]()
            grants = [(h.grant.team, h.grant.system, h.grant.gpus) for h in section.all_holdings()]
            workloads = [placed.workload for placed in self._round.placed if section.shape(placed.workload.id)]
            waiting = [section.waiting[name] for name in section.earmarks if section.marked(name) is not None]
            waiting += [section.waiting[name] for name in self._round.earmarks if section.marked(name) is None]
            for team, system, gpus in (*grants, *((w.team, w.system, w.gpus) for w in (*workloads, *waiting))):
                for node in section.tree.path(team) if team in section.tree else ():
                    key = (node, section.flavor, system)
                    held[key] = held.get(key, 0) + gpus
            self._held = held
        return self._held
