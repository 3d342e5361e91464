"""Blocks for the application, channel by channel."""

from collections.abc import Callable
from functools import partial

import msgspec

from bruit.node.backlog import Backlog
from bruit.node.relay.actions import DeliverBlock
from bruit.topics.validation import Fact

# Kept for a subscriber that is behind; guesses: a block of 4 MiB each second for half a minute
BACKLOG = 256  # blocks
BACKLOG_BYTES = 134_217_728


class ReceivedBlock(msgspec.Struct, frozen=True):
    """A block that the relay brought: attested, whole and valid."""

    channel: int
    message_id: bytes  # 4 bytes, the first of the hash
    block: bytes  # after the channel's codec
    block_hash: bytes  # Keccak-256, 32 bytes
    producers: tuple[bytes, ...]  # 20-byte ids of whose chunks it was rebuilt from
    facts: dict[str, Fact]  # what the validator found out
    clusters: dict[int, int]  # cluster → chunks of this block that it witnessed
    first_chunk_at: float  # Unix time, seconds
    received_at: float  # Unix time, seconds

    @classmethod
    def of(cls, action: DeliverBlock, now: float) -> "ReceivedBlock":
        return cls(
            action.channel,
            action.message_id,
            action.block,
            action.block_hash,
            action.producers,
            action.facts,
            action.clusters,
            action.first_chunk_at,
            now,
        )


class BlockSubscription(Backlog[ReceivedBlock]):
    """An async iterator over one channel's blocks; leave it as a context manager.

    A subscriber that falls too far behind loses the newest blocks; ``lost`` counts
    them. It never slows the node or other subscribers.
    """

    def __init__(self, channel: int, on_close: Callable[["BlockSubscription"], None]) -> None:
        super().__init__(partial(on_close, self))
        self.channel = channel
        self._bytes = 0

    def deliver(self, received: ReceivedBlock) -> bool:
        """Called by the node. False where the subscriber is too far behind."""
        size = len(received.block)
        full = len(self._items) >= BACKLOG or self._bytes + size > BACKLOG_BYTES
        if self._items and full:
            self.lost += 1
            return False
        self._bytes += size
        self._put(received)
        return True

    async def __anext__(self) -> ReceivedBlock:
        received = await super().__anext__()
        self._bytes -= len(received.block)
        return received
