"""Messages for the application, topic by topic."""

from collections import deque
from collections.abc import Callable
from types import TracebackType

import msgspec
import trio

from bruit.topics.keys import PeerId
from bruit.topics.validation import Fact

BACKLOG = 8192  # messages kept for a subscriber that is behind; guess


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message that was accepted: new, signed by its author, and valid."""

    topic: str
    data: bytes  # after the topic's codec
    author: PeerId  # who wrote it; empty where messages are not signed
    source: PeerId  # who sent it to us first; our own id for our own messages
    message_id: bytes
    facts: dict[str, Fact]  # what the validator found out
    received_at: float  # Unix time, seconds


class Subscription:
    """An async iterator over one topic's messages; leave it as a context manager.

    A subscriber that falls BACKLOG messages behind loses the newest ones;
    ``lost`` counts them. It never slows the node or other subscribers.
    """

    def __init__(self, topic: str, on_close: Callable[["Subscription"], None]) -> None:
        self.topic = topic
        self.lost = 0
        self._on_close = on_close
        # Not a memory channel: that takes a pass of the scheduler for each message, in
        # which a reader delivers dozens.
        self._messages: deque[Received] = deque()
        self._arrived = trio.lowlevel.ParkingLot()
        self._closed = False

    def deliver(self, message: Received) -> bool:
        """Called by the node. False where the subscriber is too far behind."""
        if len(self._messages) >= BACKLOG:
            self.lost += 1
            return False
        self._messages.append(message)
        if self._arrived:
            self._arrived.unpark()
        return True

    def close(self) -> None:
        """End the iteration after what has been received; the last subscriber leaves the topic."""
        self._closed = True
        self._arrived.unpark_all()
        self._on_close(self)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Received:
        if self._messages:
            await trio.lowlevel.checkpoint_if_cancelled()
        while not self._messages:
            if self._closed:
                raise StopAsyncIteration
            await self._arrived.park()
        return self._messages.popleft()

    async def __aenter__(self) -> "Subscription":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
