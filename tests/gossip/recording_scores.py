"""Scores that remember what they were told and answer what a test sets.

A real implementation of `bruit.scoring.seam.Scores`, without arithmetic: what
the router reports can be read back, and a peer has exactly the score in
``values``, 0 where there is none.
"""

import msgspec

from bruit.scoring.seam import Refusal
from bruit.topics.keys import PeerId


class Misbehaviour(msgspec.Struct, frozen=True):
    peer: PeerId
    count: int
    reason: str


class Judged(msgspec.Struct, frozen=True):
    """One call about a message; ``kind`` is the name of the method that was called."""

    kind: str
    peer: PeerId
    topic: str
    message_id: bytes
    refusal: Refusal | None = None


class RecordingScores:
    refresh_interval = 0.0

    def __init__(self) -> None:
        self.values: dict[PeerId, float] = {}
        self.here: dict[PeerId, None] = {}  # connected peers
        self.addresses: dict[PeerId, tuple[str, ...]] = {}
        self.slowness: dict[PeerId, int] = {}  # frames that its queue had no room for
        self.meshes: dict[tuple[PeerId, str], None] = {}  # grafted and not pruned since
        self.judged: list[Judged] = []
        self.misbehaviours: list[Misbehaviour] = []

    def about(self, kind: str) -> list[Judged]:
        """The calls of one kind, in order."""
        return [each for each in self.judged if each.kind == kind]

    def penalties(self, peer: PeerId) -> list[int]:
        """The counts of every misbehaviour of one peer, in order."""
        return [each.count for each in self.misbehaviours if each.peer == peer]

    def refresh(self, now: float) -> None:
        raise AssertionError("nobody asked for it")

    def score(self, peer: PeerId, now: float) -> float:
        return self.values.get(peer, 0.0)

    def reaches(self, peer: PeerId, limit: float, now: float) -> bool:
        return self.score(peer, now) >= limit

    def connected(self, peer: PeerId, addresses: tuple[str, ...], now: float) -> None:
        self.here[peer] = None
        self.addresses[peer] = addresses

    def disconnected(self, peer: PeerId, now: float) -> None:
        del self.here[peer]
        self.meshes = {key: None for key in self.meshes if key[0] != peer}

    def grafted(self, peer: PeerId, topic: str, now: float) -> None:
        assert (peer, topic) not in self.meshes
        self.meshes[peer, topic] = None

    def pruned(self, peer: PeerId, topic: str, now: float) -> None:
        del self.meshes[peer, topic]

    def validating(self, message_id: bytes, now: float) -> None:
        return None

    def first_delivery(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        self.judged.append(Judged("first_delivery", peer, topic, message_id))

    def duplicate(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        self.judged.append(Judged("duplicate", peer, topic, message_id))

    def refused(
        self, peer: PeerId, topic: str, message_id: bytes, refusal: Refusal, now: float
    ) -> None:
        self.judged.append(Judged("refused", peer, topic, message_id, refusal))

    def slow(self, peer: PeerId, count: int, now: float) -> None:
        self.slowness[peer] = self.slowness.get(peer, 0) + count

    def set_app_score(self, peer: PeerId, value: float, now: float) -> None:
        self.values[peer] = value

    def misbehaved(self, peer: PeerId, count: int, reason: str, now: float) -> None:
        self.misbehaviours.append(Misbehaviour(peer, count, reason))
