"""Who comes first among the heads of the queues. Pure.

Those whose start leaves their team within its own guarantee come first; then borrowers by fair share; then
priority, age, id. While a pass admits, a key can only rise.
"""

from bridge.admission.queues import Rank, rank_of
from bridge.admission.section import Section
from bridge.quota.fairshare import Score
from bridge.workloads.model import Workload

Key = tuple[bool, Score, Rank]


def key_of(section: Section, workload: Workload) -> Key:
    """Return the sort key of a queue's head. Its own earmark does not count against it."""
    own = section.marked(workload.id)
    gpus = workload.gpus - (own.gpus if own is not None and own.team == workload.team else 0)
    team = workload.team
    if section.balances.within(team, section.flavor, gpus):
        return False, (), rank_of(workload)
    return True, section.fairshare.score(section.balances, team, gpus), rank_of(workload)
