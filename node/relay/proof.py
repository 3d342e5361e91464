"""Proof of broadcast: that all chunks of a block were handed to clusters, or which were not.

The file holds what was signed, and can be checked by anybody, offline (`verify_proof`). It shows
that chunks were taken; it does not hold them, so whether they make a block is not for it to say.
"""

import itertools
from typing import Annotated, NamedTuple

import msgspec

from bruit.node.relay.directory import Directory
from bruit.node.relay.finding import Finding
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import MAX_CHUNKS, Attesting, ChannelParams, RelayParams
from bruit.node.relay.signing import check_acknowledgement, recover, stake_of
from bruit.node.relay.wire import (
    ACKNOWLEDGEMENT_SIZE,
    ADDRESS_SIZE,
    ATTESTED_SIZE,
    MESSAGE_ID_SIZE,
    SIGNATURE_SIZE,
    WHOLE,
    Acknowledgement,
    Attested,
    decode_acknowledgement,
    decode_attested,
)
from bruit.plugins.marketplace import Marketplace
from bruit.topics.errors import LocalError, RemoteError

MAX_PROOF = 64 * 1024 * 1024  # bytes of a file; 65,535 receipts of 480 characters take half
CLOCK_SLACK = 1  # second by which timestamps, whole seconds, may differ from the time meant
_NAMED = 20  # chunks, or faults, that a statement names one by one; guess: what people read

_MessageId = Annotated[bytes, msgspec.Meta(min_length=MESSAGE_ID_SIZE, max_length=MESSAGE_ID_SIZE)]
_Address = Annotated[bytes, msgspec.Meta(min_length=ADDRESS_SIZE, max_length=ADDRESS_SIZE)]
_Attested = Annotated[bytes, msgspec.Meta(min_length=ATTESTED_SIZE, max_length=ATTESTED_SIZE)]
_Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_SIZE, max_length=SIGNATURE_SIZE)]
_ClusterId = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]


class ChunkReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chunk: what the producer attested, and the acknowledgement for it, if there is one."""

    chunk: Annotated[int, msgspec.Meta(ge=0, lt=MAX_CHUNKS)]
    attested: _Attested  # the 52 bytes that were signed
    signature: _Signature  # the producer's
    # Clusters that it was sent to, in order
    tried: Annotated[tuple[_ClusterId, ...], msgspec.Meta(max_length=255)]
    # 97 bytes; empty where no member acknowledged it
    acknowledgement: Annotated[bytes, msgspec.Meta(max_length=ACKNOWLEDGEMENT_SIZE)] = b""


class ProofOfBroadcast(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Written to a file as JSON, binary fields in base64."""

    channel: ChannelParams
    params: RelayParams
    message_id: _MessageId
    producer: _Address
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]  # of the attestations, seconds
    # One for each chunk, by index
    receipts: Annotated[tuple[ChunkReceipt, ...], msgspec.Meta(min_length=1, max_length=MAX_CHUNKS)]


_DECODER = msgspec.json.Decoder(ProofOfBroadcast)


def encode_proof(proof: ProofOfBroadcast) -> bytes:
    """The file of a proof."""
    return msgspec.json.format(msgspec.json.encode(proof), indent=1) + b"\n"


def decode_proof(data: bytes) -> ProofOfBroadcast:
    """Inverse of `encode_proof`. Raises LocalError for what is no such file."""
    if len(data) > MAX_PROOF:
        raise LocalError(f"a proof of {len(data)} bytes: the limit is {MAX_PROOF}")
    try:
        proof = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise LocalError(f"no proof of broadcast: {problem}") from None
    proof.channel.code()
    if [receipt.chunk for receipt in proof.receipts] != list(range(proof.channel.num_chunks)):
        raise LocalError(
            f"no proof of broadcast: it needs one receipt for each of the channel's "
            f"{proof.channel.num_chunks} chunks, in their order"
        )
    for receipt in proof.receipts:
        if len(receipt.acknowledgement) not in (0, ACKNOWLEDGEMENT_SIZE):
            raise LocalError(
                f"no proof of broadcast: the acknowledgement of chunk {receipt.chunk} has "
                f"{len(receipt.acknowledgement)} bytes, not {ACKNOWLEDGEMENT_SIZE} and not 0"
            )
    return proof


