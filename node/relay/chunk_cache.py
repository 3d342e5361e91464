"""What a member has seen: the document's chunkCache and its members' side of ackCache.

A chunk is known by its full key, the producer and the timestamp included: a message id has 4 bytes
and anybody can find another block with the same ones. It is kept for as long as another copy of it
could pass for new. Where the room ends a chunk is refused and none forgotten, so that nothing is
witnessed twice.
"""

from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from bruit.node.relay.signing import CheckedChunk
from bruit.node.relay.wire import Attested
from bruit.topics.keys import PeerId

MAX_SEEN_PER_PRODUCER = 16_384  # guess: 30 broadcasts of 48 chunks a second, for 11 s
MAX_SEEN = 131_072  # of all producers; guess: 8 such producers
MAX_WAITING = 16  # peers that one acknowledgement goes to when it is signed; guess


class ChunkKey(NamedTuple):
    """One chunk of one broadcast."""

    producer: bytes  # 20-byte id
    channel: int
    message_id: bytes  # 4 bytes
    timestamp: int  # Unix time, seconds
    chunk: int


def key_of(checked: CheckedChunk) -> ChunkKey:
    attested = checked.attested
    return ChunkKey(
        checked.producer, attested.channel, attested.message_id, attested.timestamp, checked.chunk
    )


class SeenChunk(msgspec.Struct):
    """What is kept of a chunk."""

    attested: Attested
    acknowledgement: bytes = b""  # 97 bytes, to be said again; empty while we gave none
    signing: bool = False  # whether our acknowledgement is under way
    waiting: dict[PeerId, None] = {}  # who gets it then, the first first

    def wait(self, peer: PeerId) -> bool:
        """Let ``peer`` have the acknowledgement that is under way; whether there is room."""
        if peer not in self.waiting and len(self.waiting) >= MAX_WAITING:
            return False
        self.waiting[peer] = None
        return True


class ChunkCache:
    """Chunks by their key, for ``keep`` seconds after their timestamp. Pure."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._chunks: dict[ChunkKey, SeenChunk] = {}
        self._count: dict[bytes, int] = {}  # producer → its chunks
        self._times: list[int] = []  # a heap of the keys of `_by_time`
        self._by_time: dict[int, dict[ChunkKey, None]] = {}  # timestamp → its chunks

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, key: ChunkKey) -> SeenChunk | None:
        return self._chunks.get(key)

    def has_room(self, producer: bytes) -> bool:
        """Whether another chunk of ``producer`` may be added."""
        own = self._count.get(producer, 0)
        return own < MAX_SEEN_PER_PRODUCER and len(self._chunks) < MAX_SEEN

    def add(self, key: ChunkKey, attested: Attested) -> SeenChunk:
        """Remember a chunk that is not in here, where `has_room`."""
        if key.timestamp not in self._by_time:
            heappush(self._times, key.timestamp)
            self._by_time[key.timestamp] = {}
        self._by_time[key.timestamp][key] = None
        self._count[key.producer] = self._count.get(key.producer, 0) + 1
        chunk = self._chunks[key] = SeenChunk(attested)
        return chunk

    def remove(self, key: ChunkKey) -> None:
        """Forget a chunk: it has gone nowhere after all."""
        del self._by_time[key.timestamp][key]
        self._forget(key)

    def expire(self, now: float) -> None:
        """Forget what is older than ``keep``."""
        while self._times and now - self._times[0] > self._keep:
            for key in self._by_time.pop(heappop(self._times)):
                self._forget(key)

    def clear(self) -> None:
        self._chunks.clear()
        self._count.clear()
        self._times.clear()
        self._by_time.clear()

    def _forget(self, key: ChunkKey) -> None:
        del self._chunks[key]
        self._count[key.producer] -= 1
        if not self._count[key.producer]:
            del self._count[key.producer]
