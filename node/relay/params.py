"""Parameters of the relay. All nodes of a channel must agree on its `ChannelParams`.

The document names its constants and gives none a value ("TBD"): every value here is a guess,
with its reason.
"""

import functools
from enum import Enum
from typing import Annotated

import msgspec

from bruit.node.relay.coding.code import Code, Coding
from bruit.node.relay.merkle import merkle_depth
from bruit.node.relay.wire import ATTESTATION_SIZE, HASH_SIZE, WITNESS_SIZE
from bruit.topics.errors import ConfigError, LocalError

MAX_CHANNEL = 0xFFFF  # Marlin, §Attestation: 2 bytes
MAX_CHUNKS = 0xFFFF  # Marlin, §Attestation: 2 bytes of chunk id; 0xFFFF itself marks a Merkle root
MAX_BLOCK = 32 * 1024 * 1024  # bytes; guess: eight times the largest Bitcoin block


class Attesting(Enum):
    """What a producer signs."""

    CHUNK = "chunk"  # each chunk (the document's way)
    MERKLE = "merkle"  # once, the root of a Merkle tree over all chunks


class ChannelParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One channel: a kind of block, and how it is cut, attested and passed on."""

    id: Annotated[int, msgspec.Meta(ge=0, le=MAX_CHANNEL)]
    topic: str  # the gossipsub topic that brings chunks to subscribers
    min_chunks: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHUNKS)] = 32  # MIN_CHUNKS; guess
    num_chunks: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHUNKS)] = 48  # NUM_CHUNKS; guess
    coding: Coding = Coding.SYSTEMATIC
    attesting: Attesting = Attesting.CHUNK
    max_block: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCK)] = 4_194_304  # bytes, coded; guess

    def check(self, path: str) -> None:
        """Raise ConfigError where the numbers of chunks cannot be. ``path``: of this channel."""
        try:
            self.code()
        except LocalError as problem:
            raise ConfigError(f"{path}.num_chunks", str(problem)) from None
        merkle = self.attesting is Attesting.MERKLE
        if merkle and self.coding in (Coding.MOD257, Coding.MOD65537):
            raise ConfigError(
                f"{path}.attesting",
                f'"merkle" attests one length for all chunks, and coding "{self.coding.value}" '
                'makes chunks of several: set it to "chunk", or coding to "systematic" or "ida"',
            )

    def code(self) -> Code:
        """The erasure code of the channel. Raises LocalError for impossible numbers."""
        return _code(self.min_chunks, self.num_chunks, self.coding)

    def max_chunk(self) -> int:
        """Bytes of the longest chunk that the channel allows."""
        return self.code().max_chunk_length(self.max_block)

    def proof_depth(self) -> int:
        """Hashes of the Merkle proof that stands before each chunk."""
        return merkle_depth(self.num_chunks) if self.attesting is Attesting.MERKLE else 0

    def max_frame(self) -> int:
        """Bytes of the longest frame, its witness included."""
        proof = self.proof_depth() * HASH_SIZE
        return ATTESTATION_SIZE + WITNESS_SIZE + proof + self.max_chunk()


@functools.lru_cache(64)  # guess: more channels than a node has
def _code(min_chunks: int, num_chunks: int, coding: Coding) -> Code:
    return Code(min_chunks, num_chunks, coding)


class RelayParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all nodes of a relay network agree on, beside its channels. Times in seconds."""

    # NO_OF_CLUSTER_OPTIONS; guess: competition, and two ways left when one fails
    cluster_options: Annotated[int, msgspec.Meta(ge=1, le=255)] = 3
    # CHUNKS_PER_PEER: chunks that one peer may have under verification with us at a time,
    # beyond which its further ones are dropped; guess: more than NUM_CHUNKS of two broadcasts
    chunks_per_peer: Annotated[int, msgspec.Meta(ge=1, le=255)] = 128
    # CHUNK_REPORT_LIMIT: most chunks that one dispute carries; guess: several codes of 32
    chunk_report_limit: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 256
    # TOLERABLE_LATENCY: age of a chunk's timestamp beyond which it is a replay; also how far in
    # the future a timestamp may lie to be waited for; guess: a slow block over a slow link
    tolerable_latency: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    # STAKE_PER_BYTE, tokens; guess
    stake_per_byte: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 1
    # After which the same stake may back another message; guess: several tolerable latencies
    refresh_interval: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0
    # After the first chunk of a message, until too few chunks are disputed; guess: as above
    chunk_expiry: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    # After the last acknowledgement of a broadcast, until chunks without one are sent through
    # another option; guess: three round trips of 300 ms and a chunk's transmission
    acknowledgement_timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 1.5
