"""Who signed what: recoverable secp256k1 over Keccak-256, ids as Ethereum's addresses.

What is signed:
- an attestation: Keccak-256 of the 52 attested bytes;
- a witness: the message hash, Keccak-256 of everything that the cluster passes on but the
  witness itself: attestation, proof and chunk (Marlin, §Witness Format);
- an acknowledgement: Keccak-256 of its first 32 bytes.
The three lengths differ, so that no signature can pass for one of another kind.

A signature is r | s | recovery id, with the id 0 or 1 and s in the lower half of the group
(EIP-2): else anybody could make a second signature out of a first.
"""

import functools

import coincurve
import msgspec

from bruit.node.relay.keccak import keccak256
from bruit.node.relay.merkle import merkle_root
from bruit.node.relay.params import Attesting, ChannelParams
from bruit.node.relay.wire import (
    ADDRESS_SIZE,
    ATTESTATION_SIZE,
    MESSAGE_ID_SIZE,
    SIGNATURE_SIZE,
    WHOLE,
    Acknowledgement,
    Attestation,
    Attested,
    Frame,
    decode_frame,
)
from bruit.topics.errors import RemoteError

_GROUP_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141  # SEC 2, 2.4.1
_HALF_ORDER = _GROUP_ORDER // 2
_REMEMBERED = 256  # signers of Merkle roots: one for each of a broadcast's chunks; guess


def address_of(public_key: bytes) -> bytes:
    """The 20-byte id of an uncompressed public key (65 bytes, the first 0x04)."""
    return keccak256(public_key[1:])[-ADDRESS_SIZE:]


def address_of_secret(secret: bytes) -> bytes:
    """The 20-byte id of a 32-byte private key."""
    return address_of(coincurve.PrivateKey(secret).public_key.format(compressed=False))


def sign(secret: bytes, digest: bytes) -> bytes:
    """65 bytes over a 32-byte digest; deterministic (RFC 6979)."""
    return coincurve.PrivateKey(secret).sign_recoverable(digest, hasher=None)


def recover(digest: bytes, signature: bytes) -> bytes:
    """The id of who signed. Raises RemoteError for what is no signature."""
    if len(signature) != SIGNATURE_SIZE or signature[64] > 1:
        raise RemoteError("a signature must be r, s and a recovery id of 0 or 1, 65 bytes in all")
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        raise RemoteError("a signature with s in the upper half of the group")
    try:
        key = coincurve.PublicKey.from_signature_and_message(signature, digest, hasher=None)
    except Exception:  # noqa: BLE001, the bindings raise Exception itself
        raise RemoteError("a signature that nobody can have made") from None
    return address_of(key.format(compressed=False))


def message_id_of(block: bytes) -> bytes:
    """The first 4 bytes of the block's hash, Keccak-256 (Marlin, §Generate Message Id)."""
    return keccak256(block)[:MESSAGE_ID_SIZE]


class CheckedChunk(msgspec.Struct, frozen=True):
    """A frame whose signatures have been recovered. Whether the signers count is not said here."""

    frame: Frame
    attested: Attested  # what the producer signed: of the chunk, or of the Merkle root
    producer: bytes  # 20-byte id of who attested
    member: bytes  # 20-byte id of who witnessed; empty without a witness
    chunk_hash: bytes  # Keccak-256 of the chunk
    message_hash: bytes  # what a witness signs

    @property
    def chunk(self) -> int:
        """The chunk's index."""
        return self.frame.attestation.chunk


def split_frame(data: bytes, channel: ChannelParams, *, witnessed: bool) -> Frame:
    """A frame of a channel, in its parts: all that can be told without a signature or a hash.

    Raises RemoteError for a malformed one, one of another channel, and a chunk index that the
    channel has not.
    """
    frame = decode_frame(
        data, witnessed=witnessed, depth=channel.proof_depth(), max_chunk=channel.max_chunk()
    )
    attestation = frame.attestation
    if attestation.channel != channel.id:
        raise RemoteError(f"a chunk of channel {attestation.channel} on channel {channel.id}")
    if attestation.chunk >= channel.num_chunks:
        raise RemoteError(f"chunk {attestation.chunk} of {channel.num_chunks}")
    return frame


def well_formed(data: bytes, channel: ChannelParams, *, witnessed: bool) -> bool:
    """Whether `split_frame` takes it: a fraction of what verifying a signature costs."""
    try:
        split_frame(data, channel, witnessed=witnessed)
    except RemoteError:
        return False
    return True


def check_chunk(data: bytes, channel: ChannelParams, *, witnessed: bool) -> CheckedChunk:
    """Split a frame and recover who signed it: 45 µs a signature, 85 a hash of 32 KiB.

    Raises RemoteError for what `split_frame` does, and for signatures that are none.
    """
    frame = split_frame(data, channel, witnessed=witnessed)
    attestation = frame.attestation
    chunk_hash = keccak256(frame.chunk)
    attested = attestation.attested(len(frame.chunk), chunk_hash)
    if channel.attesting is Attesting.MERKLE:
        root = merkle_root(attestation.chunk, chunk_hash, frame.proof)
        attested = msgspec.structs.replace(attested, chunk=WHOLE, chunk_hash=root)
        producer = _recover_once(attested.encode(), attestation.signature)
    else:
        producer = recover(keccak256(attested.encode()), attestation.signature)
    message_hash = keccak256(
        memoryview(data)[:ATTESTATION_SIZE],
        memoryview(data)[ATTESTATION_SIZE + len(frame.witness) :],
    )
    member = recover(message_hash, frame.witness) if witnessed else b""
    return CheckedChunk(frame, attested, producer, member, chunk_hash, message_hash)


@functools.lru_cache(_REMEMBERED)
def _recover_once(attested: bytes, signature: bytes) -> bytes:
    return recover(keccak256(attested), signature)


def check_acknowledgement(acknowledgement: Acknowledgement) -> bytes:
    """The id of the member who gave it. Raises RemoteError for what is no signature."""
    return recover(keccak256(acknowledgement.signed_part()), acknowledgement.signature)


def attestation_of(attested: Attested, chunk: int, signature: bytes) -> Attestation:
    """What goes on the wire with chunk ``chunk`` for a signed ``attested``."""
    return Attestation(
        attested.message_id,
        attested.channel,
        chunk,
        attested.timestamp,
        attested.stake_offset,
        signature,
    )


def stake_of(attested: Attested, num_chunks: int, stake_per_byte: int) -> tuple[int, int]:
    """The stake that an attestation occupies: first token, and the first behind it.

    A chunk costs its bytes and its attestation's (Marlin, `send`: data and attestation);
    where all chunks are attested at once, all of them.
    """
    count = num_chunks if attested.chunk == WHOLE else 1
    size = count * (attested.chunk_length + ATTESTATION_SIZE) * stake_per_byte
    return attested.stake_offset, attested.stake_offset + size
