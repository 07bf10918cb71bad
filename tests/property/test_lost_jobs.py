"""A job that slurmctld forgot: its charge ends on positive evidence from every worker of its placement only. Rule 5."""

from hypothesis import given
from hypothesis import strategies as st

from bridge.controller import acts, settle
from bridge.workloads.model import GrantState, NodeName, WorkloadId
from tests.unit import worlds

JOB = WorkloadId("slurm/main/k1")
NODES = ("g1", "g2")
STATES = st.sampled_from(["IDLE", "ALLOCATED", "MIXED", "DOWN"])
FLAGS = st.frozensets(st.sampled_from(["DRAIN", "COMPLETING", "NOT_RESPONDING", "PLANNED"]))
SEEN = st.none() | st.tuples(STATES, FLAGS)  # None: the worker's pod is there, slurmctld does not know it yet


@given(
    workers=st.lists(st.none() | st.tuples(SEEN), min_size=2, max_size=2),  # None: no worker pod is there any more
    missing_s=st.integers(0, 30),
    kube_ok=st.booleans(),
)
def test_a_forgotten_job_is_released_when_all_its_workers_are_seen_free_and_not_before(
    workers: list[tuple[tuple[str, frozenset[str]] | None] | None], missing_s: int, kube_ok: bool
) -> None:
    """Q5: busy, completing, silent or unknown workers keep the charge, and so does a read that failed."""
    present = [(node, seen[0]) for node, seen in zip(NODES, workers, strict=True) if seen is not None]
    world = worlds.world(
        pods=[worlds.worker(node) for node, _ in present],
        slurm_nodes=[worlds.slurm_node(node, seen[0], flags=seen[1]) for node, seen in present if seen is not None],
        grants=[worlds.grant(JOB, GrantState.RUNNING, gpus=8, placement={NodeName(node): 4 for node in NODES})],
        missing_ms={JOB: worlds.NOW_MS - 1000 * missing_s},
        kube_ok=kube_ok,
    )
    free = all(
        seen is not None
        and seen[0] not in ("ALLOCATED", "MIXED")
        and seen[1].isdisjoint({"COMPLETING", "NOT_RESPONDING"})
        for _, seen in present
    )
    released = [write for write in settle.settle(world)[0] if isinstance(write, acts.Release)]
    assert bool(released) == (kube_ok and free and 1000 * missing_s >= settle.LOST_AFTER_MS)
