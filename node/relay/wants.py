"""Chunks on a channel's topic: how they are named, and which of them are worth asking for.

A channel's topic is announced (`bruit.node.gossip.announcing`): who has a chunk says so, who wants
it asks. The name of a chunk's message begins with what the chunk is, so that a subscriber can
tell from the name alone whether it needs it: once a block is rebuilt, the rest of its chunks stay
where they are. The end of the name is a hash of the content, so that nobody can take the name of
another's message; whoever lies about its beginning wastes one question, and gains nothing.

Names also tell a producer that subscribes to its own channel which of its chunks came out
(`listening`). Two producers that broadcast one block in the same second share its names.
"""

import hashlib
from collections import OrderedDict

import msgspec

from bruit.node.relay.params import MAX_CHUNKS
from bruit.node.relay.wire import ATTESTATION_SIZE
from bruit.topics.keys import PeerId
from bruit.topics.message import Message

GROUP_SIZE = 8  # bytes of a name that all chunks of a broadcast share: message id and timestamp
_CHUNK = 10  # bytes of a name that say which chunk it is
_CONTENT = 16  # bytes of SHA-256; guess: 2^128 steps to take another's name
SPARE = 2  # chunks asked for beyond those needed, so that the slowest is not waited for; simulated
MAX_BROADCASTS = 1024  # remembered; guess: of the last minutes
MAX_WATCHED = 32  # of those, watched; guess: twice what a producer has under way at a time
MAX_HEARD = 16  # peers noted for each watched chunk: more than a mesh has (d_hi is 12)
HERE: PeerId = b""  # among the peers that have a chunk: this node itself


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
    judged: dict[bytes, None] = {}  # chunks that were


class _Watched(msgspec.Struct):
    """Who has the chunks of a broadcast."""

    chunks: int  # how many it has: what is announced beyond is nonsense
    heard: dict[int, dict[PeerId, None]] = {}


class ChunkWants:
    """What a consumer wants of one channel: of every broadcast, as many chunks as rebuild it.

    `bruit.node.gossip.params.Wants` for the router; the rest is the consumer's and the producer's.
    """

    def __init__(self, min_chunks: int) -> None:
        self._min_chunks = min_chunks
        self._enough = min_chunks + SPARE
        self._broadcasts: OrderedDict[bytes, _Broadcast] = OrderedDict()
        self._watched: OrderedDict[bytes, _Watched] = OrderedDict()

    def _broadcast(self, group: bytes) -> _Broadcast:
        known = self._broadcasts.get(group)
        if known is None:
            known = self._broadcasts[group] = _Broadcast()
            if len(self._broadcasts) > MAX_BROADCASTS:
                old, _ = self._broadcasts.popitem(last=False)
                self._watched.pop(old, None)
        return known

    # What the router asks and tells

    def wants(self, message_id: bytes) -> bool:
        if not self.shares(message_id):
            return False
        known = self._broadcasts.get(message_id[:GROUP_SIZE])
        if known is None:
            return True
        under_way = known.gathered + len(known.asked) + len(known.judging)
        return not known.finished and under_way < self._enough

    def shares(self, message_id: bytes) -> bool:
        # Until enough chunks of an own broadcast are out, the uplink is for those that are not.
        watched = self._watched.get(message_id[:GROUP_SIZE])
        return watched is None or len(watched.heard) >= self._min_chunks

    def offered(self, message_id: bytes, peer: PeerId) -> None:
        self._hear(message_id, peer)

    def asked(self, message_id: bytes) -> None:
        self._broadcast(message_id[:GROUP_SIZE]).asked[message_id] = None

    def came(self, message_id: bytes) -> None:
        known = self._broadcast(message_id[:GROUP_SIZE])
        known.asked.pop(message_id, None)
        if message_id[:_CHUNK] not in known.judged:  # a member publishes what it has judged
            known.judging[message_id[:_CHUNK]] = None
        self._hear(message_id, HERE)

    def given_up(self, message_id: bytes) -> None:
        self._broadcast(message_id[:GROUP_SIZE]).asked.pop(message_id, None)

    # What the consumer tells

    def judged(self, group: bytes, chunk: int) -> None:
        """A chunk was judged, and either counts as gathered now or is of no use."""
        name = group + chunk.to_bytes(2, "big")
        known = self._broadcast(group)
        known.judging.pop(name, None)
        known.judged[name] = None
        self._hear(name, HERE)  # where nobody was asked for it: pushed, or passed on by this node

    def gathered(self, group: bytes, count: int) -> None:
        """So many chunks has the producer that has most of them."""
        self._broadcast(group).gathered = count

    def finished(self, group: bytes) -> None:
        """The block is rebuilt, or over: no more of its chunks are needed."""
        known = self._broadcast(group)
        known.finished = True
        known.judging.clear()
        known.judged.clear()

    # What the producer tells and asks

    def watch(self, group: bytes, chunks: int = MAX_CHUNKS) -> None:
        """Note from now on who has which of the ``chunks`` chunks of an own broadcast."""
        self._broadcast(group)
        self._watched[group] = _Watched(chunks)
        if len(self._watched) > MAX_WATCHED:
            self._watched.popitem(last=False)

    def heard(self, group: bytes) -> dict[int, tuple[PeerId, ...]]:
        """Who has which chunk of a broadcast since `watch`; `HERE` stands for this node.

        What peers say is not verified. Forgotten with the broadcast.
        """
        watched = self._watched.get(group)
        found = watched.heard if watched is not None else {}
        return {chunk: tuple(peers) for chunk, peers in sorted(found.items())}

    def _hear(self, name: bytes, peer: PeerId) -> None:
        """``peer`` has the chunk that this name, or the beginning of one, speaks of."""
        watched = self._watched.get(name[:GROUP_SIZE])
        chunk = int.from_bytes(name[GROUP_SIZE:_CHUNK], "big")
        if watched is None or len(name) < _CHUNK or chunk >= watched.chunks:
            return
        peers = watched.heard.setdefault(chunk, {})
        if len(peers) < MAX_HEARD or peer == HERE:
            peers[peer] = None
