"""Q19: each GPU counted once; drained and unmanaged never granted."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.kube import port
from bridge.slurm import states
from bridge.slurm.model import Phase
from bridge.workloads.model import System
from tests.property.oracle_platform import Platform, Shape, in_memory
from tests.unit.platform_of_three import PEOPLE, Three

TEAMS = sorted(PEOPLE)
STEPS = st.lists(
    st.tuples(st.sampled_from(["job", "pod", "end", "cordon", "uncordon", "stranger", "drain"]), st.integers(0, 9)),
    min_size=5,
    max_size=16,
)


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(st.integers(0, 2**32))
def test_no_decision_uses_a_device_twice_or_one_that_is_out_of_service_or_unmanaged(seed: int) -> None:
    """Q19: recounted per node after every decision, beside all that holds and is earmarked."""
    platform = Platform(seed, in_memory(), Shape(teams=4, nodes=5))
    for _ in range(20):
        platform.step()
        told = platform.decide()
        on = {name: dict.fromkeys(System, 0) for name in platform.nodes}
        granted = {placed.workload.id for placed in told.admitted}
        for grant in platform.ledger.grants():
            for name, gpus in grant.placement.items():
                on[name][grant.system] += gpus
        for asker, mark in platform.marks().items():
            if asker not in granted and mark.lapses_ms > platform.now_ms and asker in told.waiting:
                for name, gpus in mark.placement.items():
                    on[name][platform.asked[asker].system] += gpus
        for placed in told.admitted:
            for name, gpus in placed.placement.items():
                on[name][placed.workload.system] += gpus
        for name in {name for placed in told.admitted for name in placed.placement}:
            node, held = platform.nodes[name], on[name]
            assert node.usable, f"{name} is out of service"
            assert sum(held.values()) + node.unmanaged <= node.total, f"{name}: {held} of {node.total}"
            assert not all(held.values()), f"{name} serves two systems"


class Fleet(Three):
    """Nodes that go out of service, and pods that the bridge does not manage."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def act(self, what: str, which: int) -> None:
        """Let one thing happen."""
        node = f"g{1 + which % 2}"
        running = [
            i for i, job in sorted(self.slurm._jobs.items()) if states.phase(job.state, job.flags) is Phase.RUNNING
        ]
        match what:
            case "job":
                self.job(TEAMS[which % 3], 1 + which % 8)
            case "pod":
                self.made += 1
                self.pod(TEAMS[which % 3], f"w{self.made}", 1 + which % 8)
            case "end" if running:
                self.slurm.complete(running[which % len(running)])
                self.settle()
            case "cordon" | "uncordon":
                self.kube.patch(port.NODES, node, {"spec": {"unschedulable": what == "cordon"}})
            case "stranger" if not self._uses(node):
                self.made += 1
                spec = {
                    "nodeName": node,
                    "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
                }
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"s{self.made}"}, "spec": spec}
                self.kube.create(port.PODS, pod, namespace="strangers")
                self.kube.patch(
                    port.PODS, f"s{self.made}", {"status": {"phase": "Running"}},
                    namespace="strangers", subresource="status",
                )  # fmt: skip
            case "drain" if f"h100-{node}" in {n.name for n in self.slurm.nodes()}:
                self.slurm.drain_as(f"h100-{node}", "bad fan", "root")

    def _uses(self, node: str) -> bool:
        return any(node in grant.placement for grant in self.ledger.grants()) or any(
            pod["spec"].get("nodeName") == node for pod in self.kube.list(port.PODS).items
        )

    def out_of_service(self) -> set[str]:
        return {
            node["metadata"]["name"]
            for node in self.kube.list(port.NODES).items
            if (node.get("spec") or {}).get("unschedulable")
        }


@settings(max_examples=max(8, settings().max_examples // 6), deadline=None)
@given(STEPS)
def test_the_ledgers_columns_hold_each_device_of_a_node_exactly_once(steps: list[tuple[str, int]]) -> None:
    """Q19: the whole controller: columns sum to the node, and no grant is new on a node that is out of service."""
    platform = Fleet()
    platform.run(2)
    for what, which in steps:
        platform.act(what, which)
        for _ in range(3):
            out = platform.out_of_service()
            before = {(g.workload, g.attempt) for g in platform.ledger.grants(holding=False)}
            platform.run(1)
            for row in platform.ledger.capacity_rows():
                assert row.worker + row.pods + row.unmanaged + row.idle + row.unavailable == row.total == 8
                if row.node in out:
                    assert row.idle == 0, "what is out of service is not idle"
            held: dict[str, int] = {}
            for grant in platform.ledger.grants():
                for name, gpus in grant.placement.items():
                    held[name] = held.get(name, 0) + gpus
                if (grant.workload, grant.attempt) not in before:
                    assert not out & set(grant.placement), f"{grant.workload} is new on {dict(grant.placement)}"
            strangers: dict[str, int] = {}
            for pod in platform.kube.list(port.PODS, namespace="strangers").items:
                strangers[pod["spec"]["nodeName"]] = strangers.get(pod["spec"]["nodeName"], 0) + 1
            for where in {*held, *strangers}:
                assert held.get(where, 0) + strangers.get(where, 0) <= 8, f"{where} is given away twice"
    assert not platform.ledger.verify()
    platform.ledger.close()
