"""From received bytes to an accepted message: checked in the order of rising cost.

Theory of operation. A message is parsed, held against its topic and the
signature policy, and looked up among those seen. Then its signature is checked
by whoever drives us, and only a message that its author did sign is marked as
seen: a forgery under a stolen id cannot displace the original. Peers that send
large messages twice are told IDONTWANT at that point, before the slow part,
validation, of which every topic has a bounded share of its own.

While a message waits, its copies are remembered as duplicates: if it proves
invalid, everybody who sent it is blamed; if valid, nobody gets it back.
"""

from collections.abc import Iterable, Sequence

import msgspec

from bruit.node.gossip import drops
from bruit.node.gossip.actions import CheckSignature, Deliver, Lane, Rejected, SendMessage, Validate
from bruit.node.gossip.caches import SeenCache
from bruit.node.gossip.context import Context
from bruit.node.gossip.events import Validated
from bruit.node.gossip.lazy import LazyGossip
from bruit.node.gossip.mesh import Mesh
from bruit.node.gossip.params import MAX_MESSAGE_ID, TopicParams
from bruit.node.gossip.wire import message_frame
from bruit.scoring.seam import Refusal
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId
from bruit.topics.message import (
    Message,
    SignaturePolicy,
    decode_message,
    policy_fault,
)
from bruit.topics.validation import ACCEPTED, Verdict


class _Load(msgspec.Struct):
    """What one topic has under way."""

    messages: int = 0
    size: int = 0  # bytes


class _Pending(msgspec.Struct, gc=False):
    """A message on its way through the checks."""

    message: Message
    message_id: bytes
    source: PeerId
    params: TopicParams  # of its topic
    load: _Load  # the same
    copies_from: dict[PeerId, int] = {}  # who else sent it, or sent it again: how often

    def copy(self, sender: PeerId) -> None:
        self.copies_from[sender] = self.copies_from.get(sender, 0) + 1

    def senders(self) -> list[PeerId]:
        if not self.copies_from:
            return [self.source]
        return list(dict.fromkeys((self.source, *self.copies_from)))

    def enters(self) -> None:
        """It counts as under way."""
        self.load.messages += 1
        self.load.size += len(self.message.raw)

    def leaves(self) -> None:
        self.load.messages -= 1
        self.load.size -= len(self.message.raw)


