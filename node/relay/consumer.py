"""The consumer: checks chunks, gathers them, rebuilds blocks, and disputes those that fail.

Theory of operation. Every chunk is checked on its own, in the order of rising cost, and answered
with a verdict for the mesh. Good ones are gathered by broadcast (`gathering`). With MIN_CHUNKS of
one broadcast a block is decoded, judged, compared with its message id, and delivered once. Whatever
fails on the way is the producer's fault and disputed, with the chunks as evidence: they are signed.
When a message's time is over, chunks of several producers are tried together; if that gives no
block either, those who attested too few are disputed. Nobody is blamed for chunks of others.

A consumer knows some things only by its own clock and link: that chunks are too few, or too late.
It says so in its evidence (`evidence_check`).
"""

from collections import OrderedDict
from collections.abc import Mapping
from random import Random

import msgspec

from bruit.node.relay import drops
from bruit.node.relay.actions import (
    BlockUndecided,
    CheckChunk,
    ChunkDropped,
    ConsumerAction,
    Decode,
    DeliverBlock,
    Dispute,
    JudgeBlock,
    Judged,
    SetTimer,
)
from bruit.node.relay.events import (
    BlockJudged,
    ChunkChecked,
    ChunkGossiped,
    ChunkSeen,
    ConsumerEvent,
    Decoded,
    MarketplaceChanged,
    Timer,
    TimerFired,
)
from bruit.node.relay.evidence import Evidence, Exhibit, Kind, exhibit_of, plain
from bruit.node.relay.gathering import RECORD, Broadcast, Gathering, Key, Placed, Pool, State
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.recent import Patience, Recent
from bruit.node.relay.signing import CheckedChunk, well_formed
from bruit.node.relay.stake_watch import StakeWatch, Told, stake_evidence
from bruit.node.relay.wants import ChunkWants, group_of
from bruit.node.relay.wire import (
    ATTESTATION_SIZE,
    MESSAGE_ID_SIZE,
    WHOLE,
    Attestation,
    decode_attestation,
)
from bruit.plugins.marketplace import Marketplace
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId, peer_id_text
from bruit.topics.validation import ACCEPTED, Verdict, ignore, reject

MAX_CHECKING_BYTES = 64 << 20  # frames under verification, of all peers; guess
MAX_TESTIMONIES_PER_PEER = 64  # replays and false witnesses that are disputed; guess
MAX_TESTIMONIES = 4096  # of all peers; guess
# Chunks of unknown producers or members from one peer within a tolerable latency, before that is
# held against it: a marketplace may be slow to come. Guess: a peer's part of a block of which a new
# cluster has a quarter.
MAX_STRANGE = 8
MAX_DELIVERED = 65_536  # hashes of delivered blocks that are remembered; guess

_EXPIRY = "chunk-expiry"


class _Checking(msgspec.Struct, frozen=True):
    """A frame under verification."""

    gossip: int  # ticket of the ChunkGossiped to answer
    channel: ChannelParams
    peer: PeerId
    size: int  # bytes
    attestation: Attestation


class _Work(msgspec.Struct, frozen=True):
    """A set of chunks that is being decoded, or whose payload is being judged."""

    pool: Pool
    broadcast: Broadcast | None  # None for a union of several producers' chunks
    chunks: tuple[CheckedChunk, ...]
    payload: bytes = b""  # known from its decoding on


