"""Chunks on their way to be blocks: who attested which, what is still open, and room for it.

A broadcast is known by producer, channel, message id and timestamp. Broadcasts of one channel and
message id that begin within one chunk expiry share a pool: their chunks may be put together where
none of them has enough alone, and one dispute names them all. A message id alone has four bytes
and can be ground; so it joins what may help, and never decides whose chunk is whose.

The room is bounded: chunks and broadcasts of one producer, and of all. A broadcast is remembered
for as long as chunks of it can be accepted, so that a late chunk does not begin it anew.
"""

from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from random import Random

from bruit.node.relay.coding.code import Coding
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.signing import CheckedChunk

MAX_BROADCASTS_PER_PRODUCER = 64  # in some 20 s; guess: three a second
MAX_BROADCASTS = 4096  # guess: 64 such producers
MAX_BYTES_PER_PRODUCER = 64 << 20  # guess: two of the largest blocks
MAX_BYTES = 256 << 20  # guess: four such producers
RECORD = 1024  # bytes that a chunk takes beside its own: a rounded guess
MAX_UNIONS = 4  # attempts to rebuild one message from several producers' chunks; guess

Key = tuple[bytes, int, bytes, int]  # producer, channel, message id, timestamp


class State(Enum):
    """What has become of a broadcast."""

    GATHERING = "gathering"
    UNDER_WAY = "under way"  # being decoded or judged
    DELIVERED = "delivered"  # its block is
    UNDECIDED = "undecided"  # nobody could judge its block
    DISPUTED = "disputed"  # its block is invalid
    INCOMPLETE = "incomplete"  # too few chunks came in time


class Placed(Enum):
    """What became of a chunk."""

    NEW = "new"
    DUPLICATE = "duplicate"
    OVER = "over"  # its broadcast is disputed, or too late
    NO_ROOM = "no room"


class Broadcast:
    """One producer's attempt to send one message."""

    __slots__ = ("chunks", "clusters", "cost", "excused", "first_at", "key", "pool", "state")

    def __init__(self, key: Key, pool: "Pool", now: float) -> None:
        self.key = key
        self.pool = pool
        self.first_at = now  # Unix time
        self.state = State.GATHERING
        self.chunks: dict[int, CheckedChunk] = {}  # those that are kept, by index
        self.clusters: dict[int, list[int]] = {}  # every chunk seen, and who witnessed it
        self.cost = 0  # bytes
        self.excused = False  # chunks of it were refused through no fault of its producer

    @property
    def producer(self) -> bytes:
        return self.key[0]

    def witnesses(self) -> Iterator[int]:
        """The witnessing cluster of every chunk; a chunk may have several."""
        for clusters in self.clusters.values():
            yield from clusters


class Pool:
    """Broadcasts of one channel and message id that began about the same time."""

    __slots__ = (
        "broadcasts",
        "channel",
        "deadline",
        "due",
        "message_id",
        "number",
        "payload",
        "tried",
        "under_way",
    )

    def __init__(
        self, number: int, channel: ChannelParams, message_id: bytes, deadline: float
    ) -> None:
        self.number = number
        self.channel = channel
        self.message_id = message_id
        self.deadline = deadline  # Unix time until which others may join
        self.broadcasts: list[Broadcast] = []
        self.under_way = 0  # decodings and judgements
        self.due = False  # its timer has fired, and what was under way then goes on
        self.payload: bytes | None = None  # of a block that was delivered from it
        self.tried: dict[tuple[int, int], None] = {}  # unions, by length and number of chunks

    def gathering(self) -> list[Broadcast]:
        return [each for each in self.broadcasts if each.state is State.GATHERING]


