"""Asks the plugins what they think of the connected peers, in a thread of its own."""

import math
from collections.abc import Callable, Sequence

import trio

from bruit.plugins.app_scores import AppScorer
from bruit.topics.keys import PeerId

INTERVAL = 10.0  # seconds between questions about the same peer; guess

Scored = tuple[tuple[PeerId, float], ...]


class AppScores:
    """Keeps what was said of each connected peer, to say again only what has changed."""

    def __init__(self, scorer: AppScorer, on_answers: Callable[[Scored], None]) -> None:
        """``on_answers`` gets what has changed after each round, which may be nothing."""
        self._scorer = scorer
        self._on_answers = on_answers
        self._said: dict[PeerId, float] = {}  # not a number: not asked yet
        self._newcomers: dict[PeerId, None] = {}
        self._arrival = trio.Event()

    def joined(self, peer: PeerId) -> None:
        """The peer is connected: ask about it at once."""
        self._said[peer] = math.nan
        self._newcomers[peer] = None
        self._arrival.set()

    def left(self, peer: PeerId) -> None:
        self._said.pop(peer, None)
        self._newcomers.pop(peer, None)

    async def run(self) -> None:
        """Until cancelled. Does nothing where no plugin judges peers."""
        if not self._scorer:
            return
        next_round = trio.current_time() + INTERVAL
        while True:
            with trio.move_on_at(next_round):
                await self._arrival.wait()
            self._arrival = trio.Event()
            peers = list(self._newcomers)
            self._newcomers.clear()
            if trio.current_time() >= next_round:
                next_round = trio.current_time() + INTERVAL
                peers = list(self._said)
            # A thread that hangs is left behind when the node stops: it cannot be ended.
            scores = await trio.to_thread.run_sync(self._ask, peers, abandon_on_cancel=True)
            self._tell(peers, scores)

    def _ask(self, peers: Sequence[PeerId]) -> list[float]:
        return [self._scorer(peer) for peer in peers]

    def _tell(self, peers: Sequence[PeerId], scores: Sequence[float]) -> None:
        changed = []
        for peer, score in zip(peers, scores, strict=True):
            if self._said.get(peer, score) != score:  # one that has left meanwhile is no news
                self._said[peer] = score
                changed.append((peer, score))
        self._on_answers(tuple(changed))