class Consumer:
    """One consumer of all its channels. Pure."""

    def __init__(
        self,
        channels: Mapping[int, ChannelParams],
        params: RelayParams,
        rng: Random,
        wants: Mapping[int, ChunkWants] = {},
    ) -> None:
        """``wants``: by channel, what its topic's router is told of the chunks that are needed.

        Raises LocalError where a dispute could not carry the chunks that prove it.
        """
        for channel in channels.values():
            if channel.min_chunks > params.chunk_report_limit:
                raise LocalError(
                    f"channel {channel.id} rebuilds blocks from {channel.min_chunks} chunks, and a "
                    f"dispute carries {params.chunk_report_limit}: raise chunk_report_limit"
                )
        # What was delivered is remembered at least as long as chunks of it can come.
        self._memory = max(
            params.refresh_interval, 2 * params.tolerable_latency, 2 * params.chunk_expiry
        )
        self._channels = dict(channels)
        self._params = params
        self._rng = rng
        self._wants = dict(wants)
        self._market = Recent(params.tolerable_latency)
        self._patience = Patience(MAX_STRANGE, params.tolerable_latency)
        self._watch = StakeWatch(params)
        self._gathering = Gathering(params)
        self._next_ticket = 0
        self._checking: dict[int, _Checking] = {}
        self._checking_bytes = 0
        self._checking_of: dict[PeerId, int] = {}
        self._works: dict[int, _Work] = {}
        self._told = Told(params, MAX_TESTIMONIES_PER_PEER, MAX_TESTIMONIES)
        # Channel and block hash, and channel and message id → at which Unix time it was delivered
        self._delivered: OrderedDict[tuple[int, bytes], float] = OrderedDict()
        self._delivered_ids: OrderedDict[tuple[int, bytes], float] = OrderedDict()
        self._actions: list[ConsumerAction] = []

    def handle(self, event: ConsumerEvent, now: float) -> list[ConsumerAction]:
        """Everything that follows from ``event`` at Unix time ``now``, in order."""
        self._forget(now)
        match event:
            case ChunkGossiped():
                self._on_chunk_gossiped(event)
            case ChunkChecked():
                self._on_chunk_checked(event, now)
            case ChunkSeen(checked):
                self._on_chunk_seen(checked, now)
            case Decoded():
                self._on_decoded(event, now)
            case BlockJudged():
                self._on_block_judged(event, now)
            case TimerFired(timer):
                self._on_timer(timer, now)
            case MarketplaceChanged(marketplace):
                self._on_marketplace(marketplace, now)
        actions, self._actions = self._actions, []
        return actions

    def _ticket(self) -> int:
        self._next_ticket += 1
        return self._next_ticket

    def _forget(self, now: float) -> None:
        self._gathering.forget(now)
        self._patience.forget(now)
        for memory in (self._delivered, self._delivered_ids):
            while memory and next(iter(memory.values())) < now - self._memory:
                memory.popitem(last=False)

    # --- the marketplace

    def _on_marketplace(self, marketplace: Marketplace, now: float) -> None:
        self._market.change(marketplace, now)
        # What others still attested is refused from now on: that chunks lack is not their doing.
        producers = {each.address: None for each in marketplace.producers}
        for broadcast in self._gathering.of_producers_gone(producers):
            broadcast.excused = True

    # --- chunks

    def _on_chunk_gossiped(self, event: ChunkGossiped) -> None:
        channel = self._channels.get(event.channel)
        if channel is None:
            self._drop(event.ticket, event.peer, event.channel, drops.UNKNOWN_CHANNEL, blame=False)
            return
        attestation = _attestation_of(event.frame)
        if attestation is None or not well_formed(event.frame, channel, witnessed=True):
            self._drop(event.ticket, event.peer, channel.id, drops.MALFORMED, blame=True)
            self._tell_wants(channel.id, attestation)
            return
        count = self._checking_of.get(event.peer, 0)
        size = len(event.frame) + RECORD
        if (
            count >= self._params.chunks_per_peer
            or self._checking_bytes + size > MAX_CHECKING_BYTES
        ):
            self._drop(event.ticket, event.peer, channel.id, drops.TOO_BUSY, blame=False)
            self._tell_wants(channel.id, attestation)
            return
        ticket = self._ticket()
        self._checking[ticket] = _Checking(event.ticket, channel, event.peer, size, attestation)
        self._checking_of[event.peer] = count + 1
        self._checking_bytes += size
        self._actions.append(CheckChunk(ticket, channel.id, event.frame, witnessed=True))

    def _drop(self, ticket: int, peer: PeerId, channel: int, reason: str, *, blame: bool) -> None:
        self._actions.append(Judged(ticket, reject(reason) if blame else ignore(reason)))
        self._actions.append(ChunkDropped(peer, channel, reason, blame))

    def _on_chunk_checked(self, event: ChunkChecked, now: float) -> None:
        checking = self._checking.pop(event.ticket, None)
        if checking is None:
            return
        self._checking_bytes -= checking.size
        self._checking_of[checking.peer] -= 1
        if not self._checking_of[checking.peer]:
            del self._checking_of[checking.peer]
        checked = event.checked
        if checked is None:
            refused: tuple[str, bool] | None = (drops.BAD_SIGNATURE, True)
        else:
            refused = self._refusal(checking, checked, now)
            if refused is None:
                refused = self._gather(checking.channel, checked, now)
        if refused is not None:
            reason, blame = refused
            self._drop(checking.gossip, checking.peer, checking.channel.id, reason, blame=blame)
        else:
            self._actions.append(Judged(checking.gossip, ACCEPTED))
        self._tell_wants(checking.channel.id, checking.attestation)

    def _tell_wants(self, channel: int, judged: Attestation | None) -> None:
        """The chunk that this attests is not under verification any more."""
        wants = self._wants.get(channel)
        if wants is None or judged is None:
            return
        message_id, timestamp = judged.message_id, judged.timestamp
        group = group_of(message_id, timestamp)
        wants.gathered(group, self._gathering.most(channel, message_id, timestamp))
        wants.judged(group, judged.chunk)
        if (channel, message_id) in self._delivered_ids:
            wants.finished(group)

    def _tell_wants_of(self, pool: Pool, *, over: bool) -> None:
        """The same for all that is gathered under one message id. ``over``: no more is needed."""
        wants = self._wants.get(pool.channel.id)
        if wants is None:
            return
        for timestamp in dict.fromkeys(broadcast.key[3] for broadcast in pool.broadcasts):
            group = group_of(pool.message_id, timestamp)
            if over:
                wants.finished(group)
            else:
                most = self._gathering.most(pool.channel.id, pool.message_id, timestamp)
                wants.gathered(group, most)

    def _refusal(
        self, checking: _Checking, checked: CheckedChunk, now: float
    ) -> tuple[str, bool] | None:
        """Why a chunk is not taken from a peer, and whether that peer should have known."""
        market = self._market
        if market.now is None:
            return drops.UNKNOWN_PRODUCER, False
        if market.producer(checked.producer) is None:
            if market.was_producer(checked.producer, now):
                return drops.UNKNOWN_PRODUCER, False
            # A byte that was changed makes both signatures those of nobody known.
            garbled = market.cluster_of(checked.member, now) is None
            return drops.UNKNOWN_PRODUCER, garbled or self._patience.ends(checking.peer, now)
        age = now - checked.attested.timestamp
        if age > self._params.tolerable_latency:
            reason = (
                f"peer {peer_id_text(checking.peer)} passed a chunk on {age:.1f} s after its "
                f"timestamp, by this node's clock"
            )
            self._testify(Kind.REPLAY, reason, checking, checked, now)
            return drops.REPLAYED, False
        if age < -self._params.tolerable_latency:
            return drops.TOO_FAR_AHEAD, False
        # After the age: who has witnessed an old chunk may have been a member then.
        if market.cluster_of(checked.member, now) is None:
            reason = (
                f"{checked.member.hex()}, a member of no cluster, witnessed a chunk that came from "
                f"peer {peer_id_text(checking.peer)}"
            )
            self._testify(Kind.FALSE_WITNESS, reason, checking, checked, now)
            return drops.FALSE_WITNESS, self._patience.ends(checking.peer, now)
        return None

    def _testify(
        self, kind: Kind, reason: str, checking: _Checking, checked: CheckedChunk, now: float
    ) -> None:
        """Dispute what a peer passed on: once for each peer and broadcast."""
        attested = checked.attested
        broadcast = (checked.producer, attested.channel, attested.message_id, attested.timestamp)
        if not self._told.is_news(checking.peer, (kind, broadcast), now):
            return
        evidence = Evidence(
            kind=kind,
            reason=reason,
            found_at=now,
            channel=checking.channel,
            params=self._params,
            message_id=attested.message_id,
            producers=(checked.producer,),
            culprits=(checked.member,) if kind is Kind.FALSE_WITNESS else (),
            exhibits=(exhibit_of(checked, frame=True, witness=True),),
        )
        self._actions.append(Dispute(evidence))

    def _on_chunk_seen(self, checked: CheckedChunk, now: float) -> None:
        channel = self._channels.get(checked.attested.channel)
        if channel is not None:
            self._gather(channel, checked, now)
            self._tell_wants(channel.id, checked.frame.attestation)

    def _gather(
        self, channel: ChannelParams, checked: CheckedChunk, now: float
    ) -> tuple[str, bool] | None:
        """Take a chunk, or say why not, and whether its sender should have known."""
        producer = self._market.producer(checked.producer)
        if producer is None:
            return drops.UNKNOWN_PRODUCER, False
        fault = self._watch.note(
            producer.address,
            channel,
            checked.attested,
            checked.frame.attestation.signature,
            self._market.most_stake(producer, now),
            now,
        )
        if fault is not None:
            if not fault.told:
                # Beyond the most of lately is beyond what it has now, which others can look up.
                fault = msgspec.structs.replace(fault, stake=producer.stake)
                self._actions.append(Dispute(stake_evidence(fault, self._params, now)))
            conflicting = fault.kind is Kind.CONFLICTING_CHUNKS
            return drops.CONFLICTING if conflicting else drops.OVERSPENT, False
        cluster = self._market.cluster_of(checked.member, now)
        placed, broadcast = self._gathering.place(channel, checked, cluster, now)
        if broadcast is None or placed is Placed.NO_ROOM:
            return drops.TOO_BUSY, False
        if placed is Placed.OVER:
            return drops.EXPIRED, False
        if placed is Placed.DUPLICATE:
            return drops.DUPLICATE, False
        pool = broadcast.pool
        if len(pool.broadcasts) == 1 and len(broadcast.clusters) == 1:
            self._actions.append(SetTimer(Timer(_EXPIRY, pool.number), pool.deadline))
        if broadcast.state is State.GATHERING and len(broadcast.chunks) == channel.min_chunks:
            broadcast.state = State.UNDER_WAY
            self._decode(_Work(pool, broadcast, tuple(broadcast.chunks.values())))
        return None

    # --- blocks

    def _decode(self, work: _Work) -> None:
        ticket = self._ticket()
        self._works[ticket] = work
        work.pool.under_way += 1
        chunks = {checked.chunk: checked.frame.chunk for checked in work.chunks}
        self._actions.append(Decode(ticket, work.pool.channel.id, chunks))

    def _on_decoded(self, event: Decoded, now: float) -> None:
        work = self._works.pop(event.ticket, None)
        if work is None:
            return
        if event.problem:
            self._fail(work, f"the chunks give no message: {event.problem}", "", now)
        elif work.pool.payload is not None and event.payload == work.pool.payload:
            self._settle_work(work, State.DELIVERED, now)  # by another producer, just before
        else:
            ticket = self._ticket()
            self._works[ticket] = msgspec.structs.replace(work, payload=event.payload)
            self._actions.append(JudgeBlock(ticket, work.pool.channel.id, event.payload))

    def _on_block_judged(self, event: BlockJudged, now: float) -> None:
        work = self._works.pop(event.ticket, None)
        if work is None:
            return
        pool = work.pool
        match event.validation.verdict:
            case Verdict.REJECT:
                self._fail(work, event.validation.reason, event.validator, now)
            case Verdict.IGNORE:
                self._undecided(work, event.validation.reason, now)
            case Verdict.ACCEPT if event.block_hash[:MESSAGE_ID_SIZE] != pool.message_id:
                found = event.block_hash[:MESSAGE_ID_SIZE].hex()
                self._fail(work, f"the block's message id is {found}", event.validator, now)
            case Verdict.ACCEPT:
                self._deliver(work, event, now)

    def _deliver(self, work: _Work, event: BlockJudged, now: float) -> None:
        pool = work.pool
        place = (pool.channel.id, event.block_hash)
        if place not in self._delivered:
            self._actions.append(self._delivery(work, event))
            if len(self._delivered) >= MAX_DELIVERED:
                self._delivered.popitem(last=False)
            self._delivered[place] = now
        named = (pool.channel.id, pool.message_id)
        self._delivered_ids.pop(named, None)
        if len(self._delivered_ids) >= MAX_DELIVERED:
            self._delivered_ids.popitem(last=False)
        self._delivered_ids[named] = now
        self._gathering.keep_payload(pool, work.payload)
        self._settle_work(work, State.DELIVERED, now)

    def _delivery(self, work: _Work, event: BlockJudged) -> DeliverBlock:
        broadcasts = self._broadcasts_of(work)
        clusters: dict[int, int] = {}
        for broadcast in broadcasts:
            for cluster in broadcast.witnesses():
                clusters[cluster] = clusters.get(cluster, 0) + 1
        return DeliverBlock(
            work.pool.channel.id,
            work.pool.message_id,
            event.block,
            event.block_hash,
            _producers(work),
            dict(event.validation.facts),
            min(broadcast.first_at for broadcast in broadcasts),
            clusters,
        )

    def _broadcasts_of(self, work: _Work) -> list[Broadcast]:
        if work.broadcast is not None:
            return [work.broadcast]
        found: dict[Key, Broadcast] = {}
        for checked in work.chunks:
            key = (
                checked.producer,
                work.pool.channel.id,
                work.pool.message_id,
                checked.attested.timestamp,
            )
            broadcast = self._gathering.broadcast(key)
            if broadcast is not None:
                found[key] = broadcast
        return list(found.values())

    def _fail(self, work: _Work, reason: str, validator: str, now: float) -> None:
        """The chunks give no valid block. Only a single producer's are its own fault."""
        if work.broadcast is None:
            self._settle_work(work, State.GATHERING, now)
            return
        chunks = sorted(work.chunks, key=lambda checked: checked.chunk)
        evidence = Evidence(
            kind=Kind.INVALID_BLOCK,
            reason=plain(reason),
            found_at=now,
            channel=work.pool.channel,
            params=self._params,
            message_id=work.pool.message_id,
            producers=(work.broadcast.producer,),
            exhibits=tuple(exhibit_of(checked, frame=True) for checked in chunks),
            validator=validator,
        )
        self._actions.append(Dispute(evidence))
        self._settle_work(work, State.DISPUTED, now)

    def _undecided(self, work: _Work, reason: str, now: float) -> None:
        """A plugin failed: nobody is to blame, and the block is lost."""
        if work.broadcast is None:  # alone each has too few chunks, and is disputed for that
            self._settle_work(work, State.GATHERING, now)
            return
        self._actions.append(
            BlockUndecided(
                work.pool.channel.id, work.pool.message_id, _producers(work), plain(reason)
            )
        )
        self._settle_work(work, State.UNDECIDED, now)

    def _settle_work(self, work: _Work, state: State, now: float) -> None:
        """What became of the broadcasts whose chunks were used; GATHERING leaves them open."""
        if state is not State.GATHERING:
            for broadcast in self._broadcasts_of(work):
                if work.broadcast is not None or broadcast.state is State.GATHERING:
                    self._gathering.finish(broadcast, state)
            self._tell_wants_of(work.pool, over=state is State.DELIVERED)
        work.pool.under_way -= 1
        if work.pool.due:
            self._conclude(work.pool, now)

    # --- the end of a message's time

    def _on_timer(self, timer: Timer, now: float) -> None:
        pool = self._gathering.pool(timer.epoch) if timer.name == _EXPIRY else None
        if pool is not None:
            pool.due = True
            self._conclude(pool, now)

    def _conclude(self, pool: Pool, now: float) -> None:
        """A pool's timer has fired: rebuild from all chunks together, or dispute.

        Called again when what was under way is done. Who began later than the pool has its own
        whole time.
        """
        if pool.under_way:
            return
        open_now = pool.gathering()
        delivered = (pool.channel.id, pool.message_id) in self._delivered_ids
        if open_now and not delivered:
            union = self._gathering.union(pool, self._rng)
            if union:
                self._decode(_Work(pool, None, union))
                return
        until = max((each.first_at + self._params.chunk_expiry for each in open_now), default=now)
        if until > now:
            self._actions.append(SetTimer(Timer(_EXPIRY, pool.number), until))
            return
        if not delivered:
            self._dispute_too_few(pool, [each for each in open_now if not each.excused], now)
        self._tell_wants_of(pool, over=True)
        self._gathering.close(pool)

    def _dispute_too_few(self, pool: Pool, broadcasts: list[Broadcast], now: float) -> None:
        limit = self._params.chunk_report_limit
        for at in range(0, len(broadcasts), limit):  # everybody is named, if it takes several
            exhibits = _share([_attestations(each) for each in broadcasts[at : at + limit]], limit)
            signers = {producer: None for producer, _ in exhibits}
            evidence = Evidence(
                kind=Kind.TOO_FEW_CHUNKS,
                reason=(
                    f"{len(signers)} producers attested chunks of message {pool.message_id.hex()}, "
                    f"and no {pool.channel.min_chunks} of them came in time"
                ),
                found_at=now,
                channel=pool.channel,
                params=self._params,
                message_id=pool.message_id,
                producers=tuple(signers),
                exhibits=tuple(exhibit for _, exhibit in exhibits),
            )
            self._actions.append(Dispute(evidence))


def _attestation_of(frame: bytes) -> Attestation | None:
    """What a frame begins with, if it is long enough."""
    if len(frame) < ATTESTATION_SIZE:
        return None
    return decode_attestation(frame[:ATTESTATION_SIZE])


def _producers(work: _Work) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(checked.producer for checked in work.chunks))


def _attestations(broadcast: Broadcast) -> list[tuple[bytes, Exhibit]]:
    """A producer's attestations without their chunks; one where all share it."""
    exhibits = [exhibit_of(checked) for checked in broadcast.chunks.values()]
    if any(checked.attested.chunk == WHOLE for checked in broadcast.chunks.values()):
        exhibits = exhibits[:1]
    return [(broadcast.producer, exhibit) for exhibit in exhibits]


def _share(columns: list[list[tuple[bytes, Exhibit]]], limit: int) -> list[tuple[bytes, Exhibit]]:
    """At most ``limit`` of all entries, everybody's first before anybody's second."""
    rounds = max((len(column) for column in columns), default=0)
    return [column[at] for at in range(rounds) for column in columns if at < len(column)][:limit]
