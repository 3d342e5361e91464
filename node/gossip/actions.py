"""What the router wants done: the only way out.

Actions are carried out in the order of the list. Three are answered by an
event, now or later: CheckSignature, Validate, SetTimer. The reports at the end
ask for nothing; they say what happened.
"""

from enum import IntEnum

import msgspec

from bruit.node.gossip.events import Protocol, Timer
from bruit.topics.keys import PeerId
from bruit.topics.message import Message
from bruit.topics.validation import Fact


class Lane(IntEnum):
    """The queues of one peer, first served first. Drivers bound each in bytes."""

    CONTROL = 0
    OWN = 1  # own publications
    FORWARD = 2  # other people's messages


class SendControl(msgspec.Struct, frozen=True, gc=False):
    """Queue a frame of subscriptions and control for one peer."""

    peer: PeerId
    frame: bytes  # an RPC without length prefix


class SendMessage(msgspec.Struct, frozen=True, gc=False):
    """Queue one message for several peers: encoded once, for all of them."""

    peers: tuple[PeerId, ...]
    message_id: bytes
    frame: bytes  # an RPC without length prefix, holding exactly this message
    lane: Lane  # OWN or FORWARD


class CancelQueued(msgspec.Struct, frozen=True):
    """The peer has these messages: take them out of its queues if they are still there."""

    peer: PeerId
    message_ids: tuple[bytes, ...]


class CheckSignature(msgspec.Struct, frozen=True, gc=False):
    """Run `bruit.topics.message.signature_valid`; answer with SignaturesChecked."""

    ticket: int
    message: Message


class Validate(msgspec.Struct, frozen=True):
    """Post-process and judge a message; answer with Validated."""

    ticket: int
    message: Message
    source: PeerId


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand a message to the application: accepted, and never delivered before."""

    message: Message
    message_id: bytes
    payload: bytes  # after post-processing
    source: PeerId  # who sent it first; the own id for an own message
    facts: dict[str, Fact]


class SetTimer(msgspec.Struct, frozen=True):
    """Hand TimerFired(timer) back at ``at`` seconds or as soon as possible after."""

    timer: Timer
    at: float


class Connect(msgspec.Struct, frozen=True):
    """Try to reach a peer. ``record`` must be verified and be of that peer before its use."""

    peer: PeerId
    addresses: tuple[str, ...]
    record: bytes = b""  # signed peer record from peer exchange


class Disconnect(msgspec.Struct, frozen=True):
    """Close the connection to a peer. PeerDisconnected follows, as after any other end.

    A report as well.
    """

    peer: PeerId
    reason: str


class Published(msgspec.Struct, frozen=True, gc=False):
    """Outcome of Publish: who it was queued for. ``problem`` says why, where it is nobody."""

    ticket: int
    message_id: bytes
    peers: tuple[PeerId, ...]
    problem: str = ""


# Reports


class PeerJoined(msgspec.Struct, frozen=True):
    peer: PeerId
    protocol: Protocol
    outbound: bool


class PeerLeft(msgspec.Struct, frozen=True):
    peer: PeerId


class PeerSubscribed(msgspec.Struct, frozen=True):
    peer: PeerId
    topic: str
    subscribed: bool  # False when it left the topic


class Grafted(msgspec.Struct, frozen=True):
    """The peer is in our mesh now."""

    peer: PeerId
    topic: str
    by_peer: bool  # whether it asked to be


class Pruned(msgspec.Struct, frozen=True):
    """The peer is out of our mesh."""

    peer: PeerId
    topic: str
    reason: str  # "by peer", "low score", "oversubscribed", "left topic", "unsubscribed"


class Rejected(msgspec.Struct, frozen=True):
    """A message broke the rules: not delivered, not forwarded, held against ``peer``."""

    peer: PeerId
    author: PeerId
    topic: str
    message_id: bytes
    reason: str


class Dropped(msgspec.Struct, frozen=True):
    """Something was dropped that nobody is punished for (duplicates are only counted)."""

    peer: PeerId
    topic: str  # empty where no topic is concerned
    reason: str  # one of bruit.node.gossip.drops


class ThresholdCrossed(msgspec.Struct, frozen=True):
    """A connected peer's score is now below a threshold, or no longer is."""

    peer: PeerId
    threshold: str  # a field of bruit.scoring.thresholds.Thresholds
    below: bool
    score: float


Report = (
    PeerJoined
    | PeerLeft
    | PeerSubscribed
    | Grafted
    | Pruned
    | Rejected
    | Dropped
    | Disconnect
    | ThresholdCrossed
)
Action = (
    SendControl
    | SendMessage
    | CancelQueued
    | CheckSignature
    | Validate
    | Deliver
    | SetTimer
    | Connect
    | Published
    | Report
)
