"""Mutations of what the controller makes of a try to take GPUs back."""

from tests.property.mutants.mutation import Mutation

PREEMPT = "bridge.controller.preempt"
COMES_BACK = ("tests/property/rules/test_q09_guarantee_comes_back.py",)

MUTATIONS = (
    Mutation(
        "pods-are-never-evicted",
        "Q9",
        PREEMPT,
        "        out.acts.append(acts.EvictPod(pod, told))",
        "        pass",
        "what pods borrow never comes back",
        COMES_BACK,
    ),
    Mutation(
        "waits-a-grace-that-nobody-asked-for",
        "Q9",
        PREEMPT,
        "    if task.job.signal is None:\n        return True\n",
        "    if task.job.signal is None:\n        return world.now_ms >= intent.at_ms + victim.grace_ms\n",
        "a job without a signal runs on for its team's whole grace",
        COMES_BACK,
    ),
    Mutation(
        "requeues-at-the-signal",
        "Q13",
        PREEMPT,
        "    return world.now_ms >= record.settled_ms + victim.grace_ms",
        "    return True",
        "a job has no time to save its work",
    ),
    Mutation(
        "counts-the-grace-from-the-decision-and-again",
        "Q13",
        PREEMPT,
        "    if record is None or record.settled_ms is None:\n        out.acts",
        "    if record is None or world.now_ms < record.settled_ms + victim.grace_ms:\n        out.acts",
        "a job gets its signal in every cycle of its grace",
    ),
    Mutation(
        "deletes-pods-instead-of-evicting-them",
        "Q13",
        PREEMPT,
        "acts.EvictPod(pod, told)",
        "acts.DeletePod(pod, told)",
        "disruption budgets are passed over",
    ),
)
