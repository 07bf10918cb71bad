"""Q21: a wait is explained by one query: node, holders, numbers, earliest bound; from squeue, kubectl and the API."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.controller.source import BeatSource, Leader
from bridge.quota.model import Quota, TeamName, TeamSpec
from bridge.workloads import jobstatus
from bridge.workloads.model import System, WorkloadId
from bridge.workloads.reasons import Reason
from tests.property.oracle_platform import FLAVORS, Platform, eights, flat, in_memory
from tests.unit.platform_of_three import Three

CROWD = st.lists(
    st.tuples(st.sampled_from(["alpha", "bravo", "charlie"]), st.booleans(), st.integers(1, 8)), min_size=4, max_size=9
)


def with_source(platform: Three) -> BeatSource:
    """Publish each cycle to the API's source."""
    source = BeatSource(
        platform.ledger,
        platform.clock,
        leader=lambda: Leader("test", 1, leading=True),
        failures=dict,
        wake=lambda: None,
    )
    platform.cycle._publish = source.publish
    return source


@settings(max_examples=max(6, settings().max_examples // 8), deadline=None)
@given(CROWD)
def test_squeue_kubectl_and_the_api_give_the_same_reason_and_sentence(crowd: list[tuple[str, bool, int]]) -> None:
    """Q21: for everything that waits, after a crowd of jobs and pods has come to rest."""
    platform = Three()
    source = with_source(platform)
    jobs: dict[int, str] = {}
    for number, (team, is_job, gpus) in enumerate(crowd):
        if is_job:
            jobs[platform.job(team, gpus)] = team
        else:
            platform.pod(team, f"w{number}", gpus)
    for _ in range(12):
        platform.run(1)
        platform.settle()
    beat = source.beat
    for name, waits in beat.plan.waits.items():
        told = source.explain(name)
        assert (told.workload.reason, told.workload.text) == (waits.reason, waits.text)
    for job_id in jobs:
        job = platform.slurm.job(job_id)
        known = beat.plan.waits.get(WorkloadId(f"slurm/main/{job.key}"))
        if known is not None:
            assert job.comment_text == f"{known.reason.value}: {known.text}"
    for number, (team, is_job, _) in enumerate(crowd):
        if not is_job and f"w{number}" in platform.names(team):
            pod = platform.found(team, f"w{number}")
            known = beat.plan.waits.get(WorkloadId(f"pod/{pod['metadata']['uid']}"))
            shown = [c for c in pod["status"].get("conditions", []) if c["type"] == jobstatus.ADMITTED_CONDITION]
            if known is not None:
                assert [(c["reason"], c["message"]) for c in shown] == [(known.reason.value, known.text)]
    platform.ledger.close()


@given(st.sampled_from(["team", "parent"]), st.sampled_from(list(System)), st.integers(1, 8))
def test_the_binding_node_its_numbers_and_the_holders_are_named(level: str, system: System, gpus: int) -> None:
    """Q21: the limit of the team binds, or that of its parent, with what is held there, and by whom."""
    h100, names = FLAVORS[0], [TeamName(name) for name in ("parent", "team", "sibling")]
    specs = flat({"parent": 32})
    limits = {"team": 8 if level == "team" else None, "parent": 8 if level == "parent" else None, "sibling": None}
    specs = [
        specs[0],
        TeamSpec(names[0], specs[0].name, 1, {h100: Quota(32 if level == "team" else 8, limits["parent"])}),
        *(TeamSpec(name, names[0], 1, {h100: Quota(0, limits[name])}) for name in names[1:]),
    ]
    platform = Platform(1, in_memory(), specs=specs, nodes=eights(4))
    platform.ask("team", 2, system=system, time_limit_s=600)
    platform.ask("sibling" if level == "parent" else "team", 6, system=system, time_limit_s=1200)
    platform.pass_and_record_all()
    w = platform.ask("team", gpus, system=system)
    waits = platform.decide().waiting[w.id]
    assert waits.reason is Reason.QUOTA
    told = {key: waits.numbers[key] for key in ("team", "binding", "held", "of", "asks", "available")}
    assert told == {"team": "team", "binding": level, "held": 8, "of": 8, "asks": gpus, "available": 0}
    assert waits.numbers["holders"] == ("sibling 6, team 2" if level == "parent" else "team 8")
    ends_s = 600 if gpus <= 2 else 1200
    assert waits.numbers["earliest_ms"] == platform.now_ms + ends_s * 1000
    assert level in waits.text
    assert str(gpus) in waits.text
