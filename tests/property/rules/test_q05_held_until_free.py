"""Q5: held until physically free. The whole controller in memory; kubelet and slurmd take their time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import UnknownStateError
from bridge.kube import port
from bridge.slurm import states
from bridge.slurm.model import Phase
from tests.unit.platform_of_three import PEOPLE, Three

STEPS = st.lists(
    st.tuples(st.sampled_from(["job", "pod", "complete", "free", "delete", "stop", "requeue", "away", "run"]),
              st.integers(0, 9)),
    min_size=6,
    max_size=22,
)  # fmt: skip
TEAMS = sorted(PEOPLE)


class Slow(Three):
    """Deleted pods' containers go on until they are told to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def _kubelet(self) -> None:
        going = [p for p in self.kube.list(port.PODS).items if p["metadata"].get("deletionTimestamp")]
        tenants = {p["metadata"]["name"] for p in going if p["metadata"]["namespace"] in PEOPLE}
        stopped = self.kube.kubelet_stopped
        self.kube.kubelet_stopped = (  # type: ignore[method-assign]
            lambda name, namespace: None if name in tenants else stopped(name, namespace)
        )
        try:
            super()._kubelet()
        finally:
            self.kube.kubelet_stopped = stopped  # type: ignore[method-assign]

    def tenants(self) -> list[tuple[str, str, bool]]:
        """Return (namespace, name, being deleted) of the tenants' pods."""
        return [
            (p["metadata"]["namespace"], p["metadata"]["name"], bool(p["metadata"].get("deletionTimestamp")))
            for p in self.kube.list(port.PODS).items
            if p["metadata"]["namespace"] in PEOPLE
        ]

    def physical(self) -> dict[str, int]:
        """Return the devices on which something of a team really runs, or has not quite ended."""
        held: dict[str, int] = {}
        for job in self.slurm._jobs.values():
            if states.phase(job.state, job.flags) in (Phase.RUNNING, Phase.ENDING) or "COMPLETING" in job.flags:
                held[job.account] = held.get(job.account, 0) + sum(job.allocated.gpus.values())
        for pod in self.kube.list(port.PODS).items:
            team = pod["metadata"]["namespace"]
            if team in PEOPLE and pod["status"].get("phase") == "Running":
                gpus = int(next(iter(pod["spec"]["containers"][0]["resources"]["limits"].values())))
                held[team] = held.get(team, 0) + gpus
        return held

    def act(self, what: str, which: int) -> None:
        """Let one thing happen."""
        jobs = sorted(self.slurm._jobs)
        picked = jobs[which % len(jobs)] if jobs else 0
        phase = states.phase(self.slurm.job(picked).state, self.slurm.job(picked).flags) if picked else None
        pods = self.tenants()
        match what:
            case "job":
                self.job(TEAMS[which % 3], 1 + which % 8)
            case "pod":
                self.made += 1
                self.pod(TEAMS[which % 3], f"w{self.made}", 1 + which % 8)
            case "complete" if phase is Phase.RUNNING:
                self.slurm.complete(picked)
            case "requeue" if phase is Phase.RUNNING:
                self.slurm.requeue_as_user(picked)
            case "free" if phase is Phase.ENDING:
                self.slurm.free(picked)
            case "delete" if pods:
                team, name, _ = pods[which % len(pods)]
                self.kube.delete(port.PODS, name, namespace=team)
            case "stop" if any(going for *_, going in pods):
                team, name = next((team, name) for team, name, going in pods if going)
                self.kube.kubelet_stopped(name, team)
            case "away":
                self.slurm.go_away(UnknownStateError("connection refused"))
                self.cycle.once()
                self.clock.advance(200)
                self.slurm.come_back()


@settings(max_examples=max(8, settings().max_examples // 6), deadline=None)
@given(STEPS)
def test_what_is_charged_never_falls_below_what_really_runs(steps: list[tuple[str, int]]) -> None:
    """Q5: COMPLETING jobs, deleted pods whose containers go on, requeues, outages: the charge stays."""
    platform = Slow()
    for what, which in steps:
        platform.act(what, which)
        for _ in range(2):
            platform.run(1)
            held, physical = platform.held(), platform.physical()
            assert all(held.get(team, 0) >= gpus for team, gpus in physical.items()), f"{physical} run, {held} charged"
    assert not platform.ledger.verify()
    platform.ledger.close()


def test_a_completing_job_and_a_deleted_pod_free_nothing_before_they_are_gone() -> None:
    """Q5: and then they free all of it."""
    platform = Slow()
    job = platform.job("alpha", 8)
    platform.pod("bravo", "web", 4)
    platform.until(lambda: platform.held() == {"alpha": 8, "bravo": 4} and platform.serves("bravo", "web"))
    platform.until(lambda: platform.runs(job))
    platform.slurm.complete(job)
    platform.kube.delete(port.PODS, "web", namespace="bravo")
    platform.run(6)
    assert platform.held() == {"alpha": 8, "bravo": 4}
    platform.slurm.free(job)
    platform.kube.kubelet_stopped("web", "bravo")
    platform.until(lambda: platform.held() == {})
    platform.ledger.close()
