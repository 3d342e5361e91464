"""What goes over the wire, byte for byte as in the document's tables. All integers big-endian.

    attestation      message id 4 | channel 2 | chunk 2 | timestamp 4 | stake offset 4
                     | signature 65
    attested         message id 4 | channel 2 | chunk 2 | timestamp 4 | chunk length 4
                     | stake offset 4 | chunk hash 32                  (what is signed; never sent)
    witness          signature 65
    acknowledgement  message id 4 | chunk 2 | cluster 2 | timestamp 4 | producer 20
                     | signature 65

A producer submits ``attestation | chunk``; inside a cluster and on the channel's topic go
``attestation | witness | chunk`` (Marlin, §Message Format). Where a channel is attested by Merkle
root, the proof stands before the chunk: a sibling hash per level, the lowest first.
"""

import struct

import msgspec

from bruit.topics.errors import RemoteError

MESSAGE_ID_SIZE = 4
ADDRESS_SIZE = 20  # a producer's or member's id: the last bytes of Keccak-256 of its public key
HASH_SIZE = 32
SIGNATURE_SIZE = 65  # r 32 | s 32 | recovery id 1
ATTESTED_SIZE = 52
ATTESTATION_SIZE = 81
WITNESS_SIZE = SIGNATURE_SIZE
ACKNOWLEDGEMENT_SIZE = 97
WHOLE = 0xFFFF  # in place of a chunk id: what is attested is the Merkle root of all chunks

_ATTESTATION = struct.Struct(">4sHHII65s")
_ATTESTED = struct.Struct(">4sHHIII32s")
_ACKNOWLEDGED = struct.Struct(">4sHHI20s")


class Attested(msgspec.Struct, frozen=True, gc=False):
    """What a producer signs: one chunk, or all chunks where ``chunk`` is WHOLE."""

    message_id: bytes  # 4 bytes
    channel: int
    chunk: int
    timestamp: int  # Unix time, seconds
    chunk_length: int  # bytes of a chunk
    stake_offset: int  # tokens
    chunk_hash: bytes  # Keccak-256 of the chunk, or the Merkle root

    def encode(self) -> bytes:
        """The 52 bytes whose Keccak-256 is signed."""
        return _ATTESTED.pack(
            self.message_id,
            self.channel,
            self.chunk,
            self.timestamp,
            self.chunk_length,
            self.stake_offset,
            self.chunk_hash,
        )


def decode_attested(data: bytes) -> Attested:
    """Inverse of `Attested.encode`. Raises RemoteError for another length."""
    if len(data) != ATTESTED_SIZE:
        raise RemoteError(f"{len(data)} bytes are no attested structure: it has {ATTESTED_SIZE}")
    return Attested(*_ATTESTED.unpack(data))


class Attestation(msgspec.Struct, frozen=True, gc=False):
    """An attestation as it is sent: length and hash of the chunk follow from the chunk."""

    message_id: bytes  # 4 bytes
    channel: int
    chunk: int
    timestamp: int  # Unix time, seconds
    stake_offset: int  # tokens
    signature: bytes  # 65 bytes

    def encode(self) -> bytes:
        return _ATTESTATION.pack(
            self.message_id,
            self.channel,
            self.chunk,
            self.timestamp,
            self.stake_offset,
            self.signature,
        )

    def attested(self, chunk_length: int, chunk_hash: bytes) -> Attested:
        """What was signed if ``chunk_hash`` is the hash of this very chunk."""
        return Attested(
            self.message_id,
            self.channel,
            self.chunk,
            self.timestamp,
            chunk_length,
            self.stake_offset,
            chunk_hash,
        )


def decode_attestation(data: bytes | memoryview) -> Attestation:
    """Raises RemoteError for anything but 81 bytes."""
    if len(data) != ATTESTATION_SIZE:
        raise RemoteError(f"{len(data)} bytes are no attestation: it has {ATTESTATION_SIZE}")
    return Attestation(*_ATTESTATION.unpack(data))


class Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    """A cluster member's receipt for a chunk."""

    message_id: bytes  # 4 bytes
    chunk: int
    cluster: int
    timestamp: int  # Unix time at which it was given, seconds
    producer: bytes  # 20 bytes
    signature: bytes = b""  # 65 bytes; empty while unsigned

    def signed_part(self) -> bytes:
        """The 32 bytes whose Keccak-256 is signed."""
        return _ACKNOWLEDGED.pack(
            self.message_id, self.chunk, self.cluster, self.timestamp, self.producer
        )

    def encode(self) -> bytes:
        return self.signed_part() + self.signature


def decode_acknowledgement(data: bytes | memoryview) -> Acknowledgement:
    """Raises RemoteError for anything but 97 bytes."""
    if len(data) != ACKNOWLEDGEMENT_SIZE:
        raise RemoteError(
            f"{len(data)} bytes are no acknowledgement: it has {ACKNOWLEDGEMENT_SIZE}"
        )
    head = _ACKNOWLEDGED.size
    message_id, chunk, cluster, timestamp, producer = _ACKNOWLEDGED.unpack(data[:head])
    signature = bytes(data[head:])
    return Acknowledgement(message_id, chunk, cluster, timestamp, producer, signature)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One chunk with what vouches for it."""

    attestation: Attestation
    witness: bytes  # 65 bytes; empty in what a producer submits
    proof: tuple[bytes, ...]  # Merkle siblings, the lowest first; empty where chunks are signed
    chunk: bytes

    def encode(self) -> bytes:
        return b"".join((self.attestation.encode(), self.witness, *self.proof, self.chunk))


def decode_frame(data: bytes, *, witnessed: bool, depth: int, max_chunk: int) -> Frame:
    """Split a frame. ``depth``: hashes of its Merkle proof, 0 without.

    Raises RemoteError for one with no chunk, or with more than ``max_chunk`` bytes of it.
    """
    head = ATTESTATION_SIZE + (WITNESS_SIZE if witnessed else 0)
    start = head + depth * HASH_SIZE
    if not start < len(data) <= start + max_chunk:
        raise RemoteError(
            f"a frame of {len(data)} bytes: this channel has {start + 1} to {start + max_chunk}"
        )
    return Frame(
        decode_attestation(data[:ATTESTATION_SIZE]),
        data[ATTESTATION_SIZE:head],
        tuple(data[at : at + HASH_SIZE] for at in range(head, start, HASH_SIZE)),
        data[start:],
    )


def channel_of(data: bytes) -> int:
    """The channel that a frame belongs to. Raises RemoteError for one too short to say."""
    if len(data) < ATTESTATION_SIZE:
        raise RemoteError(f"a frame of {len(data)} bytes holds no attestation")
    return int.from_bytes(data[4:6], "big")
