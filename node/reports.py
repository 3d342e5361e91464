"""What a node tells beside messages: the router's reports, and those of its surroundings."""

from collections.abc import AsyncIterator

import msgspec
import trio

from bruit.node.gossip.actions import Report
from bruit.plugins.containment import PluginEvent
from bruit.topics.keys import PeerId

BACKLOG = 10_000  # reports kept for a listener that is behind; guess


class DialFailed(msgspec.Struct, frozen=True):
    """A peer could not be reached. Configured peers are tried again."""

    peer: PeerId
    reason: str


class PluginFailed(msgspec.Struct, frozen=True):
    """A plugin raised; the node goes on without it once it is switched off."""

    event: PluginEvent


class ReportsLost(msgspec.Struct, frozen=True):
    """The listener was too slow: so many reports before the next one are missing."""

    count: int


NodeReport = Report | DialFailed | PluginFailed | ReportsLost


class ReportFeed:
    """Hands every report to every listener; a slow listener loses reports, and learns how many."""

    def __init__(self) -> None:
        self._listeners: dict[trio.MemorySendChannel[NodeReport], int] = {}  # channel → lost

    def tell(self, report: NodeReport) -> None:
        for listener, lost in self._listeners.items():
            try:
                if lost:
                    listener.send_nowait(ReportsLost(lost))
                    self._listeners[listener] = 0
                listener.send_nowait(report)
            except trio.WouldBlock:
                self._listeners[listener] += 1

    async def listen(self) -> AsyncIterator[NodeReport]:
        """Reports from now on, until `close`."""
        send, receive = trio.open_memory_channel[NodeReport](BACKLOG)
        self._listeners[send] = 0
        try:
            async for report in receive:
                yield report
        finally:
            self._listeners.pop(send, None)

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
