"""What the relay's machines want done: the only way out, in the order of the list.

Encode, Sign, Choose, CheckChunk, CheckAcknowledgement, Decode, JudgeBlock and SetTimer are answered
by an event, now or later, in any order; AskHeard may be. The reports at the end ask for nothing but
to be kept.
"""

import msgspec

from bruit.node.gossip.actions import SetTimer
from bruit.node.relay.evidence import Evidence
from bruit.node.relay.proof import ProofOfBroadcast
from bruit.node.relay.signing import CheckedChunk
from bruit.node.relay.wire import Acknowledgement
from bruit.plugins.hookspecs import Selection
from bruit.plugins.marketplace import Member
from bruit.topics.keys import PeerId
from bruit.topics.validation import Fact, Validation

__all__ = ["SetTimer"]


class Sign(msgspec.Struct, frozen=True):
    """Sign 32-byte digests with the node's relay key (`signing.sign`); answer with Signed."""

    ticket: int
    digests: tuple[bytes, ...]


class CheckChunk(msgspec.Struct, frozen=True):
    """Run `signing.check_chunk`; answer with ChunkChecked."""

    ticket: int
    channel: int
    frame: bytes
    witnessed: bool


# A producer's


class Encode(msgspec.Struct, frozen=True):
    """Cut a payload with the channel's code and hash the chunks; answer with Encoded."""

    ticket: int
    channel: int
    payload: bytes


class Choose(msgspec.Struct, frozen=True):
    """Ask the cluster selector; answer with Chosen.

    Where the selector fails, the driver answers with the first option of each selection.
    """

    ticket: int
    selections: tuple[Selection, ...]


class StakeAttached(msgspec.Struct, frozen=True):
    """Report, before anything is signed: stake that backs a broadcast from its timestamp on.

    Kept until the refresh interval is over and handed to the next `Producer` at its start: a
    restart would otherwise attach the same stake twice.
    """

    channel: int
    message_id: bytes  # 4 bytes
    timestamp: int  # Unix time of the attestations, seconds
    start: int  # first token
    end: int  # behind the last token


class SubmitChunk(msgspec.Struct, frozen=True):
    """Queue a frame without witness for a member, dialling it where need be."""

    member: Member
    frame: bytes


class CheckAcknowledgement(msgspec.Struct, frozen=True):
    """Run `signing.check_acknowledgement`; answer with AcknowledgementChecked."""

    ticket: int
    acknowledgement: Acknowledgement


class WatchChunks(msgspec.Struct, frozen=True):
    """Note from now on who announces which chunk of a broadcast (`ChunkWants.watch`).

    Nothing to do where we do not subscribe to the channel's topic.
    """

    channel: int
    message_id: bytes  # 4 bytes
    timestamp: int  # Unix time of the attestations, seconds
    chunks: int  # how many it has


class AskHeard(msgspec.Struct, frozen=True):
    """Say what was noted since WatchChunks (`ChunkWants.heard`); answer with ChunksHeard.

    Where we do not subscribe to the channel's topic there is no answer, and nothing waits for it.
    """

    ticket: int
    channel: int
    message_id: bytes  # 4 bytes
    timestamp: int  # Unix time of the attestations, seconds


class Broadcasted(msgspec.Struct, frozen=True):
    """What became of a Broadcast: every chunk was acknowledged, or its options are exhausted."""

    ticket: int
    proof: ProofOfBroadcast


class BroadcastRefused(msgspec.Struct, frozen=True):
    """A Broadcast of which nothing was sent. ``problem`` says why, and what to do."""

    ticket: int
    problem: str


# A member's


class SendAcknowledgement(msgspec.Struct, frozen=True):
    """Queue a frame for the peer that submitted the chunk, on the stream that brought it."""

    peer: PeerId
    frame: bytes


class PassOn(msgspec.Struct, frozen=True):
    """Queue a witnessed frame for other members of the cluster, dialling them where need be."""

    members: tuple[Member, ...]
    frame: bytes


class PublishChunk(msgspec.Struct, frozen=True):
    """Publish a witnessed frame on the channel's topic; tell the own consumer with ChunkSeen."""

    channel: int
    frame: bytes
    checked: CheckedChunk


class Witnessed(msgspec.Struct, frozen=True):
    """Report: we were the first of the cluster to have this chunk, and have signed for it."""

    checked: CheckedChunk
    witness: bytes  # 65 bytes
    acknowledgement: Acknowledgement


# A consumer's


class Judged(msgspec.Struct, frozen=True):
    """Answers ChunkGossiped: whether the topic's mesh passes the frame on."""

    ticket: int
    validation: Validation


class Decode(msgspec.Struct, frozen=True):
    """Rebuild a payload from exactly MIN_CHUNKS chunks by index; answer with Decoded."""

    ticket: int
    channel: int
    chunks: dict[int, bytes]


class JudgeBlock(msgspec.Struct, frozen=True):
    """Post-process and validate a payload, and hash the block; answer with BlockJudged."""

    ticket: int
    channel: int
    payload: bytes


class DeliverBlock(msgspec.Struct, frozen=True):
    """Hand a block to the application: valid, and never delivered before."""

    channel: int
    message_id: bytes  # 4 bytes
    block: bytes
    block_hash: bytes  # Keccak-256, 32 bytes
    producers: tuple[bytes, ...]  # 20-byte ids of whose chunks it was rebuilt from
    facts: dict[str, Fact]
    first_chunk_at: float  # Unix time at which the first of its chunks came
    clusters: dict[int, int]  # cluster → chunks of this block that it witnessed, so far


class BlockUndecided(msgspec.Struct, frozen=True):
    """Report: a block that is neither delivered nor disputed, since nobody could judge it."""

    channel: int
    message_id: bytes  # 4 bytes
    producers: tuple[bytes, ...]  # 20-byte ids of whose chunks it was rebuilt from
    reason: str


# Reports of all


class Dispute(msgspec.Struct, frozen=True):
    """Report: somebody broke the rules, and here is what shows it."""

    evidence: Evidence


class ChunkDropped(msgspec.Struct, frozen=True):
    """Report: a chunk that goes nowhere. ``blame``: whether its sender should have known."""

    peer: PeerId
    channel: int  # -1 for a frame too short to name one
    reason: str  # one of bruit.node.relay.drops
    blame: bool


ProducerAction = (
    Encode
    | Sign
    | Choose
    | StakeAttached
    | SubmitChunk
    | CheckAcknowledgement
    | WatchChunks
    | AskHeard
    | Broadcasted
    | BroadcastRefused
    | SetTimer
)
MemberAction = (
    CheckChunk
    | Sign
    | SendAcknowledgement
    | PassOn
    | PublishChunk
    | Witnessed
    | Dispute
    | ChunkDropped
    | SetTimer
)
ConsumerAction = (
    CheckChunk
    | Judged
    | Decode
    | JudgeBlock
    | DeliverBlock
    | BlockUndecided
    | Dispute
    | ChunkDropped
    | SetTimer
)
