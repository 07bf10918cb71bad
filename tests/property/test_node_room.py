"""What one node may still be granted, against a plain recount. Rule 19."""

from hypothesis import given
from hypothesis import strategies as st

from bridge.admission.plan import admit
from bridge.admission.supply import NodeSupply
from bridge.quota.model import FlavorName, Quota, TeamName, TeamSpec
from bridge.quota.tree import Tree
from bridge.workloads.model import NodeName, System, Workload, WorkloadId

FLAVOR, TEAM, NODE = FlavorName("h100"), TeamName("a"), NodeName("n0")


@st.composite
def nodes(draw: st.DrawFn) -> NodeSupply:
    """Draw a node that serves one system, with pods beside that nobody manages."""
    total = draw(st.integers(1, 8))
    slurm = draw(st.sampled_from([0, draw(st.integers(0, total))]))
    pods = 0 if slurm else draw(st.integers(0, total))
    return NodeSupply(
        NODE,
        FLAVOR,
        total,
        usable=draw(st.integers(0, 4)) > 0,
        slurm=slurm,
        pods=pods,
        unmanaged=0 if slurm else draw(st.integers(0, total - pods)),
        worker_gpus=draw(st.integers(slurm, total)) if slurm else draw(st.sampled_from([None, total])),
        slurm_ok=draw(st.integers(0, 4)) > 0,
    )


@given(nodes(), st.sampled_from(System), st.integers(1, 8))
def test_a_node_is_granted_exactly_what_it_has_left_for_that_system(
    node: NodeSupply, system: System, gpus: int
) -> None:
    """Q19: each GPU is counted once, whoever holds it; what is drained or unmanaged is never granted."""
    left = node.total - node.slurm - node.pods - node.unmanaged
    if system is System.KUBERNETES:
        free = node.usable and not node.slurm and left >= gpus
    else:
        alone = not (node.pods or node.unmanaged)
        worker = node.worker_gpus if node.slurm and node.worker_gpus is not None else node.total
        free = node.usable and node.slurm_ok and alone and min(left, worker - node.slurm) >= gpus
    tree = Tree.build([TeamSpec(TEAM, quotas={FLAVOR: Quota(8)})])
    workload = Workload(WorkloadId("w"), system, TEAM, FLAVOR, 1, gpus, 0)
    admitted = admit([workload], tree, [], [node], flavors=[FLAVOR]).admitted
    assert [dict(placed.placement) for placed in admitted] == ([{NODE: gpus}] if free else [])
