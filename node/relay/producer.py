"""The producer of the relay: cuts a block, attests its chunks, sends each through a cluster.

Marlin, §Data Entry. Here: what happens before anything is sent. `submission` is the rest.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from random import Random

from bruit.node.relay.actions import (
    BroadcastRefused,
    Encode,
    ProducerAction,
    Sign,
    StakeAttached,
    WatchChunks,
)
from bruit.node.relay.broadcast import BroadcastUnderWay, stake_needed
from bruit.node.relay.directory import Directory
from bruit.node.relay.events import (
    AcknowledgementChecked,
    AcknowledgementReceived,
    Broadcast,
    Chosen,
    ChunksHeard,
    Encoded,
    MarketplaceChanged,
    MembersScored,
    MemberUnreachable,
    ProducerEvent,
    Signed,
    TimerFired,
)
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.stake_book import Allocation, StakeBook
from bruit.node.relay.submission import Submissions
from bruit.node.relay.wire import MESSAGE_ID_SIZE
from bruit.plugins.marketplace import Marketplace

MAX_BROADCASTS = 16  # under way at a time; guess: 100 MB of chunks of 4 MiB blocks


class Producer:
    """See `handle`. ``attached``: what an earlier run reported, still backing its blocks."""

    def __init__(
        self,
        channels: Mapping[int, ChannelParams],
        params: RelayParams,
        address: bytes,
        rng: Random,
        attached: Sequence[StakeAttached] = (),
    ) -> None:
        self._channels = dict(channels)
        self._params = params
        self._address = address
        self._directory = Directory(Marketplace())
        self._stake = StakeBook(params.refresh_interval)
        self._timestamps: dict[tuple[int, bytes, int], None] = {}  # taken: channel, message, time
        for each in attached:
            self._stake.restore(Allocation(each.start, each.end, each.timestamp))
            self._timestamps[each.channel, each.message_id, each.timestamp] = None
        self._actions: list[ProducerAction] = []
        self._tickets = itertools.count(1)
        self._under_way: dict[int, BroadcastUnderWay] = {}  # by number, the oldest first
        self._encoding: dict[int, BroadcastUnderWay] = {}  # by ticket
        self._signing: dict[int, BroadcastUnderWay] = {}  # by ticket
        self._submissions = Submissions(
            params, address, rng, self._tickets, self._under_way, self._actions
        )

    def handle(self, event: ProducerEvent, now: float) -> list[ProducerAction]:
        """Take one event; ``now`` is Unix time in seconds and never goes back."""
        match event:
            case MarketplaceChanged():
                self._on_marketplace(event.marketplace)
            case Broadcast():
                self._on_broadcast(event)
            case Encoded():
                self._on_encoded(event, now)
            case Signed():
                self._on_signed(event, now)
            case Chosen():
                self._submissions.on_chosen(event, now)
            case AcknowledgementReceived():
                self._submissions.on_acknowledgement(event, now)
            case AcknowledgementChecked():
                self._submissions.on_checked(event, now)
            case MemberUnreachable():
                self._submissions.on_unreachable(event.peer, now)
            case MembersScored():
                self._submissions.on_scores(event.scores)
            case ChunksHeard():
                self._submissions.on_heard(event, now)
            case TimerFired():
                self._submissions.on_timer(event.timer, now)
        self._submissions.settle(now)
        actions = list(self._actions)
        self._actions.clear()  # the list is shared
        return actions

    def _on_marketplace(self, marketplace: Marketplace) -> None:
        self._directory = Directory(marketplace)
        known = self._directory.producer(self._address)
        self._stake.stake = known.stake if known else 0
        self._submissions.on_directory(self._directory)

    def _on_broadcast(self, command: Broadcast) -> None:
        problem = self._problem(command)
        if problem:
            self._actions.append(BroadcastRefused(command.ticket, problem))
            return
        channel = self._channels[command.channel]
        broadcast = BroadcastUnderWay(
            next(self._tickets), command.ticket, channel, command.message_id
        )
        self._under_way[broadcast.number] = broadcast
        ticket = next(self._tickets)
        self._encoding[ticket] = broadcast
        self._actions.append(Encode(ticket, channel.id, command.payload))

    def _problem(self, command: Broadcast) -> str:
        """Why nothing can come of a command, or nothing."""
        channel = self._channels.get(command.channel)
        if channel is None:
            known = ", ".join(str(number) for number in self._channels) or "none"
            return f"channel {command.channel} is not configured; configured: {known}"
        if len(command.message_id) != MESSAGE_ID_SIZE:
            return f"a message id has {MESSAGE_ID_SIZE} bytes, not {len(command.message_id)}"
        if len(command.payload) > channel.max_block:
            return (
                f"a block of {len(command.payload)} bytes: channel {channel.id} takes "
                f"{channel.max_block} (max_block)"
            )
        if len(self._under_way) >= MAX_BROADCASTS:
            return f"{MAX_BROADCASTS} broadcasts are under way: wait until one has ended"
        return self._standing_problem()

    def _standing_problem(self) -> str:
        """Why the marketplace lets us broadcast nothing now, or nothing."""
        if self._directory.producer(self._address) is None:
            return f"{self._address.hex()} is no producer in the marketplace: register it there"
        if not any(cluster.members for cluster in self._directory.marketplace.clusters):
            return "no cluster in the marketplace has a member: wait until one has"
        return ""

    def _on_encoded(self, event: Encoded, now: float) -> None:
        broadcast = self._encoding.pop(event.ticket, None)
        if broadcast is None:
            return
        problem = self._standing_problem() or self._back(broadcast, event, now)
        if problem:
            self._refuse(broadcast, problem)
        else:
            self._submissions.choose_first(broadcast, now)

    def _back(self, broadcast: BroadcastUnderWay, encoded: Encoded, now: float) -> str:
        """Give a broadcast its timestamp and stake, and have it signed; or say why it has none."""
        sizes = [len(chunk) for chunk in encoded.chunks]
        if broadcast.channel.attesting is Attesting.MERKLE and len(set(sizes)) > 1:
            return (
                f"channel {broadcast.channel.id} attests one length for all chunks, and its coding "
                "makes chunks of several: attest each chunk, or code in GF(2^8)"
            )
        timestamp = self._free_timestamp(broadcast, now)
        if timestamp is None:
            return "this message was broadcast too often within one second: wait"
        per_byte = self._params.stake_per_byte
        needed = stake_needed(encoded.chunks, per_byte)
        self._stake.forget(int(now))
        allocation = self._stake.attach(needed, timestamp)
        if allocation is None:
            return self._stake_problem(needed, timestamp)
        channel, message_id = broadcast.channel.id, broadcast.message_id
        self._timestamps[channel, message_id, timestamp] = None
        self._actions.append(
            StakeAttached(channel, message_id, timestamp, allocation.start, allocation.end)
        )
        chunks = len(encoded.chunks)
        self._actions.append(WatchChunks(channel, message_id, timestamp, chunks))
        broadcast.timestamp = timestamp
        broadcast.deadline = timestamp + self._params.tolerable_latency
        digests = broadcast.attest(encoded.chunks, encoded.hashes, allocation.start, per_byte)
        ticket = next(self._tickets)
        self._signing[ticket] = broadcast
        self._actions.append(Sign(ticket, digests))
        return ""

    def _free_timestamp(self, broadcast: BroadcastUnderWay, now: float) -> int | None:
        """The first second that no broadcast of ours with this message id has."""
        first = int(now)
        self._timestamps = {key: None for key in self._timestamps if key[2] >= first}
        # Half of what members wait for: their clocks may be behind.
        last = first + math.floor(self._params.tolerable_latency / 2)
        for timestamp in range(first, last + 1):
            key = (broadcast.channel.id, broadcast.message_id, timestamp)
            if key not in self._timestamps:
                return timestamp
        return None

    def _stake_problem(self, needed: int, timestamp: int) -> str:
        at = self._stake.free_at(needed, timestamp)
        start = (
            f"not enough stake: {needed} tokens in one piece are needed, "
            f"{self._stake.free(timestamp)} of {self._stake.stake} are free"
        )
        if at is None:
            return f"{start}; register more, or broadcast smaller blocks"
        return f"{start}; try again in {at - timestamp} s, at Unix time {at}"

    def _refuse(self, broadcast: BroadcastUnderWay, problem: str) -> None:
        del self._under_way[broadcast.number]
        self._actions.append(BroadcastRefused(broadcast.ticket, problem))

    def _on_signed(self, event: Signed, now: float) -> None:
        broadcast = self._signing.pop(event.ticket, None)
        if broadcast is not None:
            broadcast.signatures = event.signatures
            self._submissions.start_if_ready(broadcast, now)
