"""Mutations of what the bridge concludes from the two systems: starts, ends, orphans, serving."""

from tests.property.mutants.mutation import Mutation

PODS = "bridge.workloads.pods"
ROUTE = "bridge.controller.route"
SETTLE = "bridge.controller.settle"
STATES = "bridge.slurm.states"
LOST = ("tests/property/test_lost_jobs.py",)

MUTATIONS = (
    Mutation(
        "completing-counts-as-ended",
        "Q5",
        STATES,
        "    if not _ENDING.isdisjoint(flags):\n        return Phase.ENDING\n",
        "",
        "a charge ends while processes still hold the devices",
    ),
    Mutation(
        "deletion-frees-a-pod",
        "Q5",
        PODS,
        """if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):""",
        """if deleting(pod) or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):""",
        "a charge ends when deletion starts, not when the containers have stopped",
    ),
    Mutation(
        "a-lost-job-frees-a-busy-worker",
        "Q5",
        SETTLE,
        'if record is None or record.busy or "NOT_RESPONDING" in record.flags:',
        'if record is None or "NOT_RESPONDING" in record.flags:',
        "what slurmctld forgot is taken to be free while it runs",
        LOST,
    ),
    Mutation(
        "an-orphan-is-left-running",
        "Q6",
        ROUTE,
        'routed.slurm.append(acts.CancelJob(task.ref, "its Job is deleted"))\n        return',
        "return",
        "the Slurm job of a deleted Job goes on",
    ),
    Mutation(
        "the-finalizer-stays",
        "Q6",
        ROUTE,
        "routed.kube.append(acts.DropFinalizer(job))",
        "del job",
        "the owner of an orphan can never be deleted",
    ),
    Mutation(
        "a-pod-that-is-gone-keeps-its-charge",
        "Q18",
        SETTLE,
        '        yield from _ended(grant, last, world, "pod gone")\n        return',
        "        del last\n        return",
        "scaling to zero frees nothing",
    ),
)
