"""The one seam between a router and peer scores.

The router reports what peers do and asks for one number; how the number comes
about is nobody's business but the implementation's. The events are those that
gossipsub v1.1 scores (gossipsub-v1.1.md, "The Score Function").
"""

from typing import Protocol

from bruit.topics.keys import PeerId


class Scores(Protocol):
    """Times are seconds on the clock that the router is driven by."""

    def score(self, peer: PeerId, now: float) -> float:
        """The peer's score; 0 for a stranger."""

    def connected(self, peer: PeerId, address: str, now: float) -> None: ...

    def disconnected(self, peer: PeerId, now: float) -> None: ...

    def grafted(self, peer: PeerId, topic: str, now: float) -> None: ...

    def pruned(self, peer: PeerId, topic: str, now: float) -> None: ...

    def first_delivery(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        """The peer was the first to send a message that then proved valid."""

    def duplicate(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        """The peer sent a message that was seen before, or is being validated."""

    def rejected(
        self, peer: PeerId, topic: str, message_id: bytes, reason: str, now: float
    ) -> None:
        """The peer sent a message that its topic's rules or its signature forbid."""

    def ignored(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        """The message was dropped through no fault of the peer (IGNORE, or no room)."""

    def misbehaved(self, peer: PeerId, count: int, reason: str, now: float) -> None:
        """Count protocol violations: broken promises, GRAFT during backoff."""


class NeutralScores:
    """Trusts everybody alike: answers 0 and remembers nothing."""

    def score(self, peer: PeerId, now: float) -> float:
        return 0.0

    def connected(self, peer: PeerId, address: str, now: float) -> None:
        return None

    def disconnected(self, peer: PeerId, now: float) -> None:
        return None

    def grafted(self, peer: PeerId, topic: str, now: float) -> None:
        return None

    def pruned(self, peer: PeerId, topic: str, now: float) -> None:
        return None

    def first_delivery(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        return None

    def duplicate(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        return None

    def rejected(
        self, peer: PeerId, topic: str, message_id: bytes, reason: str, now: float
    ) -> None:
        return None

    def ignored(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        return None

    def misbehaved(self, peer: PeerId, count: int, reason: str, now: float) -> None:
        return None