class Intake:
    def __init__(self, context: Context, mesh: Mesh, gossip: LazyGossip, seen: SeenCache) -> None:
        self._context = context
        self._mesh = mesh
        self._gossip = gossip
        self._seen = seen
        self._signed = context.config.signature_policy is SignaturePolicy.STRICT_SIGN
        self._last_ticket = 0
        self._checking: dict[int, _Pending] = {}  # ticket → signature under way
        self._validating: dict[int, _Pending] = {}  # ticket → validation under way
        # The same by id; two forgeries of one id can be under way at once: the bytes
        # of the message tell them apart.
        self._checking_ids: dict[bytes, list[_Pending]] = {}
        self._validating_ids: dict[bytes, _Pending] = {}
        self._loads: dict[str, _Load] = {}  # of topics that we are or were subscribed to

    @property
    def pending(self) -> int:
        return len(self._checking) + len(self._validating)

    def receive(self, raw: bytes, source: PeerId, now: float) -> None:
        """One published message out of a frame from ``source``."""
        context = self._context
        try:
            message = decode_message(raw)
        except RemoteError:
            context.drop(drops.MALFORMED_FRAME, source)
            return
        topic = message.topic
        if not self._mesh.joined(topic):
            context.drop(drops.NOT_SUBSCRIBED, source, topic)
            return
        params = context.config.topic(topic)
        if len(raw) > params.max_message_size:
            fault = f"{len(raw)} bytes, more than the topic's {params.max_message_size}"
            self._reject(message, b"", source, fault, now)
            return
        policy = policy_fault(message, context.config.signature_policy)
        if policy is not None:
            self._reject(message, b"", source, policy, now)
            return
        message_id = params.message_id(message)
        if message_id in self._seen:
            self._on_copy(topic, message_id, source, now)
            return
        if message.author in context.banned:
            context.drop(drops.BANNED_AUTHOR, source, topic)
            return
        if not 0 < len(message_id) <= MAX_MESSAGE_ID:
            self._reject(message, message_id, source, "message id of impossible length", now)
            return
        load = self._loads.get(topic)
        if load is None:
            load = self._loads[topic] = _Load()
        pending = _Pending(message, message_id, source, params, load)
        if self._signed:
            self._check_signature(pending, now)
        else:
            self._authentic(pending, now)

    def _on_copy(self, topic: str, message_id: bytes, source: PeerId, now: float) -> None:
        """A copy of a message that is seen."""
        first = self._validating_ids.get(message_id)
        if first is not None:
            first.copy(source)
        self._context.count(drops.DUPLICATE)
        self._context.duplicate(source, topic, message_id, now)

    # Signature

    def _check_signature(self, pending: _Pending, now: float) -> None:
        message = pending.message
        under_check = self._checking_ids.get(pending.message_id)
        for first in under_check or ():
            if first.message.raw == message.raw:
                # Scored when the signature is: it may be under another's id.
                first.copy(pending.source)
                self._context.count(drops.DUPLICATE)
                return
        if not self._has_room(pending, now):
            return
        pending.enters()
        self._last_ticket += 1
        self._checking[self._last_ticket] = pending
        if under_check is None:
            self._checking_ids[pending.message_id] = [pending]
        else:
            under_check.append(pending)
        self._context.emit(CheckSignature(self._last_ticket, message))

    def on_signature(self, ticket: int, valid: bool, now: float) -> None:
        pending = self._checking.pop(ticket, None)
        if pending is None:
            return
        message = pending.message
        under_check = self._checking_ids[pending.message_id]
        if len(under_check) == 1:
            del self._checking_ids[pending.message_id]
        else:
            self._checking_ids[pending.message_id] = [p for p in under_check if p is not pending]
        pending.leaves()
        if not valid:
            for sender in pending.senders():
                self._reject(message, pending.message_id, sender, "invalid signature", now)
        elif pending.message_id in self._seen:  # its twin was faster
            for sender in pending.senders():
                self._on_copy(message.topic, pending.message_id, sender, now)
        else:
            self._authentic(pending, now)

    # Validation

    def _authentic(self, pending: _Pending, now: float) -> None:
        """The message is what its author wrote, and new."""
        message, message_id = pending.message, pending.message_id
        validated = pending.params.validated
        if not self._mesh.joined(message.topic):
            return  # left while the signature was checked
        if message.author == self._context.own_id:
            # Written before a restart: nobody else has our key, so nobody is to blame.
            self._seen.add(message_id, now)
            self._gossip.promises.fulfil(message_id)
            self._context.drop(drops.OWN, pending.source, message.topic)
            return
        if validated and not self._has_room(pending, now):
            return
        self._seen.add(message_id, now)
        self._gossip.announcing.arrived(message_id, now)
        self._context.validating(message_id, validated, now)
        for sender, times in pending.copies_from.items():
            for _ in range(times):
                self._context.duplicate(sender, message.topic, message_id, now)
        self._gossip.promises.fulfil(message_id)
        self._gossip.say_unwanted(message.topic, message_id, len(message.data), pending.source)
        if not validated:
            self._accept(pending, Validated(0, ACCEPTED, message.data), now)
            return
        pending.enters()
        self._last_ticket += 1
        self._validating[self._last_ticket] = pending
        self._validating_ids[message_id] = pending
        self._context.emit(Validate(self._last_ticket, message, pending.source))

    def on_validated(self, event: Validated, now: float) -> None:
        pending = self._validating.pop(event.ticket, None)
        if pending is None:
            return
        message = pending.message
        del self._validating_ids[pending.message_id]
        pending.leaves()
        match event.validation.verdict:
            case Verdict.ACCEPT:
                self._accept(pending, event, now)
            case Verdict.REJECT:
                reason = event.validation.reason
                self._reject(
                    message, pending.message_id, pending.source, reason, now, Refusal.INVALID
                )
            case Verdict.IGNORE:
                self._context.drop(drops.IGNORED, pending.source, message.topic)
                self._context.refused(
                    pending.source, message.topic, pending.message_id, Refusal.IGNORED, now
                )

    def _accept(self, pending: _Pending, verdict: Validated, now: float) -> None:
        message, message_id, source = pending.message, pending.message_id, pending.source
        context, topic = self._context, message.topic
        if not self._mesh.joined(topic):
            return  # left while the message was judged: it is nobody's any more
        senders = pending.senders()
        context.delivered(source, topic, message_id, now)
        context.tags.delivered(senders, topic)
        self._gossip.has(topic, message_id, message.raw)
        targets = tuple(self.targets(topic, message_id, now, (*senders, message.author)))
        if pending.params.announced is not None:
            targets = self._gossip.announcing.tell_of(topic, message_id, targets)
        if targets:
            frame = message_frame(message.raw)
            context.emit(SendMessage(targets, message_id, frame, Lane.FORWARD))
            context.count("messages forwarded", len(targets))
        context.count("messages delivered")
        facts = verdict.validation.facts
        context.emit(Deliver(message, message_id, verdict.payload, source, facts))

    def targets(
        self, topic: str, message_id: bytes, now: float, without: Sequence[PeerId] = ()
    ) -> list[PeerId]:
        """Mesh, direct and floodsub peers that are to have a message, and do not refuse it."""
        context = self._context
        chosen = list(self._mesh.members(topic))
        chosen += [
            peer.id
            for peer in context.peers.flooded(topic)
            if context.scores.reaches(peer.id, context.thresholds.publish, now)
        ]
        chosen += [peer for peer in context.direct if context.peers.is_subscribed(peer, topic)]
        return self.willing(dict.fromkeys(chosen), message_id, without)

    def willing(
        self, peers: Iterable[PeerId], message_id: bytes, without: Sequence[PeerId] = ()
    ) -> list[PeerId]:
        """Those of ``peers`` that have not said IDONTWANT, and are not ``without``."""
        known = self._context.peers
        return [
            peer.id
            for peer in map(known.get, peers)
            if peer is not None and message_id not in peer.unwanted and peer.id not in without
        ]

    # Refusal

    def _reject(
        self,
        message: Message,
        message_id: bytes,
        source: PeerId,
        reason: str,
        now: float,
        refusal: Refusal = Refusal.FORGED,
    ) -> None:
        context = self._context
        context.refused(source, message.topic, message_id, refusal, now)
        context.count("messages rejected")
        context.emit(Rejected(source, message.author, message.topic, message_id, reason))

    # The bounds

    def _has_room(self, pending: _Pending, now: float) -> bool:
        """Whether the topic may take one more under way; if not, it is dropped, blaming nobody."""
        context, message = self._context, pending.message
        params, load = pending.params, pending.load
        size = load.size + len(message.raw)
        if load.messages < params.max_validating and size <= params.max_validating_bytes:
            return True
        context.drop(drops.VALIDATION_FULL, pending.source, message.topic)
        context.refused(pending.source, message.topic, pending.message_id, Refusal.QUEUE_FULL, now)
        self._gossip.promises.excuse(pending.source)
        return False
