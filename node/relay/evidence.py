"""Evidence: what shows, to anybody and offline, who broke which rule.

A file of evidence is JSON, binary fields in base64: the version of the format, the evidence, and
the Keccak-256 of its canonical encoding. The hash finds damage and stray edits. It is no signature:
what evidence is worth follows from the signatures inside (`evidence_check`).
"""

from enum import Enum
from typing import Annotated

import msgspec

from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import MAX_BLOCK, MAX_CHUNKS, ChannelParams, RelayParams
from bruit.node.relay.signing import CheckedChunk
from bruit.node.relay.wire import (
    ADDRESS_SIZE,
    ATTESTED_SIZE,
    HASH_SIZE,
    MESSAGE_ID_SIZE,
    SIGNATURE_SIZE,
)
from bruit.topics.errors import ConfigError, LocalError

VERSION = 1  # of the file format
MAX_FILE = 4 * MAX_BLOCK  # bytes; guess: base64 takes 4/3, and signatures stand beside each chunk
MAX_REASON = 1000  # characters; guess
MAX_NAME = 200  # characters of a plugin's name; guess
MAX_TIME = 1 << 53  # seconds of Unix time; exact as a float

Address = Annotated[bytes, msgspec.Meta(min_length=ADDRESS_SIZE, max_length=ADDRESS_SIZE)]


class Kind(Enum):
    INVALID_BLOCK = "invalid-block"  # attested chunks that give no valid block
    TOO_FEW_CHUNKS = "too-few-chunks"  # attested chunks, but not enough of them in time
    OVERLAPPING_STAKE = "overlapping-stake"  # one stake behind two messages
    OVERSPENT_STAKE = "overspent-stake"  # more stake than the producer has
    CONFLICTING_CHUNKS = "conflicting-chunks"  # two chunks attested under one id
    FALSE_WITNESS = "false-witness"  # witnessed by nobody who may
    REPLAY = "replay"  # passed on after its time


class Exhibit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attested chunk, with as much of it as the kind of evidence needs."""

    # the 52 bytes that were signed
    attested: Annotated[bytes, msgspec.Meta(min_length=ATTESTED_SIZE, max_length=ATTESTED_SIZE)]
    # 65 bytes, the producer's
    signature: Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_SIZE, max_length=SIGNATURE_SIZE)]
    frame: bytes = b""  # the frame; empty where what was signed says enough
    witnessed: bool = False  # whether ``frame`` holds a witness


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One dispute. Written to a file as JSON, binary fields in base64."""

    kind: Kind
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON)]  # one sentence for people
    found_at: Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME)]  # Unix time, seconds
    channel: ChannelParams
    params: RelayParams
    # 4 bytes
    message_id: Annotated[
        bytes, msgspec.Meta(min_length=MESSAGE_ID_SIZE, max_length=MESSAGE_ID_SIZE)
    ]
    # 20-byte ids of all who attested the exhibits, in order of appearance
    producers: Annotated[tuple[Address, ...], msgspec.Meta(min_length=1, max_length=MAX_CHUNKS)]
    # 20-byte ids of other signers at fault: false witnesses
    culprits: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MAX_CHUNKS)] = ()
    exhibits: Annotated[tuple[Exhibit, ...], msgspec.Meta(min_length=1, max_length=MAX_CHUNKS)]
    # name of the plugin that found the block invalid
    validator: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    # tokens that the producer had, where that is what it overspent
    stake: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] = 0


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    evidence: Evidence
    keccak256: Annotated[bytes, msgspec.Meta(min_length=HASH_SIZE, max_length=HASH_SIZE)]


class _Version(msgspec.Struct, frozen=True):
    version: int


def exhibit_of(checked: CheckedChunk, *, frame: bool = False, witness: bool = False) -> Exhibit:
    """A checked chunk as an exhibit: what was signed, with the frame and its witness on demand."""
    whole = checked.frame if witness else msgspec.structs.replace(checked.frame, witness=b"")
    return Exhibit(
        checked.attested.encode(),
        checked.frame.attestation.signature,
        whole.encode() if frame else b"",
        frame and bool(whole.witness),
    )


def plain(text: str, limit: int = MAX_REASON) -> str:
    """Text that may come from a peer, cut to ``limit`` characters and without control codes."""
    return "".join(each if each.isprintable() else "?" for each in text[:limit])


def encode_evidence(evidence: Evidence) -> bytes:
    """A file that `decode_evidence` reads. Raises LocalError for what no file can hold."""
    try:
        # As it will be read: an integer in the place of a float is written in another way.
        evidence = msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence)
    except msgspec.MsgspecError as problem:
        raise LocalError(f"evidence that cannot be written: {problem}") from None
    canonical = msgspec.json.encode(evidence)
    file = msgspec.json.encode(_File(VERSION, evidence, keccak256(canonical)))
    return msgspec.json.format(file, indent=2) + b"\n"


def decode_evidence(data: bytes) -> Evidence:
    """Inverse of `encode_evidence`. Raises LocalError for anything that is no whole evidence."""
    if len(data) > MAX_FILE:
        raise LocalError(f"a file of {len(data)} bytes is no evidence: at most {MAX_FILE}")
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != VERSION:
            raise LocalError(f"evidence of version {version}: this bruit reads version {VERSION}")
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise LocalError(f"not a file of evidence: {problem}") from None
    evidence = file.evidence
    if keccak256(msgspec.json.encode(evidence)) != file.keccak256:
        raise LocalError("the evidence is damaged: its hash is another; get the file anew")
    for text in (evidence.reason, evidence.validator, evidence.channel.topic):
        if not text.isprintable():
            raise LocalError("not a file of evidence: its text holds control codes")
    try:
        evidence.channel.check("channel")
    except ConfigError as problem:
        raise LocalError(f"not a file of evidence: {problem}") from None
    return evidence
