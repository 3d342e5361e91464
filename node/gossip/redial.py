"""How long to wait before trying a peer again that keeps failing.

The numbers are go-libp2p-pubsub's (backoff.go): the first attempt at once, then
pauses that double from 0.1 s to 10 s with chance added, and after a few attempts
none, until the peer has been left alone for ten minutes.
"""

import random
from collections import OrderedDict

from bruit.topics.keys import PeerId

FIRST_PAUSE = 0.1  # seconds (go: MinBackoffDelay)
LONGEST_PAUSE = 10.0  # seconds (go: MaxBackoffDelay)
GROWTH = 2  # from one pause to the next (go: BackoffMultiplier)
JITTER = 0.1  # seconds at most, added to a pause that grows (go: MaxBackoffJitterCoff)
MAX_ATTEMPTS = 4  # (go: MaxBackoffAttempts)
MEMORY = 600.0  # seconds since the last attempt (go: TimeToLive)
MAX_REMEMBERED = 10_000  # peers, the oldest forgotten first; guess (go: any number)


class _History:
    __slots__ = ("attempts", "last", "pause")

    def __init__(self) -> None:
        self.attempts = 0
        self.pause = 0.0  # seconds
        self.last = 0.0  # when the last attempt was asked for, seconds


class RedialPauses:
    """The attempts of late, per peer. Times are seconds on any clock that never goes back."""

    def __init__(self, rng: random.Random, max_attempts: int = MAX_ATTEMPTS) -> None:
        self._rng = rng
        self._max_attempts = max_attempts
        self._histories: OrderedDict[PeerId, _History] = OrderedDict()  # longest ago first

    def before_next(self, peer: PeerId, now: float) -> float | None:
        """Seconds to wait before the next attempt, which is counted; None: leave the peer alone."""
        self._expire(now)
        history = self._histories.get(peer)
        if history is None:
            history = self._histories[peer] = _History()
        elif history.attempts >= self._max_attempts:
            return None
        elif not history.pause:
            history.pause = FIRST_PAUSE
        elif history.pause < LONGEST_PAUSE:
            longer = GROWTH * history.pause + JITTER * self._rng.random()
            history.pause = min(longer, LONGEST_PAUSE)
        history.attempts += 1
        history.last = now
        self._histories.move_to_end(peer)
        if len(self._histories) > MAX_REMEMBERED:
            self._histories.popitem(last=False)
        return history.pause

    def _expire(self, now: float) -> None:
        while self._histories:
            oldest = next(iter(self._histories))
            if now - self._histories[oldest].last <= MEMORY:
                return
            del self._histories[oldest]

    def __len__(self) -> int:
        return len(self._histories)
