"""Which peers sent what they should have known to be wrong, of late."""

from bruit.topics.keys import PeerId

BUDGET = 16  # faults that are borne with; guess: a change of the marketplace that is late
FORGIVEN = 10.0  # seconds after which one is forgiven; guess
MAX_PEERS = 4096  # kept in mind; guess: more than are connected


class Blame:
    """A count for each peer that falls with time."""

    def __init__(self) -> None:
        self._counts: dict[PeerId, tuple[float, float]] = {}  # peer → count, and when it was so

    def add(self, peer: PeerId, now: float) -> bool:
        """Count a fault. True where it is one too many."""
        count = self._count(peer, now) + 1
        self._counts.pop(peer, None)  # so that the least recent stand first
        self._counts[peer] = count, now
        if len(self._counts) > MAX_PEERS:
            del self._counts[next(iter(self._counts))]
        return count > BUDGET

    def barred(self, peer: PeerId, now: float) -> bool:
        """Whether the peer has used up its budget."""
        return self._count(peer, now) > BUDGET

    def _count(self, peer: PeerId, now: float) -> float:
        count, then = self._counts.get(peer, (0.0, now))
        return max(count - (now - then) / FORGIVEN, 0.0)
