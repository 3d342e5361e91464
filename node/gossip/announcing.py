"""Announced topics: who has a message says so at once, and sends it to whoever asks.

Theory of operation. Where messages are large, most of what a mesh sends is copies that cross each
other on slow links. On an announced topic an accepted message is not pushed: an IHAVE goes to the
mesh at once, and who lacks the message asks one of those who announced it (IWANT), then the next
where that one does not answer. Own publications are pushed to a few, who announce them on. A peer
is asked for few messages at a time, so that fast ones, which answer sooner, are asked for more.
What was announced by a peer is not sent to it: an IHAVE says as much as an IDONTWANT.

All of it is IHAVE and IWANT of v1.0: peers that know no announced topics take part, at their
heartbeats. The idea is that of the specifications' drafts of gossipsub v2.0 (IANNOUNCE, INEED).
"""

import itertools
import math
from collections.abc import Iterable

import msgspec

from bruit.node.gossip import drops
from bruit.node.gossip.actions import CancelQueued
from bruit.node.gossip.caches import MessageCache, SeenCache
from bruit.node.gossip.context import Context
from bruit.node.gossip.params import MAX_MESSAGE_ID, MAX_TRACKED_PER_PEER, Announced
from bruit.node.gossip.peers import Peer
from bruit.node.gossip.wire import WRAPPING, ihave_entries
from bruit.topics.keys import PeerId

MAX_OFFERS = 100_000  # ids announced and not here, of all peers; guess: 10 peers' MAX_TRACKED
# A peer is asked for as many messages at a time as it sends in this time, seconds: a slow one for
# one, so that what others have sooner does not wait with it. Emulated (bench/BLOCK.md).
PATIENCE = 1.0
EAGER = 0.001  # seconds: no answer counts as faster
REMEMBERED = 0.3  # weight of the latest answer in the mean; guess
LOOKED_AT = 256  # ids of a peer's that are considered for one question; guess: several blocks


class _Offer(msgspec.Struct):
    """A message that others have and we have not."""

    topic: str
    until: float  # when it is forgotten, seconds
    holders: dict[PeerId, None]  # who announced it, and has not failed to send it
    asked: PeerId = b""  # of whom we asked it; empty while nobody
    asked_at: float = 0.0  # seconds


