"""A cluster's member: takes chunks from producers and from its cluster, and passes them on.

Theory of operation. A frame is split and held against what is cheap to know, then its signatures
are checked by whoever drives us, then come: its producer, its witness, its age, whether it is due,
whether it is new, and the stake behind it. A frame that is not due is held until it is and judged
again then. What a producer submits is signed for, and then acknowledged, handed to the rest of the
cluster and published; what another member witnessed is published only, since that member hands it
to the whole cluster. No chunk waits for another.

The marketplace counts as it is when a chunk is judged, and once more when it has been signed.
Whoever sends something that was right shortly before a change is refused but not blamed. Nobody
is blamed for being too late by less than timestamps and clocks are good for, nor for what only
this node knows: how busy it is, what it has seen, which channels it serves.
"""

import itertools
from collections.abc import Mapping
from random import Random

import msgspec

from bruit.node.relay import drops
from bruit.node.relay.actions import (
    CheckChunk,
    ChunkDropped,
    Dispute,
    MemberAction,
    PassOn,
    PublishChunk,
    SendAcknowledgement,
    SetTimer,
    Sign,
    Witnessed,
)
from bruit.node.relay.chunk_cache import ChunkCache, ChunkKey, SeenChunk, key_of
from bruit.node.relay.directory import Directory
from bruit.node.relay.events import (
    ChunkChecked,
    ChunkPassedOn,
    ChunkSubmitted,
    MarketplaceChanged,
    MemberEvent,
    Signed,
    Timer,
    TimerFired,
)
from bruit.node.relay.evidence import Evidence, Exhibit, Kind
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.signing import CheckedChunk, well_formed
from bruit.node.relay.stake_watch import StakeWatch, Told, stake_evidence
from bruit.node.relay.wire import Acknowledgement, Attested, channel_of
from bruit.plugins.marketplace import Cluster, Marketplace, Producer
from bruit.plugins.marketplace import Member as MarketMember
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId, peer_id_text

# Chunks under way, of the submitted ones and of those passed on each, so that neither crowds out
# the other. Guesses: 32 peers that use up CHUNKS_PER_PEER; two broadcasts of the largest block.
MAX_UNDER_WAY = 4096
MAX_UNDER_WAY_SIZE = 128 * 1024 * 1024  # bytes of frames
MAX_HELD = 1024  # of these, chunks that wait for their timestamp; guess
MAX_HELD_PER_PRODUCER = 256  # guess: as chunk_report_limit, several broadcasts
MAX_HELD_SIZE = 32 * 1024 * 1024  # bytes of frames; guess
# Seconds by which a chunk may be too late without blame: timestamps are cut to whole seconds, so
# that an age can be told as one second more than it is.
SLACK = 1.0
MAX_PAST = 8  # marketplaces remembered at a time; guess: more changes within a latency is none
# Disputes about frames, each of which carries its frame; the rest are dropped without. Guesses:
# 256 chunks of 32 KiB are 8 MiB to be kept.
MAX_TESTIMONIES_PER_PEER = 8
MAX_TESTIMONIES = 256
NO_CHANNEL = -1  # of a frame too short to name one

_Held = tuple[ChunkKey, Attested]


class _UnderWay(msgspec.Struct):
    """A frame from its arrival until it goes somewhere or nowhere."""

    peer: PeerId
    channel: ChannelParams
    frame: bytes
    submitted: bool  # by a producer, else passed on in the cluster
    received_at: float  # Unix time, seconds
    also_from: dict[PeerId, None] = {}  # who submitted the same while it was held


class _Signing(msgspec.Struct):
    """What a Sign is for."""

    key: ChunkKey
    seen: SeenChunk
    acknowledgement: Acknowledgement
    chunk: _UnderWay | None  # None: an acknowledgement only
    checked: CheckedChunk


class _Load(msgspec.Struct):
    chunks: int = 0
    size: int = 0  # bytes of frames


