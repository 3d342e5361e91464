"""Chunks on a channel's topic: how they are named, and which of them are worth asking for.

A channel's topic is announced (`bruit.node.gossip.announcing`): who has a chunk says so, who wants
it asks. The name of a chunk's message begins with what the chunk is, so that a subscriber can
tell from the name alone whether it needs it: once a block is rebuilt, the rest of its chunks stay
where they are. The end of the name is a hash of the content, so that nobody can take the name of
another's message; whoever lies about its beginning wastes one question, and gains nothing.
"""

import hashlib
from collections import OrderedDict

import msgspec

from bruit.node.relay.wire import ATTESTATION_SIZE
from bruit.topics.message import Message

GROUP_SIZE = 8  # bytes of a name that all chunks of a broadcast share: message id and timestamp
_CHUNK = 10  # bytes of a name that say which chunk it is
_CONTENT = 16  # bytes of SHA-256; guess: 2^128 steps to take another's name
SPARE = 2  # chunks asked for beyond those needed, so that the slowest is not waited for; simulated
MAX_BROADCASTS = 1024  # remembered; guess: of the last minutes


def chunk_name(message: Message) -> bytes:
    """The id of a message on a channel's topic: message id, timestamp, chunk, hash of it all."""
    data = message.data
    if len(data) < ATTESTATION_SIZE:
        return hashlib.sha256(data).digest()
    return data[0:4] + data[8:12] + data[6:8] + hashlib.sha256(data).digest()[:_CONTENT]


def group_of(message_id: bytes, timestamp: int) -> bytes:
    """What the names of all chunks of a broadcast begin with."""
    return message_id + timestamp.to_bytes(4, "big")


class _Broadcast(msgspec.Struct):
    """What is known of the chunks of one message id and timestamp."""

    gathered: int = 0  # chunks that one producer's set has, of the producer that has most
    finished: bool = False
    asked: dict[bytes, None] = {}  # names that were asked for and have not come
    judging: dict[bytes, None] = {}  # chunks that have come and are not judged yet


class ChunkWants:
    """What a consumer wants of one channel: of every broadcast, as many chunks as rebuild it.

    `bruit.node.gossip.params.Wants` for the router; the rest is the consumer's.
    """

    def __init__(self, min_chunks: int) -> None:
        self._enough = min_chunks + SPARE
        self._broadcasts: OrderedDict[bytes, _Broadcast] = OrderedDict()

    def _broadcast(self, group: bytes) -> _Broadcast:
        known = self._broadcasts.get(group)
        if known is None:
            known = self._broadcasts[group] = _Broadcast()
            if len(self._broadcasts) > MAX_BROADCASTS:
                self._broadcasts.popitem(last=False)
        return known

    # What the router asks and tells

    def wants(self, message_id: bytes) -> bool:
        known = self._broadcasts.get(message_id[:GROUP_SIZE])
        if known is None:
            return True
        under_way = known.gathered + len(known.asked) + len(known.judging)
        return not known.finished and under_way < self._enough

    def asked(self, message_id: bytes) -> None:
        self._broadcast(message_id[:GROUP_SIZE]).asked[message_id] = None

    def came(self, message_id: bytes) -> None:
        known = self._broadcast(message_id[:GROUP_SIZE])
        known.asked.pop(message_id, None)
        known.judging[message_id[:_CHUNK]] = None

    def given_up(self, message_id: bytes) -> None:
        self._broadcast(message_id[:GROUP_SIZE]).asked.pop(message_id, None)

    # What the consumer tells

    def judged(self, group: bytes, chunk: int) -> None:
        """A chunk was judged, and either counts as gathered now or is of no use."""
        self._broadcast(group).judging.pop(group + chunk.to_bytes(2, "big"), None)

    def gathered(self, group: bytes, count: int) -> None:
        """So many chunks has the producer that has most of them."""
        self._broadcast(group).gathered = count

    def finished(self, group: bytes) -> None:
        """The block is rebuilt, or over: no more of its chunks are needed."""
        known = self._broadcast(group)
        known.finished = True
        known.judging.clear()