def lacking(proof: ProofOfBroadcast) -> tuple[int, ...]:
    """The chunks that the proof holds no acknowledgement for."""
    return tuple(receipt.chunk for receipt in proof.receipts if not receipt.acknowledgement)


def given_in_time(acknowledgement: Acknowledgement, timestamp: int, params: RelayParams) -> bool:
    """Whether a member can have given it for a chunk attested at ``timestamp``.

    It carries the time at which it was given: after that of the attestation, since a member waits
    for it, and before the chunk was a replay.
    """
    age = acknowledgement.timestamp - timestamp
    return 0 <= age <= params.tolerable_latency + CLOCK_SLACK


class _Given(NamedTuple):
    """An acknowledgement of the proof, and who gave it."""

    receipt: ChunkReceipt
    acknowledgement: Acknowledgement
    signer: bytes | None  # 20-byte id; None where nobody can have signed


def verify_proof(proof: ProofOfBroadcast, marketplace: Marketplace | None) -> Finding:
    """Check all signatures of a proof anew, and say what it shows.

    ``proof``: as `decode_proof` gives it. ``marketplace``: as it was at the time; without it, who
    signed is known by id alone. The proof holds if nothing in it is false; how many chunks were
    acknowledged is said either way.
    """
    given = [
        _given(receipt, decode_acknowledgement(receipt.acknowledgement))
        for receipt in proof.receipts
        if receipt.acknowledgement
    ]
    faults = [*_attestation_faults(proof), *_acknowledgement_faults(proof, given)]
    if marketplace is not None:
        faults += _marketplace_faults(proof, given, Directory(marketplace))
    statements = [*_account(proof), _membership_account(marketplace, given, faults)]
    statements += [f"false: {fault}" for fault in faults[:_NAMED]]
    if len(faults) > _NAMED:
        statements.append(f"false: {len(faults) - _NAMED} statements more")
    return Finding(not faults, tuple(statements))


def _given(receipt: ChunkReceipt, acknowledgement: Acknowledgement) -> _Given:
    try:
        return _Given(receipt, acknowledgement, check_acknowledgement(acknowledgement))
    except RemoteError:
        return _Given(receipt, acknowledgement, None)


def _account(proof: ProofOfBroadcast) -> list[str]:
    channel, without = proof.channel, lacking(proof)
    count = channel.num_chunks - len(without)
    enough = "enough" if count >= channel.min_chunks else "too few"
    what = f"message {proof.message_id.hex()} on channel {channel.id}"
    taken = f"{count} of {channel.num_chunks} chunks carry an acknowledgement"
    statements = [
        f"{what}, attested at Unix time {proof.timestamp} by {proof.producer.hex()}",
        f"{taken}: {enough} to rebuild a block, which takes {channel.min_chunks}",
    ]
    for chunk in without[:_NAMED]:
        tried = ", ".join(str(cluster) for cluster in proof.receipts[chunk].tried)
        way = f"cluster {tried}" if tried else "no cluster"
        statements.append(f"chunk {chunk} lacks an acknowledgement: it was sent to {way}")
    if len(without) > _NAMED:
        rest = ", ".join(str(chunk) for chunk in without[_NAMED:])
        statements.append(f"these chunks lack one as well: {rest}")
    return statements


def _membership_account(
    marketplace: Marketplace | None, given: list[_Given], faults: list[str]
) -> str:
    if not given:
        return "there is no acknowledgement whose signer could be looked up"
    if marketplace is None:
        return (
            "not checked, for want of a marketplace: whether those who signed acknowledgements are"
            " members, and whether the producer is one and had the stake"
        )
    if faults:
        return "the marketplace was consulted"
    return (
        "by the marketplace, all who signed acknowledgements are members of the clusters they"
        " name, these are options of the chunks, and the producer has the stake"
    )


