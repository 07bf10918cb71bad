"""Q18: serving: running replicas <= granted, surge charged, scale-to-zero frees."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import wellknown
from bridge.kube import port
from bridge.kube.port import Object
from bridge.workloads.model import WorkloadId
from tests.unit.platform_of_three import Three

TEAM = "bravo"
GUARANTEE = 4
SCALES = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=7)


def gated(pod: Object) -> bool:
    return any(gate["name"] == wellknown.QUOTA_GATE for gate in pod["spec"].get("schedulingGates") or [])


class Deployment:
    """Does what the controllers of a Deployment do: makes and deletes pods, a new set of them for each version."""

    def __init__(self, platform: Three, gpus: int) -> None:
        self.platform, self.gpus = platform, gpus
        self.version = self.made = 0

    def pods(self) -> list[Object]:
        return [self.platform.found(TEAM, name) for name in sorted(self.platform.names(TEAM))]

    def scale(self, replicas: int, *, roll: bool) -> None:
        """Make what is missing; a rolled one surges by all replicas before the old ones go."""
        old = [p["metadata"]["name"] for p in self.pods() if not p["metadata"].get("deletionTimestamp")]
        if roll:
            self.version += 1
        mine = [name for name in old if name.startswith(f"v{self.version}-")]
        for _ in range(replicas - len(mine)):
            self.made += 1
            self.platform.pod(TEAM, f"v{self.version}-{self.made}", self.gpus)
        self.check()
        self.platform.run(3)
        self.check()
        for name in [name for name in old if name not in mine] + mine[replicas:]:
            self.platform.kube.delete(port.PODS, name, namespace=TEAM)

    def check(self) -> None:
        """No pod without its gate that is not charged, none charged twice, and never more than there is."""
        granted = {g.workload: g.gpus for g in self.platform.ledger.grants() if g.team == TEAM}
        open_ones = [p for p in self.pods() if not gated(p)]
        for pod in open_ones:
            assert granted.get(WorkloadId(f"pod/{pod['metadata']['uid']}")) == self.gpus, (
                "a replica runs that nobody granted"
            )
        assert sum(granted.values()) <= 16
        assert len(granted) == len({g.workload for g in self.platform.ledger.grants() if g.team == TEAM})


@settings(max_examples=max(8, settings().max_examples // 6), deadline=None)
@given(SCALES, st.sampled_from([1, 2, 4]))
def test_replicas_run_only_as_granted_surges_are_charged_and_zero_frees_all(
    scales: list[tuple[int, bool]], gpus: int
) -> None:
    """Q18: a Deployment is scaled and rolled at random; in the end it is scaled to zero."""
    platform = Three()
    deployment = Deployment(platform, gpus)
    for replicas, roll in scales:
        deployment.scale(replicas, roll=roll)
        for _ in range(4):
            platform.run(1)
            deployment.check()
    deployment.scale(0, roll=False)
    platform.until(lambda: platform.held() == {})
    assert platform.names(TEAM) == set()
    assert not platform.ledger.verify()
    platform.ledger.close()


def test_only_as_many_replicas_run_as_are_granted_and_the_rest_waits_with_its_gate() -> None:
    """Q18: others are within their guarantee; of six replicas those run that quota admits."""
    platform = Three()
    for team, gpus in (("alpha", 8), ("charlie", 4)):
        job = platform.job(team, gpus)
        platform.until(lambda job=job: platform.runs(job))  # type: ignore[misc]
    deployment = Deployment(platform, 1)
    deployment.scale(6, roll=False)
    platform.run(12)
    running = [p for p in deployment.pods() if not gated(p)]
    assert platform.held() == {"alpha": 8, "charlie": 4, **({TEAM: len(running)} if running else {})}
    assert len(running) <= GUARANTEE
    assert all(p["status"].get("phase") == "Pending" for p in deployment.pods() if gated(p))
    platform.ledger.close()
