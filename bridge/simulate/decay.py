"""What a team held of late: an average in which a moment counts half as much as one a half-life later. Pure.

With u devices held since time t, and the average a at t, the average at a later time t' is in closed form

    u + (a - u) 2^(-(t' - t) / half-life)

the same in one step or in a thousand. It starts at 0: before the simulation nobody held anything. bridge.ledger.decay
has the same average as a sum over recorded spans; here no span is kept, only the last change. A test holds them equal.
"""

from bridge.admission.model import History
from bridge.quota.model import FlavorName, TeamName

Key = tuple[TeamName, FlavorName]


class Decay:
    """The averages of all teams."""

    def __init__(self, half_life_ms: int, start_ms: int) -> None:
        """Start with nothing held. A half-life of 0: only the present counts, and there is no history."""
        self._half_life_ms = half_life_ms
        self._start_ms = start_ms
        self._marks: dict[Key, tuple[int, int, float]] = {}  # (since, devices held since, average then)

    def change(self, team: TeamName, flavor: FlavorName, gpus: int, at_ms: int) -> None:
        """Let a team hold `gpus` more from `at_ms` on. Times of one team may not go back."""
        since_ms, held, average = self._marks.get((team, flavor), (self._start_ms, 0, 0.0))
        self._marks[team, flavor] = at_ms, held + gpus, self._then(since_ms, held, average, at_ms)

    def at(self, now_ms: int) -> History:
        """Return the averages at a time."""
        if not self._half_life_ms:
            return {}
        return {key: self._then(*mark, now_ms) for key, mark in self._marks.items()}

    def _then(self, since_ms: int, held: int, average: float, now_ms: int) -> float:
        if not self._half_life_ms:
            return 0.0
        return float(held + (average - held) * 0.5 ** (max(0, now_ms - since_ms) / self._half_life_ms))
