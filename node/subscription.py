"""Messages for the application, topic by topic."""

from collections.abc import Callable
from functools import partial

import msgspec

from bruit.node.backlog import Backlog
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


class Subscription(Backlog[Received]):
    """An async iterator over one topic's messages; leave it as a context manager.

    A subscriber that falls BACKLOG messages behind loses the newest ones;
    ``lost`` counts them. It never slows the node or other subscribers.
    """

    def __init__(self, topic: str, on_close: Callable[["Subscription"], None]) -> None:
        super().__init__(partial(on_close, self))
        self.topic = topic

    def deliver(self, message: Received) -> bool:
        """Called by the node. False where the subscriber is too far behind."""
        if len(self._items) >= BACKLOG:
            self.lost += 1
            return False
        self._put(message)
        return True
