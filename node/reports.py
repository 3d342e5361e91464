"""What a node tells beside messages: the router's reports, and those of its surroundings.

The router's `ThresholdCrossed` is told as a `ScoreCrossed`, with the reason.
"""

from pathlib import Path
from weakref import WeakSet

import msgspec
import trio

from bruit.node.gossip.actions import Report
from bruit.node.relay.actions import BlockUndecided
from bruit.node.relay.evidence import Evidence
from bruit.plugins.containment import PluginEvent
from bruit.scoring.explanation import Explanation
from bruit.topics.keys import PeerId

BACKLOG = 10_000  # reports kept for a listener that is behind; guess


class DialFailed(msgspec.Struct, frozen=True):
    """A peer could not be reached. Configured peers are tried again."""

    peer: PeerId
    reason: str


class ConnectionRefused(msgspec.Struct, frozen=True):
    """A peer that is banned, or whose address is, tried to connect."""

    peer: PeerId
    reason: str


class PluginFailed(msgspec.Struct, frozen=True):
    """A plugin raised; the node goes on without it once it is switched off."""

    event: PluginEvent


class ScoreCrossed(msgspec.Struct, frozen=True):
    """A connected peer's score is now below a threshold, or no longer is, and why."""

    peer: PeerId
    threshold: str  # a field of bruit.scoring.thresholds.Thresholds
    below: bool
    explanation: Explanation  # of the score as it is now


class Disputed(msgspec.Struct, frozen=True):
    """The relay found somebody who broke its rules."""

    evidence: Evidence  # without its exhibits where there is a file, which has them
    file: Path | None = None  # where the evidence is; None where it is written nowhere


class ReportsLost(msgspec.Struct, frozen=True):
    """The listener was too slow: so many reports before the next one are missing."""

    count: int


NodeReport = (
    Report
    | DialFailed
    | ConnectionRefused
    | PluginFailed
    | ScoreCrossed
    | Disputed
    | BlockUndecided
    | ReportsLost
)


class Reports:
    """An async iterator over reports. One that is too slow loses some, and learns how many."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[NodeReport](BACKLOG)
        self._lost = 0

    def tell(self, report: NodeReport) -> None:
        try:
            if self._lost:
                self._send.send_nowait(ReportsLost(self._lost))
                self._lost = 0
            self._send.send_nowait(report)
        except trio.WouldBlock:
            self._lost += 1

    def close(self) -> None:
        """End the iteration after what has been told."""
        self._send.close()

    def __aiter__(self) -> "Reports":
        return self

    async def __anext__(self) -> NodeReport:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None


class ReportFeed:
    """Hands every report to every listener, for as long as somebody holds the listener."""

    def __init__(self) -> None:
        self._listeners: WeakSet[Reports] = WeakSet()

    def tell(self, report: NodeReport) -> None:
        for listener in self._listeners:
            listener.tell(report)

    def listen(self) -> Reports:
        """Reports from now on, until `close`."""
        listener = Reports()
        self._listeners.add(listener)
        return listener

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
