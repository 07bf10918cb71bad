"""Acts towards Kubernetes, carried out through the gateway."""

from collections.abc import Callable
from typing import Any

from bridge import wellknown
from bridge.capacity.model import CreateWorker, DeleteWorker, TaintNode, UntaintNode
from bridge.clock import Clock
from bridge.controller import acts
from bridge.errors import ConflictError, NotFoundError, RejectedError
from bridge.kube import eviction, port
from bridge.kube.events import EventWriter
from bridge.kube.port import Gateway, Object, PatchType
from bridge.workloads import jobstatus


class KubeHands:
    """Does Kubernetes acts. `worker` and `mirror` render the two kinds of pods that are ours."""

    def __init__(
        self,
        gateway: Gateway,
        events: EventWriter,
        clock: Clock,
        *,
        worker: Callable[[CreateWorker], Object],
        mirror: Callable[[acts.CreateMirror], Object],
        worker_namespace: Callable[[], str],
        remember: Callable[[port.Kind, Object], None],
    ) -> None:
        self._gateway = gateway
        self._events = events
        self._clock = clock
        self._worker = worker
        self._mirror = mirror
        self._worker_namespace = worker_namespace
        self._remember = remember

    def do(self, act: Any) -> bool:  # noqa: PLR0912, C901 -- one line per kind of act
        """Carry out one act; what is gone already needs nothing. Always False: Slurm was not touched."""
        try:
            match act:
                case acts.UngatePod():
                    self._ungate(act)
                case acts.TellPod():
                    self._tell_pod(act)
                case acts.TellJob():
                    self._tell_job(act)
                case acts.Announce():
                    self._events.emit(act.object, act.reason, act.message, warning=act.warning)
                case acts.DeletePod():
                    self._delete(act.pod)
                case acts.EvictPod():
                    self._evict(act)
                case acts.EndMirror():
                    self._annotate(act.pod, {wellknown.MIRROR_ENDED_ANNOTATION: str(act.exit_code)})
                case acts.DropFinalizer():
                    self._drop_finalizer(act.job)
                case acts.CreateMirror():
                    self._create(self._mirror(act))
                case CreateWorker():
                    self._create(self._worker(act))
                case DeleteWorker():
                    self._gateway.delete(port.PODS, act.pod, namespace=self._worker_namespace(), uid=act.uid)
                case TaintNode() | UntaintNode():
                    self._taint(act)
                case _:
                    raise TypeError(f"no hands for {type(act).__name__}")
        except NotFoundError:
            return False
        return False

    def _create(self, pod: Object) -> None:
        try:
            made = self._gateway.create(port.PODS, pod, namespace=pod["metadata"]["namespace"])
        except ConflictError:
            return  # made by an earlier, interrupted cycle
        self._remember(port.PODS, made)

    def _delete(self, pod: Object) -> None:
        meta = pod["metadata"]
        self._gateway.delete(port.PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])

    def _evict(self, act: acts.EvictPod) -> None:
        """Evict; a refusal by a disruption budget is told to the pod's owner, and stays an act that failed."""
        name = act.pod["metadata"]["name"]
        evicted = eviction.evict(self._gateway, act.pod)
        if evicted.outcome is eviction.Outcome.REFUSED:
            told = f"{act.why}; not evicted yet: {evicted.sentence}"
            self._events.emit(act.pod, "EvictionRefused", told, warning=True)
            raise RejectedError(f"pod {name} is not evicted: {evicted.sentence}")
        if evicted.outcome is eviction.Outcome.BEGUN:
            self._events.emit(act.pod, "Preempted", act.why, warning=True)

    def _ungate(self, act: acts.UngatePod) -> None:
        """Pin and ungate in one patch that applies only to this very pod while it still has the gate."""
        meta, spec = act.pod["metadata"], act.pod["spec"]
        gates = [gate["name"] for gate in spec["schedulingGates"]]
        where = f"/spec/schedulingGates/{gates.index(wellknown.QUOTA_GATE)}"
        selector = {**(spec.get("nodeSelector") or {}), wellknown.HOSTNAME_LABEL: act.node}
        made = self._gateway.patch(
            port.PODS,
            meta["name"],
            [
                {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
                {"op": "test", "path": where, "value": {"name": wellknown.QUOTA_GATE}},
                {"op": "remove", "path": where},
                {"op": "add", "path": "/spec/nodeSelector", "value": selector},
            ],
            namespace=meta["namespace"],
            type=PatchType.JSON,
        )
        self._remember(port.PODS, made)

    def _tell_pod(self, act: acts.TellPod) -> None:
        meta = act.pod["metadata"]
        condition = {
            "type": jobstatus.ADMITTED_CONDITION,
            "status": act.status,
            "reason": act.reason,
            "message": act.message,
            "lastTransitionTime": jobstatus.stamp(self._clock.now_ms()),
        }
        made = self._gateway.patch(
            port.PODS,
            meta["name"],
            {"status": {"conditions": [condition]}},
            namespace=meta["namespace"],
            type=PatchType.STRATEGIC,
            subresource="status",
        )
        self._remember(port.PODS, made)
        self._events.emit(act.pod, act.reason, act.message, warning=False)

    def _tell_job(self, act: acts.TellJob) -> None:
        meta = act.job["metadata"]
        for status in jobstatus.steps(act.job, act.status):
            made = self._gateway.patch(
                port.JOBS, meta["name"], {"status": status}, namespace=meta["namespace"], subresource="status"
            )
            self._remember(port.JOBS, made)

    def _annotate(self, pod: Object, annotations: dict[str, str]) -> None:
        meta = pod["metadata"]
        made = self._gateway.patch(
            port.PODS, meta["name"], {"metadata": {"annotations": annotations}}, namespace=meta["namespace"]
        )
        self._remember(port.PODS, made)

    def _drop_finalizer(self, job: Object) -> None:
        meta = job["metadata"]
        index = meta["finalizers"].index(wellknown.JOB_FINALIZER)
        where = f"/metadata/finalizers/{index}"
        self._gateway.patch(
            port.JOBS,
            meta["name"],
            [
                {"op": "test", "path": where, "value": wellknown.JOB_FINALIZER},
                {"op": "remove", "path": where},
            ],
            namespace=meta["namespace"],
            type=PatchType.JSON,
        )

    def _taint(self, act: TaintNode | UntaintNode) -> None:
        """Set or lift our own taint on the node as it stands now; others' taints are kept."""
        node = self._gateway.get(port.NODES, act.node)
        taints = [t for t in node["spec"].get("taints") or [] if t["key"] != wellknown.DRAINED_TAINT]
        if isinstance(act, TaintNode):
            taints.append({"key": wellknown.DRAINED_TAINT, "effect": "NoSchedule"})
        version = node["metadata"]["resourceVersion"]
        made = self._gateway.patch(
            port.NODES, act.node, {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
        )
        self._remember(port.NODES, made)
        if isinstance(act, TaintNode):
            self._events.emit(node, "DrainedInSlurm", act.cause, warning=True)
        else:
            self._events.emit(node, "DrainLiftedInSlurm", "Slurm's drain was lifted", warning=False)
