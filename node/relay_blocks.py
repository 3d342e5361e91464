"""Blocks for the application, channel by channel."""

from collections import deque
from collections.abc import Callable
from types import TracebackType

import msgspec
import trio

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


class BlockSubscription:
    """An async iterator over one channel's blocks; leave it as a context manager.

    A subscriber that falls too far behind loses the newest blocks; ``lost`` counts
    them. It never slows the node or other subscribers.
    """

    def __init__(self, channel: int, on_close: Callable[["BlockSubscription"], None]) -> None:
        self.channel = channel
        self.lost = 0
        self._on_close = on_close
        self._blocks: deque[ReceivedBlock] = deque()
        self._bytes = 0
        self._arrived = trio.lowlevel.ParkingLot()
        self._closed = False

    def deliver(self, received: ReceivedBlock) -> bool:
        """Called by the node. False where the subscriber is too far behind."""
        size = len(received.block)
        full = len(self._blocks) >= BACKLOG or self._bytes + size > BACKLOG_BYTES
        if self._blocks and full:
            self.lost += 1
            return False
        self._blocks.append(received)
        self._bytes += size
        self._arrived.unpark()
        return True

    def close(self) -> None:
        """End the iteration after what has been received."""
        self._closed = True
        self._arrived.unpark_all()
        self._on_close(self)

    def __aiter__(self) -> "BlockSubscription":
        return self

    async def __anext__(self) -> ReceivedBlock:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._blocks:
            if self._closed:
                raise StopAsyncIteration
            await self._arrived.park()
        received = self._blocks.popleft()
        self._bytes -= len(received.block)
        return received

    async def __aenter__(self) -> "BlockSubscription":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
