"""Acts towards Slurm, carried out through the port."""

from typing import Any, Final

from bridge.capacity.model import DrainWorker, ForgetNode, UndrainWorker
from bridge.clock import Clock
from bridge.controller import acts
from bridge.errors import NotFoundError, RejectedError
from bridge.ledger.port import Ledger
from bridge.slurm.port import Slurm

KINDS: Final = (
    acts.SubmitJob, acts.ReleaseJob, acts.HoldJob, acts.RequeueJob, acts.RetryJob, acts.SignalJob, acts.CancelJob,
    acts.AnnotateJob, DrainWorker, UndrainWorker, ForgetNode,
)  # fmt: skip


class SlurmHands:
    """Does Slurm acts; settles a submission's intent with slurmctld's answer."""

    def __init__(self, slurm: Slurm, ledger: Ledger, clock: Clock) -> None:
        self._slurm = slurm
        self._ledger = ledger
        self._clock = clock

    def do(self, act: Any) -> bool:  # noqa: C901 -- one line per kind of act
        """Carry out one act; True: Slurm was written to."""
        match act:
            case acts.SubmitJob():
                self._submit(act)
            case acts.ReleaseJob():
                self._slurm.release(act.ref, act.slurm_nodes)
            case acts.HoldJob():
                self._slurm.hold(act.ref)
            case acts.RequeueJob():
                self._slurm.requeue(act.ref)
            case acts.RetryJob():
                self._slurm.retry(act.ref)
            case acts.SignalJob():
                self._signal(act)
            case acts.CancelJob():
                self._slurm.cancel(act.ref)
            case acts.AnnotateJob():
                self._slurm.annotate(act.ref, act.text)
            case DrainWorker():
                self._slurm.drain(act.slurm_node, act.reason)
            case UndrainWorker():
                self._slurm.undrain(act.slurm_node)
            case ForgetNode():
                self._forget(act.slurm_node)
            case _:
                return False
        return True

    def _forget(self, node: str) -> None:
        try:
            self._slurm.forget(node)
        except NotFoundError:
            return  # gone already is what was wanted

    def _signal(self, act: acts.SignalJob) -> None:
        """Send, then record when: the job's grace counts from there. One whose answer was lost is sent again.

        A refusal is an outcome, too: a job that cannot be signalled has its grace all the same, and no more than that.
        """
        outcome = "sent"
        try:
            self._slurm.signal(act.ref, act.signal)
        except RejectedError as refused:
            outcome = f"refused: {refused}"
        self._ledger.settle(act.intent_id, outcome=outcome, at_ms=self._clock.now_ms())

    def _submit(self, act: acts.SubmitJob) -> None:
        """Submit; a refusal is an outcome too, a lost answer is left open to be settled by looking."""
        try:
            job_id = self._slurm.submit(act.spec)
        except RejectedError as refused:
            self._ledger.settle(act.intent_id, outcome=f"rejected: {refused}", at_ms=self._clock.now_ms())
            return
        self._ledger.settle(act.intent_id, outcome=f"job {job_id}", at_ms=self._clock.now_ms())