class Announcing:
    """What is announced to us, and whom we ask for it."""

    def __init__(self, context: Context, seen: SeenCache) -> None:
        self._context = context
        self._seen = seen
        self._offers: dict[bytes, _Offer] = {}
        self._offered_by: dict[PeerId, dict[bytes, None]] = {}
        self._asked_of: dict[PeerId, int] = {}  # questions that a peer has yet to answer
        self._answered_at: dict[PeerId, float] = {}  # when a peer last answered one
        self._takes: dict[PeerId, float] = {}  # seconds that its answers take, decayed mean
        params = context.params
        topics = context.config.topics.values()
        announced = [topic.announced for topic in topics if topic.announced is not None]
        self._most_at_once = max((each.at_once for each in announced), default=0)
        keep = max((each.keep for each in announced), default=0.0)
        length = max(params.history_length, int(keep / params.heartbeat_interval) + 1)
        # These are asked for later than others: a cache of their own, of more heartbeats.
        self.cache = MessageCache(length, params.history_gossip, params.cache_bytes)

    @property
    def waiting(self) -> int:
        """Messages that are announced to us and not here."""
        return len(self._offers)

    # From peers

    def on_ihave(self, peer: Peer, topic: str, ids: list[bytes], now: float) -> None:
        """``peer``, which the caller trusts enough to listen to, has these messages of a topic."""
        context = self._context
        announced = self._params(topic)
        left = max(context.params.max_ihave_length - peer.ids_announced, 0)
        peer.ids_announced += len(ids)
        if len(ids) > left:
            context.count(drops.IHAVE_LENGTH, len(ids) - left)
            del ids[left:]
        there: list[bytes] = []
        for message_id in ids:
            if not 0 < len(message_id) <= MAX_MESSAGE_ID:
                continue
            if announced.wants is not None:
                announced.wants.offered(message_id, peer.id)
            if message_id in self._seen:
                if self._note_holder(peer, message_id):
                    there.append(message_id)
                continue
            offer = self._offers.get(message_id)
            if offer is None:
                if len(self._offers) >= MAX_OFFERS:
                    context.drop(drops.IHAVE_LENGTH, peer.id)
                    break
                offer = self._offers[message_id] = _Offer(topic, now + announced.keep, {})
            if offer.topic == topic:
                offer.holders[peer.id] = None
                self._offered_by.setdefault(peer.id, {})[message_id] = None
        if there:
            context.emit(CancelQueued(peer.id, tuple(there)))
        self._ask(peer.id, now)

    def _note_holder(self, peer: Peer, message_id: bytes) -> bool:
        """The peer has this message: it is not to be sent to it."""
        if len(peer.unwanted) >= MAX_TRACKED_PER_PEER or message_id in peer.unwanted:
            return False
        peer.unwanted[message_id] = self._context.ticks + self._context.params.idontwant_ttl
        return True

    def arrived(self, message_id: bytes, now: float) -> None:
        """The message is here, from whomever."""
        offer = self._offers.pop(message_id, None)
        if offer is None:
            return
        for holder in offer.holders:
            self._offered_by[holder].pop(message_id, None)
            peer = self._context.peers.get(holder)
            if peer is not None:
                self._note_holder(peer, message_id)
        if asked := offer.asked:
            self._answered_at[asked] = now
            took = now - offer.asked_at
            before = self._takes.get(asked, took)
            self._takes[asked] = before + REMEMBERED * (took - before)
            self._settled(message_id, offer, came=True)
            self._ask(asked, now)

    def on_disconnected(self, peer: PeerId, now: float) -> None:
        """Others are asked for what the peer was to send."""
        self._answered_at.pop(peer, None)
        self._takes.pop(peer, None)
        for message_id in self._offered_by.pop(peer, {}):
            offer = self._offers[message_id]
            self._give_up(message_id, offer, peer)
            if offer.holders and not offer.asked:
                self._ask(next(iter(offer.holders)), now)
        self._asked_of.pop(peer, None)

    def left(self, topic: str) -> None:
        """We are not subscribed any more: nothing is expected of the topic."""
        for message_id in [each for each, offer in self._offers.items() if offer.topic == topic]:
            self._forget(message_id, self._offers[message_id])

    def heartbeat(self, now: float) -> None:
        """Turn to the next holder where one has not answered; forget what is over."""
        context, patience = self._context, self._context.params.iwant_followup
        blamed: dict[PeerId, None] = {}
        for message_id in list(self._offers):
            offer = self._offers[message_id]
            late = offer.asked if offer.asked and offer.asked_at + patience < now else b""
            if late:
                # Slow is not silent: a peer that answers others of our questions owes nothing.
                if self._answered_at.get(late, -math.inf) < offer.asked_at:
                    blamed[late] = None
                self._offered_by[late].pop(message_id, None)
                self._give_up(message_id, offer, late)
            if offer.until < now:
                self._forget(message_id, offer)
        for peer in blamed:
            context.count("broken promises")
            context.scores.misbehaved(peer, 1, "broken promise", now)
        for known in self._context.peers:
            if known.id in self._offered_by:
                self._ask(known.id, now)

    def _give_up(self, message_id: bytes, offer: _Offer, peer: PeerId) -> None:
        """Do not expect the message from this peer any more."""
        offer.holders.pop(peer, None)
        if offer.asked == peer:
            self._settled(message_id, offer)
        if not offer.holders:
            self._forget(message_id, offer)

    def _forget(self, message_id: bytes, offer: _Offer) -> None:
        if self._offers.pop(message_id, None) is None:
            return
        if offer.asked:
            self._settled(message_id, offer)
        for holder in offer.holders:
            self._offered_by[holder].pop(message_id, None)

    def _settled(self, message_id: bytes, offer: _Offer, came: bool = False) -> None:
        """The question is answered, or will not be."""
        self._asked_of[offer.asked] = self._asked_of.get(offer.asked, 1) - 1
        offer.asked = b""
        wants = self._params(offer.topic).wants
        if wants is not None and came:
            wants.came(message_id)
        elif wants is not None:
            wants.given_up(message_id)

    # To peers

    def _ask(self, peer: PeerId, now: float) -> None:
        """Ask a peer for what it has and we want, as far as it may be asked at a time."""
        offered = self._offered_by.get(peer)
        if not offered or self._asked_of.get(peer, 0) >= self._most_at_once:
            return
        context = self._context
        patience = max(1, int(PATIENCE / max(self._takes.get(peer, 0.0), EAGER)))
        if self._asked_of.get(peer, 0) >= patience:
            return
        # The newest: what has been offered for long is mostly not wanted any more.
        free = (each for each in reversed(offered) if not self._offers[each].asked)
        considered = list(itertools.islice(free, LOOKED_AT))
        context.rng.shuffle(considered)  # several who ask one peer should ask for other messages
        for message_id in considered:
            offer = self._offers[message_id]
            params, under_way = self._params(offer.topic), self._asked_of.get(peer, 0)
            if under_way >= min(params.at_once, patience):
                return
            if params.wants is not None and not params.wants.wants(message_id):
                continue
            offer.asked, offer.asked_at = peer, now
            self._asked_of[peer] = under_way + 1
            if params.wants is not None:
                params.wants.asked(message_id)
            batch = context.tell(peer)
            batch.iwant.append(message_id)
            largest = context.config.topic(offer.topic).max_message_size + WRAPPING
            batch.largest_wanted = max(batch.largest_wanted, largest)
            context.count("IWANT ids sent")

    def tell_of(
        self, topic: str, message_id: bytes, targets: Iterable[PeerId], pushed: int = 0
    ) -> tuple[PeerId, ...]:
        """Announce a message to ``targets``; return those who are to get it unasked.

        These are ``pushed`` of them, drawn at random, and all that speak only floodsub.
        """
        context = self._context
        told: list[PeerId] = []
        deaf: list[PeerId] = []
        for peer in targets:
            known = context.peers.get(peer)
            (told if known is not None and known.protocol.has_mesh else deaf).append(peer)
        wants = self._params(topic).wants
        if not pushed and wants is not None and not wants.shares(message_id):
            return tuple(deaf)
        if pushed:
            context.rng.shuffle(told)
        entries = ihave_entries(topic, [message_id], context.max_control)
        for peer in told[pushed:]:
            context.tell_ihave(peer, entries)
        context.count("messages announced", len(told[pushed:]))
        return (*told[:pushed], *deaf)

    def _params(self, topic: str) -> Announced:
        announced = self._context.config.topic(topic).announced
        assert announced is not None  # only such topics come here
        return announced
