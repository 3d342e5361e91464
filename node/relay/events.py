"""What a driver tells the relay's machines: the only way in.

``machine.handle(event, now)`` as everywhere (ARCHITECTURE.md), but ``now`` is Unix time in
seconds here, since attestations carry it; it never goes back.

A machine takes the events that concern it (its union below) and nothing else. Tickets are numbers
that a machine gives to what it asked for; an answer whose ticket is unknown does nothing.
"""

import msgspec

from bruit.node.gossip.events import Timer, TimerFired
from bruit.node.relay.signing import CheckedChunk
from bruit.plugins.marketplace import Marketplace
from bruit.topics.keys import PeerId
from bruit.topics.validation import Validation

__all__ = ["Timer", "TimerFired"]


class MarketplaceChanged(msgspec.Struct, frozen=True):
    """The marketplace as it is from now on. The first event of all; then whenever it changes."""

    marketplace: Marketplace


class Signed(msgspec.Struct, frozen=True):
    """Answers Sign: a 65-byte signature for each digest, in order."""

    ticket: int
    signatures: tuple[bytes, ...]


class ChunkChecked(msgspec.Struct, frozen=True):
    """Answers CheckChunk: what `check_chunk` gave, or what was wrong."""

    ticket: int
    checked: CheckedChunk | None
    problem: str = ""  # why ``checked`` is None


# To a producer


class Broadcast(msgspec.Struct, frozen=True):
    """Command: send a block. Answered by one Broadcasted or BroadcastRefused with this ticket."""

    ticket: int
    channel: int
    message_id: bytes  # 4 bytes: `message_id_of` the block before pre-processing
    payload: bytes  # the block after pre-processing: what is cut


class Encoded(msgspec.Struct, frozen=True):
    """Answers Encode: all chunks of the payload, and the Keccak-256 of each."""

    ticket: int
    chunks: tuple[bytes, ...]
    hashes: tuple[bytes, ...]


class Chosen(msgspec.Struct, frozen=True):
    """Answers Choose: a cluster for each selection, in order."""

    ticket: int
    clusters: tuple[int, ...]


class AcknowledgementReceived(msgspec.Struct, frozen=True):
    """A frame came back from a member that we sent chunks to. Any bytes."""

    peer: PeerId
    frame: bytes


class AcknowledgementChecked(msgspec.Struct, frozen=True):
    """Answers CheckAcknowledgement: the 20-byte id of who signed; empty where nobody can have."""

    ticket: int
    signer: bytes


class MemberUnreachable(msgspec.Struct, frozen=True):
    """What was queued for a member did not go out, or may not have arrived: it cannot be dialled,
    its stream ended, or its queue is full."""

    peer: PeerId


class MembersScored(msgspec.Struct, frozen=True):
    """What the mesh thinks of members that are connected: peer scores, now and then."""

    scores: tuple[tuple[bytes, float], ...]  # 20-byte id of a member, and its peer score


class ChunksHeard(msgspec.Struct, frozen=True):
    """Answers AskHeard: who has which chunk; `bruit.node.relay.wants.HERE` stands for this node."""

    ticket: int
    chunks: dict[int, tuple[PeerId, ...]]


# To a member


class ChunkSubmitted(msgspec.Struct, frozen=True):
    """A frame came over a stream for submissions: no witness yet. Any bytes."""

    peer: PeerId
    frame: bytes


class ChunkPassedOn(msgspec.Struct, frozen=True):
    """A frame came over a stream between members of a cluster: witnessed. Any bytes."""

    peer: PeerId
    frame: bytes


# To a consumer


class ChunkGossiped(msgspec.Struct, frozen=True):
    """A frame came over a channel's topic. Any bytes. Answered by one Judged with this ticket."""

    ticket: int
    channel: int  # whose topic it came over
    peer: PeerId  # who sent it
    frame: bytes


class ChunkSeen(msgspec.Struct, frozen=True):
    """A chunk that this node has checked and passed on itself, as a member."""

    checked: CheckedChunk


class Decoded(msgspec.Struct, frozen=True):
    """Answers Decode: the payload, or why the chunks give none."""

    ticket: int
    payload: bytes
    problem: str = ""


class BlockJudged(msgspec.Struct, frozen=True):
    """Answers JudgeBlock. An IGNORE says that nobody could judge it: a plugin failed."""

    ticket: int
    validation: Validation
    block: bytes = b""  # after post-processing; empty unless accepted
    block_hash: bytes = b""  # its Keccak-256, 32 bytes; empty as ``block``
    validator: str = ""  # name of the plugin that judged; empty where the channel has none


ProducerEvent = (
    MarketplaceChanged
    | Broadcast
    | Encoded
    | Signed
    | Chosen
    | AcknowledgementReceived
    | AcknowledgementChecked
    | MemberUnreachable
    | MembersScored
    | ChunksHeard
    | TimerFired
)
MemberEvent = (
    MarketplaceChanged | ChunkSubmitted | ChunkPassedOn | ChunkChecked | Signed | TimerFired
)
ConsumerEvent = (
    MarketplaceChanged
    | ChunkGossiped
    | ChunkSeen
    | ChunkChecked
    | Decoded
    | BlockJudged
    | TimerFired
)
