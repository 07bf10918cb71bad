"""Mutations of order, fit, keeping, earmarks and explanations."""

from tests.property.mutants.mutation import Mutation

EXPLAIN = "bridge.admission.explain"
FAIRSHARE = "bridge.quota.fairshare"
JUDGEMENT = "bridge.admission.judgement"
KEEPING = "bridge.admission.keeping"
PROSPECTS = "bridge.admission.prospects"
ROUND = "bridge.admission.round"
SECTION = "bridge.admission.section"
SUPPLY = "bridge.admission.supply"
WAITS = "bridge.admission.waits"
DESK = ("tests/property/test_desk.py",)
TOGETHER = ("tests/property/test_reclaim_pass.py",)
ROOM = ("tests/property/test_node_room.py",)
PASS = ("tests/property/test_admission.py",)

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "grants-are-not-charged-within-a-pass",
        "Q2",
        ROUND,
        "        self._charge(expected(workload, placed.placement, STARTED, self.now_ms))",
        "        del workload",
        "two workloads win the last GPU",
        DESK,
    ),
    Mutation(
        "borrows-for-what-cannot-be-taken-back",
        "Q10",
        JUDGEMENT,
        "    if not shape.preemptible and not within:\n        return Verdict(Reason.GUARANTEE_ONLY, within)\n",
        "",
        "a guarantee is lent to work that can be no victim",
        DESK,
    ),
    Mutation(
        "earmarks-are-not-charged",
        "Q12",
        SECTION,
        "            wanted = (earmark, expected(workload, earmark.placement, EARMARKED))",
        "            wanted = None",
        "what victims free is taken by others",
        DESK,
    ),
    Mutation(
        "proposed-earmarks-are-not-charged",
        "Q12",
        ROUND,
        "        self._charge(expected(workload, earmark.placement, EARMARKED))",
        "        del workload, earmark",
        "one pass promises the same GPUs to two",
        TOGETHER,
    ),
    Mutation(
        "keeps-nothing",
        "Q16",
        KEEPING,
        "return self.ends or (self.within and not within)",
        "return False",
        "small work passes a waiting gang for ever",
        PASS,
    ),
    Mutation(
        "backfills-what-does-not-end-in-time",
        "Q16",
        KEEPING,
        "now_ms + limit_ms <= self.earliest_ms",
        "now_ms <= self.earliest_ms",
        "work with any time limit passes a waiting gang",
        PASS,
    ),
    Mutation(
        "grants-on-nodes-out-of-service",
        "Q19",
        SUPPLY,
        "        if not self.usable:\n            return 0\n",
        "",
        "a cordoned node is granted",
        ROOM,
    ),
    Mutation(
        "grants-what-unmanaged-pods-hold",
        "Q19",
        SUPPLY,
        "return 0 if slurm else max(0, self.total - pods - self.unmanaged)",
        "return 0 if slurm else max(0, self.total - pods)",
        "a GPU is counted twice",
        ROOM,
    ),
    Mutation(
        "history-does-not-count",
        "Q22",
        FAIRSHARE,
        "max(0.0, held[node] - guarantee)",
        "0.0",
        "who borrowed yesterday comes first again today",
    ),
    Mutation(
        "the-request-counts-at-every-level",
        "Q22",
        FAIRSHARE,
        "(gpus if node == team else 0)",
        "gpus",
        "who cuts a gang into pieces comes first",
    ),
    Mutation(
        "explains-without-who-comes-first",
        "Q20",
        WAITS,
        "judge(section, workload, shape, Kept(keepers), ended.now_ms)",
        "judge(section, workload, shape, Kept([]), ended.now_ms)",
        "the reason is not the one that decided",
        PASS,
    ),
    Mutation(
        "explains-with-other-numbers",
        "Q20",
        EXPLAIN,
        '"available": balances.available(team, flavor),',
        '"available": balances.available(team, flavor) - 1,',
        "the number shown is not the one that binds",
        PASS,
    ),
    Mutation(
        "names-the-wrong-tree-node",
        "Q21",
        EXPLAIN,
        '"binding": binding.node,',
        '"binding": team,',
        "who asks is sent to his own team when another level binds",
        PASS,
    ),
    Mutation(
        "tells-a-start-that-is-too-early",
        "Q21",
        PROSPECTS,
        '        found["earliest_ms"] = earliest\n',
        '        found["earliest_ms"] = earliest - 60_000\n',
        "the earliest start is before anything can have ended",
        PASS,
    ),
)
