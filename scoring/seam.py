"""The one seam between a router and peer scores.

The router reports what peers do and asks for one number; how the number comes
about is nobody's business but the implementation's. The events are those that
gossipsub v1.1 scores (gossipsub-v1.1.md, "The Score Function").
"""

from enum import Enum
from typing import Protocol

from bruit.topics.keys import PeerId


class Refusal(Enum):
    """Why a message was not accepted, as far as it matters to whom it is held against."""

    FORGED = "forged"  # signature, signature policy, size or origin: held against its sender
    INVALID = "invalid"  # the validator rejects it: held against everybody who sends it
    IGNORED = "ignored"  # the validator ignores it: held against nobody
    THROTTLED = "throttled"  # validation gave it up: held against nobody
    QUEUE_FULL = "queue full"  # no room to validate it: as if it had never come
    BANNED = "banned"  # its author is banned: as if it had never come


class Scores(Protocol):
    """Times are seconds on the clock that the router is driven by."""

    @property
    def refresh_interval(self) -> float:
        """Seconds between calls of `refresh`; 0 where it need not be called."""

    def refresh(self, now: float) -> None:
        """Decay the counters, and forget what has expired."""

    def score(self, peer: PeerId, now: float) -> float:
        """The peer's score; 0 for a stranger."""

    def reaches(self, peer: PeerId, limit: float, now: float) -> bool:
        """Whether the peer's score is at least ``limit``: for every message it is asked."""

    def connected(self, peer: PeerId, addresses: tuple[str, ...], now: float) -> None:
        """The peer is connected, from these multiaddrs: one for each connection.

        Said again when the addresses of a connected peer change; none are known
        where there are none.
        """

    def disconnected(self, peer: PeerId, now: float) -> None: ...

    def grafted(self, peer: PeerId, topic: str, now: float) -> None: ...

    def pruned(self, peer: PeerId, topic: str, now: float) -> None: ...

    def validating(self, message_id: bytes, now: float) -> None:
        """A message proved to be its author's and new: what becomes of it is said later."""

    def first_delivery(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        """The peer was the first to send a message that then proved valid."""

    def duplicate(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        """The peer sent a message that was seen before, or is being validated."""

    def refused(
        self, peer: PeerId, topic: str, message_id: bytes, refusal: Refusal, now: float
    ) -> None:
        """A message was not accepted; ``peer`` was the first to send it.

        Those who sent a copy meanwhile are known from `duplicate`. A FORGED message
        is reported once for each sender, under an id that may be another's.
        """

    def misbehaved(self, peer: PeerId, count: int, reason: str, now: float) -> None:
        """Count protocol violations: broken promises, GRAFT during backoff."""

    def slow(self, peer: PeerId, count: int, now: float) -> None:
        """So many frames for the peer were dropped because it reads too slowly."""

    def set_app_score(self, peer: PeerId, value: float, now: float) -> None:
        """What the application thinks of the peer from now on (P5)."""


class NeutralScores:
    """Trusts everybody alike: answers 0 and remembers nothing."""

    refresh_interval = 0.0

    def refresh(self, now: float) -> None:
        return None

    def score(self, peer: PeerId, now: float) -> float:
        return 0.0

    def reaches(self, peer: PeerId, limit: float, now: float) -> bool:
        return self.score(peer, now) >= limit

    def connected(self, peer: PeerId, addresses: tuple[str, ...], now: float) -> None:
        return None

    def disconnected(self, peer: PeerId, now: float) -> None:
        return None

    def grafted(self, peer: PeerId, topic: str, now: float) -> None:
        return None

    def pruned(self, peer: PeerId, topic: str, now: float) -> None:
        return None

    def validating(self, message_id: bytes, now: float) -> None:
        return None

    def first_delivery(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        return None

    def duplicate(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        return None

    def refused(
        self, peer: PeerId, topic: str, message_id: bytes, refusal: Refusal, now: float
    ) -> None:
        return None

    def misbehaved(self, peer: PeerId, count: int, reason: str, now: float) -> None:
        return None

    def slow(self, peer: PeerId, count: int, now: float) -> None:
        return None

    def set_app_score(self, peer: PeerId, value: float, now: float) -> None:
        return None
