"""Scores that a test writes down: a table of numbers, which may change while time runs."""

from bruit.scoring.seam import NeutralScores
from bruit.topics.keys import PeerId


class FixedScores(NeutralScores):
    """``table`` by peer, 0 for whom it does not name; ``misbehaviour`` is what was reported."""

    def __init__(self, table: dict[PeerId, float] | None = None) -> None:
        self.table = {} if table is None else table
        self.misbehaviour: list[tuple[PeerId, int, str]] = []

    def score(self, peer: PeerId, now: float) -> float:
        return self.table.get(peer, 0.0)

    def misbehaved(self, peer: PeerId, count: int, reason: str, now: float) -> None:
        self.misbehaviour.append((peer, count, reason))