class Gathering:
    """All pools and broadcasts. Pure."""

    def __init__(self, params: RelayParams) -> None:
        self._params = params
        # A timestamp may lie a tolerable latency ahead, and its chunks come as long after it;
        # a pool lasts for two expiries at most.
        self._memory = 2 * max(params.tolerable_latency, params.chunk_expiry)  # seconds
        self._broadcasts: OrderedDict[Key, Broadcast] = OrderedDict()  # the first begun first
        self._pools: dict[tuple[int, bytes], Pool] = {}  # channel and message id → those to join
        self._numbered: dict[int, Pool] = {}  # every pool whose time is not over
        self._next_number = 0
        self._of_producer: dict[bytes, tuple[int, int]] = {}  # broadcasts, bytes
        self.bytes = 0  # held, of all

    def __len__(self) -> int:
        """Broadcasts remembered."""
        return len(self._broadcasts)

    def pool(self, number: int) -> Pool | None:
        return self._numbered.get(number)

    def broadcast(self, key: Key) -> Broadcast | None:
        return self._broadcasts.get(key)

    def of_producers_gone(self, remaining: dict[bytes, None]) -> Iterator[Broadcast]:
        """Open broadcasts of everybody but ``remaining``."""
        for broadcast in self._broadcasts.values():
            if broadcast.producer not in remaining and broadcast.state is State.GATHERING:
                yield broadcast

    def most(self, channel: int, message_id: bytes, timestamp: int) -> int:
        """Chunks of the producer that has most of a message; of one whose set failed, none."""
        pool = self._pools.get((channel, message_id))
        found = pool.broadcasts if pool is not None else []
        return max((len(each.chunks) for each in found if each.key[3] == timestamp), default=0)

    def place(
        self, channel: ChannelParams, checked: CheckedChunk, cluster: int | None, now: float
    ) -> tuple[Placed, Broadcast | None]:
        """Put a checked chunk where it belongs. ``cluster``: who witnessed it.

        The broadcast is new where it has this one chunk, and complete where it is GATHERING with
        MIN_CHUNKS of them.
        """
        attested = checked.attested
        key = (checked.producer, channel.id, attested.message_id, attested.timestamp)
        broadcast = self._broadcasts.get(key)
        if broadcast is not None:
            clusters = broadcast.clusters.get(checked.chunk)
            if clusters is not None:
                self._witnessed(clusters, cluster)
                return Placed.DUPLICATE, broadcast
            if broadcast.state in (State.DISPUTED, State.INCOMPLETE):
                return Placed.OVER, broadcast
        kept = broadcast is None or broadcast.state is State.GATHERING
        cost = RECORD + (len(checked.frame.chunk) if kept else 0)
        if not self._has_room(key[0], broadcast, cost):
            return Placed.NO_ROOM, broadcast
        if broadcast is None:
            broadcast = self._begin(key, channel, now)
        clusters = broadcast.clusters[checked.chunk] = []
        self._witnessed(clusters, cluster)
        if kept:
            broadcast.chunks[checked.chunk] = checked
        self._charge(broadcast, cost)
        return Placed.NEW, broadcast

    def _witnessed(self, clusters: list[int], cluster: int | None) -> None:
        # A chunk goes through one option after the other: there are no more witnesses to count.
        if (
            cluster is not None
            and cluster not in clusters
            and len(clusters) < self._params.cluster_options
        ):
            clusters.append(cluster)

    def _has_room(self, producer: bytes, broadcast: Broadcast | None, cost: int) -> bool:
        count, size = self._of_producer.get(producer, (0, 0))
        if size + cost > MAX_BYTES_PER_PRODUCER:
            return False
        if broadcast is None and count >= MAX_BROADCASTS_PER_PRODUCER:
            return False
        if self.bytes + cost > MAX_BYTES:
            if broadcast is not None:
                broadcast.excused = True
            return False
        return broadcast is not None or len(self._broadcasts) < MAX_BROADCASTS

    def _begin(self, key: Key, channel: ChannelParams, now: float) -> Broadcast:
        place = (channel.id, key[2])
        pool = self._pools.get(place)
        if pool is None or pool.due or now >= pool.deadline:
            pool = Pool(self._next_number, channel, key[2], now + self._params.chunk_expiry)
            self._next_number += 1
            self._pools[place] = self._numbered[pool.number] = pool
        broadcast = self._broadcasts[key] = Broadcast(key, pool, now)
        pool.broadcasts.append(broadcast)
        count, size = self._of_producer.get(key[0], (0, 0))
        self._of_producer[key[0]] = (count + 1, size)
        return broadcast

    def _charge(self, broadcast: Broadcast, cost: int) -> None:
        broadcast.cost += cost
        self.bytes += cost
        count, size = self._of_producer[broadcast.producer]
        self._of_producer[broadcast.producer] = (count, size + cost)

    def finish(self, broadcast: Broadcast, state: State) -> None:
        """Settle what became of a broadcast, and let go of its chunks."""
        broadcast.state = state
        held = sum(len(checked.frame.chunk) for checked in broadcast.chunks.values())
        broadcast.chunks = {}
        self._charge(broadcast, -held)

    def keep_payload(self, pool: Pool, payload: bytes) -> None:
        """Remember what a block was made from, so that the same is not judged again."""
        if pool.payload is None and self.bytes + len(payload) <= MAX_BYTES:
            pool.payload = payload
            self.bytes += len(payload)

    def close(self, pool: Pool) -> None:
        """A pool's time is over: nothing of it is gathered any longer."""
        for broadcast in pool.gathering():
            self.finish(broadcast, State.INCOMPLETE)
        if pool.payload is not None:
            self.bytes -= len(pool.payload)
            pool.payload = None
        del self._numbered[pool.number]
        place = (pool.channel.id, pool.message_id)
        if self._pools.get(place) is pool:
            del self._pools[place]

    def forget(self, now: float) -> None:
        """Let go of broadcasts of which no chunk can be accepted any longer."""
        limit = now - self._memory
        while self._broadcasts:
            key, broadcast = next(iter(self._broadcasts.items()))
            if broadcast.first_at >= limit or broadcast.pool.number in self._numbered:
                return
            del self._broadcasts[key]
            self._charge(broadcast, -broadcast.cost)
            count, size = self._of_producer[broadcast.producer]
            if count == 1:
                del self._of_producer[broadcast.producer]
            else:
                self._of_producer[broadcast.producer] = (count - 1, size)

    def union(self, pool: Pool, rng: Random) -> tuple[CheckedChunk, ...]:
        """Chunks of several broadcasts that may give the message together; none where they cannot.

        The length of the most producers comes first, and of its chunks what the most attested;
        ties are drawn: who attests rubbish under a known message id cannot aim it. Each union is
        tried once.
        """
        if len(pool.tried) >= MAX_UNIONS:
            return ()
        lengths = sorted(_by_length(pool).items(), key=lambda each: -_producers(each[1]))
        for length, groups in lengths:
            fingerprint = (length, sum(len(votes) for votes in groups.values()))
            if len(groups) < pool.channel.min_chunks or fingerprint in pool.tried:
                continue
            pool.tried[fingerprint] = None
            ranked = []
            for votes in groups.values():
                best = max(votes.values(), key=lambda each: (len(each), rng.random()))
                ranked.append((-len(best), rng.random(), next(iter(best.values()))))
            ranked.sort(key=lambda each: each[:2])
            return tuple(checked for _, _, checked in ranked[: pool.channel.min_chunks])
        return ()


_Votes = dict[int, dict[bytes, dict[bytes, CheckedChunk]]]  # index → chunk hash → producer → chunk


def _by_length(pool: Pool) -> dict[int, _Votes]:
    """Open chunks by their length, which those of one message share but for the codes mod P."""
    shared = pool.channel.coding in (Coding.SYSTEMATIC, Coding.IDA)
    lengths: dict[int, _Votes] = {}
    for broadcast in pool.gathering():
        for index, checked in broadcast.chunks.items():
            votes = lengths.setdefault(len(checked.frame.chunk) if shared else 0, {})
            votes.setdefault(index, {}).setdefault(checked.chunk_hash, {}).setdefault(
                broadcast.producer, checked
            )
    return lengths


def _producers(groups: _Votes) -> int:
    return len({each for votes in groups.values() for voters in votes.values() for each in voters})
