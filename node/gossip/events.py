"""What a driver tells the router: the only way in.

``router.handle(event, now)`` takes one of these and returns the complete list
of actions that follow from it. **Every list must be carried out, in order,
before the next event is handed in** (an action answered by an event counts as
carried out once it is under way). ``now`` is in seconds, never goes back, and
has no other meaning.
"""

from enum import Enum

import msgspec

from bruit.topics.keys import PeerId
from bruit.topics.message import Message
from bruit.topics.validation import Validation


class Protocol(Enum):
    """What a peer speaks; the value is the protocol id. Later ones include earlier ones."""

    FLOODSUB = "/floodsub/1.0.0"
    GOSSIPSUB_10 = "/meshsub/1.0.0"
    GOSSIPSUB_11 = "/meshsub/1.1.0"
    GOSSIPSUB_12 = "/meshsub/1.2.0"

    @property
    def has_mesh(self) -> bool:
        return self is not Protocol.FLOODSUB

    @property
    def has_peer_exchange(self) -> bool:
        return self in (Protocol.GOSSIPSUB_11, Protocol.GOSSIPSUB_12)

    @property
    def has_idontwant(self) -> bool:
        return self is Protocol.GOSSIPSUB_12


# In the order in which a driver should offer them.
PROTOCOLS = (
    Protocol.GOSSIPSUB_12,
    Protocol.GOSSIPSUB_11,
    Protocol.GOSSIPSUB_10,
    Protocol.FLOODSUB,
)


class Timer(msgspec.Struct, frozen=True):
    """An armed timer: opaque to the driver. A timer of an old epoch does nothing."""

    name: str
    epoch: int


class Start(msgspec.Struct, frozen=True):
    """First event of all: arms the heartbeat."""


class Stop(msgspec.Struct, frozen=True):
    """Last event: disarms the timers.

    Nothing is announced: whoever left its topics would come back, restarted, into
    the backoff that it left behind. That a connection ends says as much.
    """


class PeerConnected(msgspec.Struct, frozen=True):
    """A peer is ready to be sent to. At most one such event until PeerDisconnected."""

    peer: PeerId
    protocol: Protocol
    outbound: bool  # whether we dialled
    addresses: tuple[str, ...] = ()  # multiaddrs of the other end, one for each connection


class PeerRenewed(msgspec.Struct, frozen=True):
    """A stream to or from a connected peer was replaced: it may have forgotten all we told it."""

    peer: PeerId
    addresses: tuple[str, ...] = ()  # multiaddrs of the other end now


class PeerDisconnected(msgspec.Struct, frozen=True):
    peer: PeerId


class FrameReceived(msgspec.Struct, frozen=True, gc=False):
    """One RPC without its length prefix. Unknown peers' frames are dropped and counted."""

    peer: PeerId
    frame: bytes


class FramesReceived(msgspec.Struct, frozen=True, gc=False):
    """Several RPCs of one peer, which a driver read at once, in the order in which they came."""

    peer: PeerId
    frames: tuple[bytes, ...]


class FramesDropped(msgspec.Struct, frozen=True):
    """The driver could not queue frames for a peer that reads too slowly.

    Lost messages are left to gossip. Lost control frames come back here, so that
    what they said about subscriptions and the mesh is said again, if still true.
    """

    peer: PeerId
    count: int
    control: tuple[bytes, ...] = ()  # the frames among them that SendControl asked for


class RecordLearnt(msgspec.Struct, frozen=True):
    """A peer's own signed record arrived and was verified; kept to be handed on in PRUNE."""

    peer: PeerId
    envelope: bytes
    public: bool = True  # whether it names an address that anybody can reach


class SignaturesChecked(msgspec.Struct, frozen=True, gc=False):
    """Answers some CheckSignature. A ticket unknown or already answered is ignored."""

    answers: tuple[tuple[int, bool], ...]  # ticket, and whether the signature is valid


class Validated(msgspec.Struct, frozen=True, gc=False):
    """Answers Validate, at any later time. ``payload`` is the message after post-processing."""

    ticket: int
    validation: Validation
    payload: bytes = b""


class TimerFired(msgspec.Struct, frozen=True):
    timer: Timer


class Subscribe(msgspec.Struct, frozen=True):
    """Command: join a topic. Joining twice does nothing."""

    topic: str


class Unsubscribe(msgspec.Struct, frozen=True):
    """Command: leave a topic. Leaving one not joined does nothing."""

    topic: str


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Command: send an own, complete message. Answered by one Published with the same ticket.

    ``payload`` is what local subscribers get: the data before pre-processing.
    It has been judged by whoever wrote it; the router does not ask again.
    """

    ticket: int
    message: Message
    payload: bytes


class PublishBatch(msgspec.Struct, frozen=True, gc=False):
    """Command: several publications at once, each answered like a Publish of its own.

    Every peer is sent them in another order, so that together they soon have all.
    """

    items: tuple[Publish, ...]


class AddDirectPeer(msgspec.Struct, frozen=True):
    """Command: always keep and trust this peer (v1.1, "Explicit Peering Agreements")."""

    peer: PeerId
    addresses: tuple[str, ...]


class RemoveDirectPeer(msgspec.Struct, frozen=True):
    peer: PeerId


class AppScored(msgspec.Struct, frozen=True):
    """What the application now thinks of some peers (P5 of their scores)."""

    scores: tuple[tuple[PeerId, float], ...]


class Ban(msgspec.Struct, frozen=True):
    """Command: hang up on this peer, and take no messages that it wrote, until `Unban`."""

    peer: PeerId


class Unban(msgspec.Struct, frozen=True):
    peer: PeerId


Event = (
    Start
    | Stop
    | PeerConnected
    | PeerRenewed
    | PeerDisconnected
    | FrameReceived
    | FramesReceived
    | FramesDropped
    | RecordLearnt
    | SignaturesChecked
    | Validated
    | TimerFired
    | Subscribe
    | Unsubscribe
    | Publish
    | PublishBatch
    | AddDirectPeer
    | RemoveDirectPeer
    | AppScored
    | Ban
    | Unban
)