class _Roster:
    """The marketplace as it is, and as it was within the last tolerable latency."""

    def __init__(self, address: bytes, keep: float) -> None:
        self._address = address
        self._keep = keep
        self._past: list[tuple[float, Directory]] = []  # until when it counts as recent
        self.now = Directory(Marketplace())
        self.cluster: Cluster | None = None  # our own

    def change(self, marketplace: Marketplace, now: float) -> None:
        self._past = [*self.recent(now), (now + self._keep, self.now)][-MAX_PAST:]
        self.now = Directory(marketplace)
        number = self.now.cluster_of(self._address)
        self.cluster = None if number is None else self.now.cluster(number)

    @property
    def number(self) -> int | None:
        return None if self.cluster is None else self.cluster.id

    def recent(self, now: float) -> list[tuple[float, Directory]]:
        return [each for each in self._past if each[0] >= now]

    def most_stake(self, producer: Producer, now: float) -> int:
        """The most that a producer had lately: what it attested before it had less still counts."""
        before = [past.producer(producer.address) for _, past in self.recent(now)]
        return max([producer.stake, *(entry.stake for entry in before if entry is not None)])

    def was_producer(self, address: bytes, now: float) -> bool:
        return any(past.producer(address) is not None for _, past in self.recent(now))

    def was_member(self, address: bytes, now: float) -> bool:
        return any(past.cluster_of(address) is not None for _, past in self.recent(now))

    def was_ours(self, member: bytes, now: float) -> bool:
        """Whether ``member`` was in what is or was our cluster, shortly before."""
        return any(self._together(past, member) for _, past in self.recent(now))

    def was_at(self, peer: PeerId, now: float) -> bool:
        """The same, of a member by its peer."""
        found = [(past, past.member_at(peer)) for _, past in self.recent(now)]
        return any(member is not None and self._together(past, member) for past, member in found)

    def _together(self, past: Directory, member: bytes) -> bool:
        cluster = past.cluster_of(member)
        return cluster is not None and cluster in (self.number, past.cluster_of(self._address))


