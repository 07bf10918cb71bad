"""Mutations of the ledger."""

from tests.property.mutants.mutation import Mutation

TRANSFERS = "bridge.ledger.transfers"
DECAY = "bridge.ledger.decay"
DRAFT = "bridge.ledger.draft"
FENCING = "bridge.ledger.fencing"
HISTORY = "bridge.ledger.history"
INTEGRAL = ("tests/property/test_ledger_history.py",)

MUTATIONS = (
    Mutation(
        "charges-a-second-time",
        "Q3",
        TRANSFERS,
        """    if latest is not None and latest.holds:
        return None
    placed =""",
        """    if latest is not None and latest.holds and latest.state is GrantState.RUNNING:
        return None
    placed =""",
        "a repeated reserve makes a second hold",
    ),
    Mutation(
        "releases-twice",
        "Q3",
        TRANSFERS,
        """    if grant.state is GrantState.RELEASED:
        return None
""",
        "",
        "a repeated release credits again",
    ),
    Mutation(
        "a-stale-leader-may-write",
        "Q3",
        FENCING,
        """    if (newest.epoch, newest.holder) != (leader.epoch, leader.holder):
        raise StaleLeaderError(
            f"{verb}: epoch {leader.epoch} of {leader.holder} is over""",
        """    if newest.epoch < leader.epoch:
        raise StaleLeaderError(
            f"{verb}: epoch {leader.epoch} of {leader.holder} is over""",
        "who lost the lead goes on writing",
    ),
    Mutation(
        "writes-an-entry-without-its-consequence",
        "Q4",
        DRAFT,
        "(self.grants, self.spans, self.balances, self.capacity, self.intents, self.epochs)",
        "(self.grants, self.balances, self.capacity, self.intents, self.epochs)",
        "the running time is not what a replay gives",
    ),
    Mutation(
        "balance-misses-what-is-given-back",
        "Q4",
        DRAFT,
        "        if change.delta:\n",
        "        if change.delta > 0:\n",
        "the balance is not what a replay gives",
    ),
    Mutation(
        "void-takes-back-what-ran",
        "Q7",
        TRANSFERS,
        """    if grant.state is not GrantState.RESERVED:
        raise BrokenInvariantError(f"void of""",
        """    if not grant.holds:
        raise BrokenInvariantError(f"void of""",
        "a running attempt is voided as if it never ran",
    ),
    Mutation(
        "a-release-keeps-one",
        "Q8",
        TRANSFERS,
        "return Change(step, at_ms, after, -grant.gpus, {",
        "return Change(step, at_ms, after, 1 - grant.gpus, {",
        "one device is lost with every release",
    ),
    Mutation(
        "history-counts-in-seconds",
        "Q8",
        HISTORY,
        "sums[key] = sums.get(key, 0) + span.gpus * length_ms",
        "sums[key] = sums.get(key, 0) + span.gpus * (length_ms // 1000) * 1000",
        "short runs are rounded away",
        INTEGRAL,
    ),
    Mutation(
        "history-counts-cuts-twice",
        "Q17",
        HISTORY,
        "end_ms = to_ms if span.to_ms is None else min(span.to_ms, to_ms)",
        "end_ms = to_ms + 1 if span.to_ms is None else min(span.to_ms, to_ms + 1)",
        "the sum depends on how many windows are asked for",
        INTEGRAL,
    ),
    Mutation(
        "use-decays-by-steps",
        "Q17",
        DECAY,
        "end_ms = now_ms if to_ms is None else min(to_ms, now_ms)",
        "end_ms = now_ms if to_ms is None else min(to_ms + 60_000, now_ms)",
        "what a cut separates counts a minute more",
    ),
)
