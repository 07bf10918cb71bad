"""What each custom resource's status says, from one beat, conditions without their times (see `stamped`). Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bridge.capacity.causes import gpu_mismatch, slurm_mismatch
from bridge.capacity.demand import demands
from bridge.capacity.model import NodeView, PodPhase
from bridge.cluster.images import Images
from bridge.controller.cycle import Beat
from bridge.controller.settings import Resources
from bridge.controller.source import quota_rows
from bridge.crd.nodeset import NodeSet
from bridge.kube import port
from bridge.kube.port import Kind, Object
from bridge.quota.model import FlavorName
from bridge.workloads import jobstatus

Told = tuple[Kind, str, str | None, Object]


def statuses(beat: Beat, read: Resources, images: Images) -> Iterator[Told]:
    """Yield (kind, name, namespace, status) of every resource that was read."""
    yield from _teams(beat, read)
    yield from _flavors(beat, read)
    yield from _nodesets(beat, read)
    yield from _clusters(beat, read, images)


def stamped(status: Object, before: Object | None, now_ms: int) -> Object:
    """Return the status with its conditions' times: the earlier one as long as the condition's status stays."""
    if "conditions" not in status:
        return status
    earlier = {(c["type"], c["status"]): c["lastTransitionTime"] for c in (before or {}).get("conditions", [])}
    conditions = [
        {**c, "lastTransitionTime": earlier.get((c["type"], c["status"]), jobstatus.stamp(now_ms))}
        for c in status["conditions"]
    ]
    return {**status, "conditions": conditions}


def _condition(kind: str, *, ok: bool, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": "True" if ok else "False", "reason": reason, "message": message}


def _teams(beat: Beat, read: Resources) -> Iterator[Told]:
    by_team: dict[str, list[Object]] = {}
    for row in quota_rows(beat):
        by_team.setdefault(row.team, []).append(
            {
                "flavor": row.flavor,
                "slurm": row.used_slurm,
                "kubernetes": row.used_kubernetes,
                "borrowed": row.borrowed,
                "available": row.available,
                "pending": row.pending,
            }
        )
    tree, problems = beat.world.settings.tree, beat.world.settings.problems
    for team in read.teams:
        name = team.metadata.name
        accepted = name in tree
        faults = "" if accepted else "; ".join(text for text in problems if name in text)
        told = _condition("Accepted", ok=accepted, reason="InTree" if accepted else "Faulty", message=faults)
        yield port.TEAMS, name, None, {"flavors": by_team.get(name, []) if accepted else [], "conditions": [told]}


def _flavors(beat: Beat, read: Resources) -> Iterator[Told]:
    nodes: Counter[str] = Counter(view.flavor for view in beat.plan.capacity)
    gpus: Counter[str] = Counter()
    for view in beat.plan.capacity:
        gpus[view.flavor] += view.capacity or view.allocatable
    for flavor in read.flavors:
        name = flavor.metadata.name
        told = _condition("Accepted", ok=True, reason="InUse", message="")
        yield port.FLAVORS, name, None, {"nodes": nodes[name], "gpus": gpus[name], "conditions": [told]}


def _nodesets(beat: Beat, read: Resources) -> Iterator[Told]:
    for nodeset in read.nodesets:
        meta = nodeset.metadata
        mine = [v for v in beat.plan.capacity if v.nodeset is not None and v.nodeset.name == meta.name]
        live = [view for view in mine if view.worker is not None and view.worker.live]
        yield (
            port.NODESETS,
            meta.name,
            meta.namespace,
            {
                "observedGeneration": meta.generation,
                "desired": sum(1 for view in live if not _draining(view)),
                "ready": sum(1 for view in live if _ready(view)),
                "busy": sum(1 for view in live if view.record is not None and view.record.occupied),
                "draining": sum(1 for view in live if _draining(view)),
                "conditions": _nodeset_conditions(beat, nodeset, mine),
            },
        )


def _nodeset_conditions(beat: Beat, nodeset: NodeSet, mine: list[NodeView]) -> list[Object]:
    """Tell whether cluster and flavor exist, and where Kubernetes and Slurm count different GPUs (N11)."""
    chosen, spec = beat.world.settings, nodeset.spec
    missing = [] if FlavorName(spec.flavor) in chosen.flavors.names else [f"no Flavor {spec.flavor}"]
    if spec.cluster != chosen.cluster:
        missing.append(f"no served SlurmCluster {spec.cluster}")
    demand = demands(mine, beat.plan.grants)
    texts = ((view.name, gpu_mismatch(view, demand[view.name]) or slurm_mismatch(view)) for view in mine)
    found = [f"{name}: {text}" for name, text in texts if text]
    return [
        _condition("Accepted", ok=not missing, reason="Incomplete" if missing else "InUse", message="; ".join(missing)),
        _condition("GpusAgree", ok=not found, reason="Differ" if found else "Same", message="; ".join(found)),
    ]


def _draining(view: NodeView) -> bool:
    return view.record is not None and view.record.drained


def _ready(view: NodeView) -> bool:
    running = view.worker is not None and view.worker.phase is PodPhase.RUNNING
    return running and view.record is not None and not view.record.drained and view.record.state != "DOWN"


def _clusters(beat: Beat, read: Resources, images: Images) -> Iterator[Told]:
    slurm = beat.world.slurm
    for cluster in read.clusters:
        meta = cluster.metadata
        if meta.name != slurm.cluster:
            continue
        told = _condition("Ready", ok=slurm.ok, reason="Answers" if slurm.ok else "Unreachable", message=slurm.error)
        yield (
            port.SLURMCLUSTERS,
            meta.name,
            meta.namespace,
            {
                "observedGeneration": meta.generation,
                "versions": {"image": cluster.spec.slurmctld.image or images.slurm},
                "conditions": [told],
            },
        )