class Member:
    """The member's machine. Pure: `MemberEvent` in, `MemberAction` out."""

    def __init__(
        self,
        channels: Mapping[int, ChannelParams],
        params: RelayParams,
        address: bytes,
        rng: Random,
    ) -> None:
        """``address``: our 20-byte id, as the marketplace knows it."""
        self._channels = dict(channels)
        self._params = params
        self._address = address
        self._rng = rng
        self._roster = _Roster(address, params.tolerable_latency)
        self._served: int | None = None  # the cluster that `_seen` is for
        self._seen = ChunkCache(params.tolerable_latency + SLACK)
        self._watch = StakeWatch(params)
        # REPLAY and FALSE_WITNESS, by who sent them.
        self._told = Told(params, MAX_TESTIMONIES_PER_PEER, MAX_TESTIMONIES)
        self._tickets = itertools.count(1)
        self._checking: dict[int, _UnderWay] = {}
        self._signing: dict[int, _Signing] = {}
        self._of_peer: dict[PeerId, int] = {}  # chunks under way
        self._submitted, self._passed_on = _Load(), _Load()
        self._held: dict[_Held, tuple[_UnderWay, CheckedChunk]] = {}
        self._due: dict[int, list[_Held]] = {}  # timestamp → what waits for it
        self._held_load = _Load()
        self._held_of: dict[bytes, int] = {}  # producer → its held chunks
        self._actions: list[MemberAction] = []

    @property
    def under_way(self) -> int:
        """Chunks that are checked, held or signed for at the moment."""
        return self._submitted.chunks + self._passed_on.chunks

    @property
    def stake_forgotten(self) -> int:
        """Attestations forgotten for want of room (`StakeWatch.forgotten`)."""
        return self._watch.forgotten

    def handle(self, event: MemberEvent, now: float) -> list[MemberAction]:
        """``now``: Unix time in seconds; never goes back."""
        self._seen.expire(now)
        match event:
            case ChunkSubmitted(peer, frame):
                self._take(peer, frame, True, now)
            case ChunkPassedOn(peer, frame):
                self._take(peer, frame, False, now)
            case ChunkChecked(ticket, checked, _):
                chunk = self._checking.pop(ticket, None)
                if chunk is not None:
                    self._on_checked(chunk, checked, now)
            case Signed(ticket, signatures):
                job = self._signing.pop(ticket, None)
                if job is not None:
                    self._on_signed(job, signatures, now)
            case MarketplaceChanged(marketplace):
                self._roster.change(marketplace, now)
                number = self._roster.number
                if number is not None and number != self._served:
                    # What was witnessed and acknowledged was for another cluster.
                    self._seen.clear()
                    self._served = number
            case TimerFired(timer):
                self._on_due(timer, now)
        actions, self._actions = self._actions, []
        return actions

    # A frame arrives

    def _take(self, peer: PeerId, frame: bytes, submitted: bool, now: float) -> None:
        try:
            number = channel_of(frame)
        except RemoteError:
            self._drop(peer, NO_CHANNEL, drops.MALFORMED, blame=True)
            return
        if self._roster.cluster is None:
            self._drop(peer, number, drops.NO_CLUSTER, blame=False)
            return
        if not submitted and not self._is_neighbour(peer):
            blame = not self._roster.was_at(peer, now)
            self._drop(peer, number, drops.NOT_A_MEMBER, blame=blame)
            return
        channel = self._channels.get(number)
        if channel is None:
            self._drop(peer, number, drops.UNKNOWN_CHANNEL, blame=False)
            return
        if not well_formed(frame, channel, witnessed=not submitted):
            self._drop(peer, number, drops.MALFORMED, blame=True)
            return
        chunk = _UnderWay(peer, channel, frame, submitted, now)
        if not self._enter(chunk):
            self._drop(peer, number, drops.TOO_BUSY, blame=False)
            return
        ticket = next(self._tickets)
        self._checking[ticket] = chunk
        self._actions.append(CheckChunk(ticket, number, frame, witnessed=not submitted))

    def _is_neighbour(self, peer: PeerId) -> bool:
        """Whether a peer is another member of our cluster."""
        member = self._roster.now.member_at(peer)
        return (
            member is not None
            and member != self._address
            and self._roster.now.cluster_of(member) == self._roster.number
        )

    # It has been checked, or is due

    def _on_checked(self, chunk: _UnderWay, checked: CheckedChunk | None, now: float) -> None:
        if checked is None:
            # The form was right, so it is a signature that is none.
            self._refuse(chunk, drops.BAD_SIGNATURE, blame=True)
            return
        self._judge(chunk, checked, now)

    def _judge(self, chunk: _UnderWay, checked: CheckedChunk, now: float) -> None:
        if self._roster.cluster is None:
            self._refuse(chunk, drops.NO_CLUSTER, blame=False)
            return
        producer = self._roster.now.producer(checked.producer)
        if producer is None:
            blame = not self._roster.was_producer(checked.producer, now)
            self._refuse(chunk, drops.UNKNOWN_PRODUCER, blame=blame)
            return
        if self._is_replay(chunk, checked, now):
            return  # before its witness: who signed for an old chunk may have been a member then
        if not chunk.submitted and not self._rightly_witnessed(chunk, checked, now):
            return
        if not self._is_due(chunk, checked, now):
            return
        key = key_of(checked)
        seen = self._seen.get(key)
        if seen is not None and seen.attested == checked.attested:
            if chunk.submitted:
                self._acknowledge_again(chunk.peer, key, seen, checked, now)
            self._refuse(chunk, drops.DUPLICATE, blame=False)
            return
        if not self._seen.has_room(checked.producer):
            self._refuse(chunk, drops.TOO_BUSY, blame=False)
            return
        if self._stake_is_right(chunk, checked, producer, now):
            self._accept(chunk, checked, key, now)

    def _rightly_witnessed(self, chunk: _UnderWay, checked: CheckedChunk, now: float) -> bool:
        cluster = self._roster.now.cluster_of(checked.member)
        if cluster is not None and cluster == self._roster.number:
            return True
        lately = self._roster.was_ours(checked.member, now)
        if cluster is not None:
            self._refuse(chunk, drops.WRONG_CLUSTER, blame=not lately)
            return False
        if not self._roster.was_member(checked.member, now):
            reason = f"{checked.member.hex()} witnessed a chunk and is no cluster's member"
            self._testify(Kind.FALSE_WITNESS, reason, chunk, checked, now)
        self._refuse(chunk, drops.FALSE_WITNESS, blame=not lately)
        return False

    def _is_replay(self, chunk: _UnderWay, checked: CheckedChunk, now: float) -> bool:
        latency, timestamp = self._params.tolerable_latency, checked.attested.timestamp
        if now - timestamp <= latency:
            return False
        # Judged by when it came: that we took long to check it is nobody else's fault.
        age = chunk.received_at - timestamp
        late = age > latency + SLACK
        if late:
            reason = (
                f"peer {peer_id_text(chunk.peer)} sent a chunk {age:.1f} s after its "
                f"timestamp, by this node's clock; {latency:g} s are tolerable"
            )
            self._testify(Kind.REPLAY, reason, chunk, checked, now)
        self._refuse(chunk, drops.REPLAYED, blame=late)
        return True

    def _is_due(self, chunk: _UnderWay, checked: CheckedChunk, now: float) -> bool:
        """Whether the time of a chunk has come; where not, it is held if it can be."""
        timestamp = checked.attested.timestamp
        if timestamp - now > self._params.tolerable_latency:
            self._refuse(chunk, drops.TOO_FAR_AHEAD, blame=True)
            return False
        if timestamp > now:
            self._hold(chunk, checked)
            return False
        return True

    def _stake_is_right(
        self, chunk: _UnderWay, checked: CheckedChunk, producer: Producer, now: float
    ) -> bool:
        signature = checked.frame.attestation.signature
        stake = self._roster.most_stake(producer, now)
        fault = self._watch.note(
            checked.producer, chunk.channel, checked.attested, signature, stake, now
        )
        if fault is None:
            return True
        if not fault.told:
            # Beyond the most of lately is beyond what it has now, which others can look up.
            fault = msgspec.structs.replace(fault, stake=producer.stake)
            self._actions.append(Dispute(stake_evidence(fault, self._params, now)))
        conflicting = fault.kind is Kind.CONFLICTING_CHUNKS
        # Another member can know what stake there is, but not what else we have seen.
        blame = chunk.submitted or fault.kind is Kind.OVERSPENT_STAKE
        self._refuse(chunk, drops.CONFLICTING if conflicting else drops.OVERSPENT, blame=blame)
        return False

    def _testify(
        self, kind: Kind, reason: str, chunk: _UnderWay, checked: CheckedChunk, now: float
    ) -> None:
        """Dispute what a frame shows: once for each peer and broadcast."""
        broadcast = key_of(checked)._replace(chunk=0)
        if not self._told.is_news(chunk.peer, (kind, broadcast), now):
            return
        signature = checked.frame.attestation.signature
        exhibit = Exhibit(
            checked.attested.encode(), signature, chunk.frame, witnessed=not chunk.submitted
        )
        evidence = Evidence(
            kind=kind,
            reason=reason,
            found_at=now,
            channel=chunk.channel,
            params=self._params,
            message_id=checked.attested.message_id,
            producers=(checked.producer,),
            culprits=(checked.member,) if kind is Kind.FALSE_WITNESS else (),
            exhibits=(exhibit,),
        )
        self._actions.append(Dispute(evidence))

    # Held until due

    def _hold(self, chunk: _UnderWay, checked: CheckedChunk) -> None:
        key, load, size = key_of(checked), self._held_load, len(chunk.frame)
        held = self._held.get((key, checked.attested))
        if held is not None:
            if chunk.submitted and len(held[0].also_from) < self._params.chunks_per_peer:
                held[0].also_from[chunk.peer] = None
            self._refuse(chunk, drops.DUPLICATE, blame=False)
            return
        own = self._held_of.get(checked.producer, 0)
        if (
            own >= MAX_HELD_PER_PRODUCER
            or load.chunks >= MAX_HELD
            or load.size + size > MAX_HELD_SIZE
        ):
            self._refuse(chunk, drops.TOO_BUSY, blame=False)
            return
        load.chunks, load.size = load.chunks + 1, load.size + size
        self._held_of[checked.producer] = own + 1
        self._held[key, checked.attested] = (chunk, checked)
        if key.timestamp not in self._due:
            self._due[key.timestamp] = []
            self._actions.append(SetTimer(Timer("due", key.timestamp), float(key.timestamp)))
        self._due[key.timestamp].append((key, checked.attested))

    def _on_due(self, timer: Timer, now: float) -> None:
        # Where a driver is early, what is not due is held anew.
        for place in self._due.pop(timer.epoch, ()):
            chunk, checked = self._held.pop(place)
            self._held_load.chunks -= 1
            self._held_load.size -= len(chunk.frame)
            _less(self._held_of, checked.producer)
            self._judge(chunk, checked, now)
            seen = self._seen.get(key_of(checked))
            if seen is not None and seen.attested == checked.attested:
                for peer in chunk.also_from:
                    self._acknowledge_again(peer, key_of(checked), seen, checked, now)

    # Accepted

    def _accept(self, chunk: _UnderWay, checked: CheckedChunk, key: ChunkKey, now: float) -> None:
        seen = self._seen.add(key, checked.attested)
        if chunk.submitted:
            seen.waiting[chunk.peer] = None
            self._sign(chunk, key, seen, checked, now)
            return
        self._leave(chunk)
        self._actions.append(PublishChunk(chunk.channel.id, chunk.frame, checked))

    def _acknowledge_again(
        self, peer: PeerId, key: ChunkKey, seen: SeenChunk, checked: CheckedChunk, now: float
    ) -> None:
        """Acknowledge a chunk that we have: the first time may have been lost."""
        if seen.acknowledgement:
            self._actions.append(SendAcknowledgement(peer, seen.acknowledgement))
        elif seen.wait(peer) and not seen.signing:
            self._sign(None, key, seen, checked, now)

    def _sign(
        self,
        chunk: _UnderWay | None,
        key: ChunkKey,
        seen: SeenChunk,
        checked: CheckedChunk,
        now: float,
    ) -> None:
        cluster = self._roster.number
        if cluster is None:
            return
        acknowledgement = Acknowledgement(
            key.message_id, key.chunk, cluster, int(now), key.producer
        )
        seen.signing = True
        ticket = next(self._tickets)
        self._signing[ticket] = _Signing(key, seen, acknowledgement, chunk, checked)
        receipt = keccak256(acknowledgement.signed_part())
        digests = (receipt,) if chunk is None else (checked.message_hash, receipt)
        self._actions.append(Sign(ticket, digests))

    def _on_signed(self, job: _Signing, signatures: tuple[bytes, ...], now: float) -> None:
        seen, chunk = job.seen, job.chunk
        seen.signing = False
        waiting, seen.waiting = seen.waiting, {}
        problem = self._outdated(job, now)
        if problem:
            if chunk is not None:
                if self._seen.get(job.key) is seen:
                    self._seen.remove(job.key)
                self._refuse(chunk, problem, blame=False)
            return
        receipt = msgspec.structs.replace(job.acknowledgement, signature=signatures[-1])
        seen.acknowledgement = receipt.encode()
        self._actions += (SendAcknowledgement(peer, seen.acknowledgement) for peer in waiting)
        if chunk is None:
            return
        self._leave(chunk)
        frame = msgspec.structs.replace(job.checked.frame, witness=signatures[0])
        checked = msgspec.structs.replace(job.checked, frame=frame, member=self._address)
        data = frame.encode()
        self._actions.append(Witnessed(checked, signatures[0], receipt))
        others = self._others()
        if others:
            self._actions.append(PassOn(others, data))
        self._actions.append(PublishChunk(chunk.channel.id, data, checked))

    def _outdated(self, job: _Signing, now: float) -> str:
        """Why what has been signed must not be sent any more; empty where it may."""
        if now - job.key.timestamp > self._params.tolerable_latency:
            return drops.REPLAYED
        if self._roster.number is None or self._seen.get(job.key) is not job.seen:
            return drops.NO_CLUSTER  # or it was another meanwhile, and what was seen is forgotten
        if self._roster.now.producer(job.key.producer) is None:
            return drops.UNKNOWN_PRODUCER
        return ""

    def _others(self) -> tuple[MarketMember, ...]:
        """The rest of our cluster, in another order each time: the first is served first."""
        members = () if self._roster.cluster is None else self._roster.cluster.members
        others = [member for member in members if member.address != self._address]
        self._rng.shuffle(others)
        return tuple(others)

    # What is under way

    def _enter(self, chunk: _UnderWay) -> bool:
        """Count a chunk as under way, where there is room for it."""
        load, size = self._load(chunk), len(chunk.frame)
        own = self._of_peer.get(chunk.peer, 0)
        if (
            own >= self._params.chunks_per_peer
            or load.chunks >= MAX_UNDER_WAY
            or load.size + size > MAX_UNDER_WAY_SIZE
        ):
            return False
        load.chunks, load.size = load.chunks + 1, load.size + size
        self._of_peer[chunk.peer] = own + 1
        return True

    def _leave(self, chunk: _UnderWay) -> None:
        load = self._load(chunk)
        load.chunks, load.size = load.chunks - 1, load.size - len(chunk.frame)
        _less(self._of_peer, chunk.peer)

    def _load(self, chunk: _UnderWay) -> _Load:
        return self._submitted if chunk.submitted else self._passed_on

    def _refuse(self, chunk: _UnderWay, reason: str, *, blame: bool) -> None:
        """It is under way no more, and goes nowhere."""
        self._leave(chunk)
        self._drop(chunk.peer, chunk.channel.id, reason, blame=blame)

    def _drop(self, peer: PeerId, channel: int, reason: str, *, blame: bool) -> None:
        self._actions.append(ChunkDropped(peer, channel, reason, blame))


def _less(counts: dict[bytes, int], key: bytes) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