def _attestation_faults(proof: ProofOfBroadcast) -> list[str]:
    merkle = proof.channel.attesting is Attesting.MERKLE
    longest = proof.channel.max_chunk()
    first = proof.receipts[0]
    faults: list[str] = []
    signers: dict[tuple[bytes, bytes], bytes | None] = {}  # one for all chunks of a Merkle tree
    ranges: list[tuple[int, int]] = []
    for receipt in proof.receipts:
        attested, name = decode_attested(receipt.attested), f"chunk {receipt.chunk}"
        faults += _field_faults(proof, attested, name, WHOLE if merkle else receipt.chunk)
        if not 0 < attested.chunk_length <= longest:
            faults.append(
                f"{name} has {attested.chunk_length} bytes: the channel's have 1 to {longest}"
            )
        signed = (receipt.attested, receipt.signature)
        if merkle and signed != (first.attested, first.signature):
            faults.append(f"{name} is attested by another root or signature than chunk 0")
        if signed not in signers:
            signers[signed] = _attester(receipt)
            ranges.append(_stake_of(proof, attested))
        if signers[signed] != proof.producer:
            faults.append(f"the attestation of {name} is not signed by the producer")
    ranges.sort()
    if any(later[0] < earlier[1] for earlier, later in itertools.pairwise(ranges)):
        faults.append("the same stake backs two of the chunks")
    return faults


def _stake_of(proof: ProofOfBroadcast, attested: Attested) -> tuple[int, int]:
    return stake_of(attested, proof.channel.num_chunks, proof.params.stake_per_byte)


def _attester(receipt: ChunkReceipt) -> bytes | None:
    try:
        return recover(keccak256(receipt.attested), receipt.signature)
    except RemoteError:
        return None


def _field_faults(proof: ProofOfBroadcast, attested: Attested, name: str, index: int) -> list[str]:
    expected: tuple[tuple[str, object, object], ...] = (
        ("message id", attested.message_id.hex(), proof.message_id.hex()),
        ("channel", attested.channel, proof.channel.id),
        ("chunk id", attested.chunk, index),
        ("timestamp", attested.timestamp, proof.timestamp),
    )
    return [
        f"the attestation of {name} has the {field} {found}, not {right}"
        for field, found, right in expected
        if found != right
    ]


def _acknowledgement_faults(proof: ProofOfBroadcast, given: list[_Given]) -> list[str]:
    faults = [
        f"chunk {receipt.chunk} was sent to more clusters than it has options, or to one twice"
        for receipt in proof.receipts
        if len(receipt.tried) > proof.params.cluster_options
        or len(set(receipt.tried)) < len(receipt.tried)
    ]
    for receipt, acknowledgement, signer in given:
        name = f"the acknowledgement of chunk {receipt.chunk}"
        if acknowledgement.message_id != proof.message_id:
            faults.append(f"{name} is for message {acknowledgement.message_id.hex()}")
        if acknowledgement.chunk != receipt.chunk:
            faults.append(f"{name} is for chunk {acknowledgement.chunk}")
        if acknowledgement.producer != proof.producer:
            faults.append(f"{name} is for producer {acknowledgement.producer.hex()}")
        if acknowledgement.cluster not in receipt.tried:
            faults.append(f"{name} is by cluster {acknowledgement.cluster}, which never got it")
        if not given_in_time(acknowledgement, proof.timestamp, proof.params):
            faults.append(f"{name} was given at {acknowledgement.timestamp}, which is not its time")
        if signer is None:
            faults.append(f"{name} bears a signature that nobody can have made")
    return faults


def _marketplace_faults(
    proof: ProofOfBroadcast, given: list[_Given], directory: Directory
) -> list[str]:
    faults: list[str] = []
    producer = directory.producer(proof.producer)
    end = max(_stake_of(proof, decode_attested(receipt.attested))[1] for receipt in proof.receipts)
    if producer is None:
        faults.append("the producer is not in the marketplace")
    elif end > producer.stake:
        faults.append(f"tokens up to {end} are attached, but the producer has {producer.stake}")
    for receipt, acknowledgement, signer in given:
        name = f"the acknowledgement of chunk {receipt.chunk}"
        cluster = acknowledgement.cluster
        if signer is not None and directory.cluster_of(signer) != cluster:
            faults.append(f"{name} is not signed by a member of cluster {cluster}")
        options = directory.options(proof.message_id, receipt.chunk, proof.params.cluster_options)
        if cluster not in options:
            faults.append(f"{name} is by cluster {cluster}, which is none of its options")
    return faults
