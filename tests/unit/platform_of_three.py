"""Three teams on two nodes, the whole controller in memory: alpha is guaranteed what bravo and charlie borrow."""

from typing import Any, Final

from bridge import wellknown
from bridge.kube import port
from bridge.kube.port import Object
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads.model import GrantState
from tests.unit import worlds
from tests.unit.test_controller_cycle import Platform, _object

PEOPLE: Final = {"alpha": ("alice", 2001), "bravo": ("bob", 2002), "charlie": ("carol", 2003)}
GUARANTEES: Final = {"alpha": 8, "bravo": 4, "charlie": 4}


class Three(Platform):
    """alpha 8, bravo 4, charlie 4 of the 16 h100 on g1 and g2. `terms`: bravo's preemption."""

    def __init__(self, terms: dict[str, Any] | None = None) -> None:
        self._terms = terms or {}
        super().__init__()

    def job(self, team: str, gpus: int, **asked: object) -> int:
        """Submit a Slurm job for a team."""
        user, uid = PEOPLE[team]
        return self.slurm.sbatch(user=user, uid=uid, account=team, gpus={"h100": gpus}, **asked)  # type: ignore[arg-type]

    def pod(self, team: str, name: str, gpus: int, **spec: Any) -> None:
        """Create a gated pod as the policy leaves it."""
        made = worlds.pod(name, gpus, team=team, **spec)
        made["metadata"]["name"] = name
        del made["metadata"]["uid"], made["metadata"]["creationTimestamp"]
        made["metadata"]["labels"]["app"] = name
        self.kube.create(port.PODS, {"apiVersion": "v1", "kind": "Pod", **made}, namespace=team)

    def found(self, team: str, name: str) -> Object:
        """Return a pod."""
        return self.kube.get(port.PODS, name, namespace=team)

    def names(self, team: str) -> set[str]:
        """Return the pods of a team."""
        return {p["metadata"]["name"] for p in self.kube.list(port.PODS, namespace=team).items}

    def runs(self, job_id: int) -> bool:
        """Return whether a job runs."""
        job = self.slurm.job(job_id)
        return states.phase(job.state, job.flags) is Phase.RUNNING

    def serves(self, team: str, name: str) -> bool:
        """Return whether a pod runs."""
        return bool(self.found(team, name)["status"].get("phase") == "Running")

    def held(self) -> dict[str, int]:
        """Return what each team holds."""
        held: dict[str, int] = {}
        for grant in self.ledger.grants(holding=True):
            held[grant.team] = held.get(grant.team, 0) + grant.gpus
        return held

    def running(self) -> set[str]:
        """Return the workloads that are charged for running."""
        return {g.workload for g in self.ledger.grants(holding=True) if g.state is GrantState.RUNNING}

    def tries(self) -> list[str]:
        """Return the outcome of each try to take something back, in order; "" while it goes on."""
        return [intent.outcome for intent in self.ledger.intents(open_only=False) if intent.kind == "preempt"]

    def notes(self) -> list[str]:
        """Return why ended grants ended."""
        return [grant.note for grant in self.ledger.grants(holding=False) if not grant.holds]

    def events(self, team: str, reason: str) -> list[str]:
        """Return messages of events in a team's namespace."""
        every = self.kube.list(port.EVENTS, namespace=team).items
        return [event["message"] for event in every if event["reason"] == reason]

    def settle(self) -> None:
        """Let what is COMPLETING be gone from its nodes."""
        for job in self.slurm.jobs():
            if states.phase(job.state, job.flags) is Phase.ENDING:
                self.slurm.free(job.job_id)

    def _configure(self) -> None:
        super()._configure()
        self.kube.delete(port.TEAMS, "vision")
        whole = {"quotas": [{"flavor": "h100", "guarantee": 16}]}
        self.kube.create(port.TEAMS, _object(port.TEAMS, "org", whole))
        for team, (user, uid) in PEOPLE.items():
            spec = {
                "parent": "org",
                "quotas": [{"flavor": "h100", "guarantee": GUARANTEES[team]}],
                "members": [{"user": user, "slurmUser": user, "uid": uid, "gid": uid}],
                "defaultUser": user,
                **({"preemption": self._terms} if team == "bravo" and self._terms else {}),
            }
            self.kube.create(port.TEAMS, _object(port.TEAMS, team, spec))
            space = _object(port.NAMESPACES, team, {})
            space["metadata"]["labels"] = {wellknown.TEAM_LABEL: team}
            self.kube.create(port.NAMESPACES, space)
        self.add_node("g2")

    def add_node(self, name: str) -> None:
        """Add a node of 8 h100."""
        node = {"apiVersion": "v1", "kind": "Node", **worlds.node(name)}
        self.kube.create(port.NODES, node)
        self.kube.patch(port.NODES, name, {"status": node["status"]}, subresource="status")
