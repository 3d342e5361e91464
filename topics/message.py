"""The pubsub message: its bytes, its signature and its id.

Source: libp2p specs, ``pubsub/README.md`` ("The Message", "Message Signing",
"Message Identification"). A message keeps the bytes it came as, so that what is
forwarded is what was received, to the bit.
"""

import hashlib
import itertools
from collections.abc import Callable
from enum import Enum
from functools import lru_cache

import msgspec
from google.protobuf.message import DecodeError

from bruit.topics.errors import LocalError, RemoteError
from bruit.topics.keys import (
    PeerId,
    PrivateKey,
    PublicKey,
    decode_public_key,
    is_peer_id,
    public_key_of,
)
from bruit.topics.message_pb2 import PubsubMessage
from bruit.topics.names import MAX_TOPIC_BYTES, check_topic
from bruit.topics.uvarint import encode_uvarint, uvarint_size

SIGN_PREFIX = b"libp2p-pubsub:"  # pubsub/README.md, "Message Signing"
SEQNO_BYTES = 8  # 64-bit big-endian, same place
MAX_SIGNATURE = 1024  # bytes: RSA-8192, the largest that go and rust produce
MAX_SEQNO = 64  # bytes taken from a peer; implementations send 8
AUTHORS = 4096  # whose parsed keys are kept; guess


class SignaturePolicy(Enum):
    """``pubsub/README.md``, "Signature Policy Options"."""

    STRICT_SIGN = "strict-sign"  # author, seqno and a valid signature, or nothing
    STRICT_NO_SIGN = "strict-no-sign"  # none of the four fields may be there


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message, parsed, and ``raw``, its bytes on the wire."""

    topic: str
    data: bytes
    author: PeerId  # empty under STRICT_NO_SIGN
    seqno: bytes  # empty under STRICT_NO_SIGN
    signature: bytes
    key: bytes  # encoded public key, empty when the author's id contains it
    raw: bytes


MessageIdFunction = Callable[[Message], bytes]


def id_from_origin(message: Message) -> bytes:
    """Author and seqno joined: the specification's default. Useless without signatures."""
    return message.author + message.seqno


def id_from_content(message: Message) -> bytes:
    """SHA-256 over topic length (4 bytes, big-endian), topic and data: said twice is said once."""
    topic = message.topic.encode()
    return hashlib.sha256(len(topic).to_bytes(4, "big") + topic + message.data).digest()


def decode_message(raw: bytes) -> Message:
    """Parse the bytes of a published message. Raises RemoteError; checks no signature."""
    parsed = PubsubMessage()
    try:
        parsed.ParseFromString(raw)
        topic = parsed.topic
    except (DecodeError, UnicodeDecodeError) as problem:
        raise RemoteError(f"message of {len(raw)} bytes does not parse: {problem}") from None
    if type(topic) is not str:  # the C implementation hands out bytes where they are no UTF-8
        raise RemoteError(f"message of {len(raw)} bytes: its topic is no UTF-8")
    if not 0 < len(topic) <= MAX_TOPIC_BYTES:
        raise RemoteError(f"topic of {len(topic)} characters: a name has 1 to {MAX_TOPIC_BYTES}")
    return Message(
        topic, parsed.data, parsed.author, parsed.seqno, parsed.signature, parsed.key, raw
    )


def policy_fault(message: Message, policy: SignaturePolicy) -> str | None:
    """What the policy forbids in ``message``, as a drop reason, before any cryptography."""
    if policy is SignaturePolicy.STRICT_NO_SIGN:
        if message.author or message.seqno or message.signature or message.key:
            return "unexpected auth info"
        return None
    if not message.signature:
        return "missing signature"
    if not message.author or not message.seqno:
        return "missing author or seqno"
    if (
        len(message.signature) > MAX_SIGNATURE
        or len(message.seqno) > MAX_SEQNO
        or not is_peer_id(message.author)
    ):
        return "malformed auth info"
    return None


def signature_valid(message: Message) -> bool:
    """Whether the author signed ``message``. Costs 25 to 60 µs at 1 KB; never raises."""
    key = _author_key(message)
    return key is not None and key.verify(_signed_bytes(message), message.signature)


def _signed_bytes(message: Message) -> bytes:
    """What the signature is over: the message as its author wrote it, without it and the key."""
    length = _unsigned_length(message)
    if length:
        return b"".join((SIGN_PREFIX, memoryview(message.raw)[:length]))
    unsigned = PubsubMessage()
    unsigned.ParseFromString(message.raw)
    unsigned.ClearField("signature")
    unsigned.ClearField("key")
    return SIGN_PREFIX + unsigned.SerializeToString(deterministic=True)


def _unsigned_length(message: Message) -> int:
    """How much of ``raw`` comes before its signature, or 0 where that takes parsing to know.

    Nearly every message is the fields from 1 to 5 in turn, each once and in its shortest
    form. It is so where their sizes add up to all of ``raw`` and each tag is in its
    place: whatever else were in there (an unknown field, say) would take more room.
    """
    raw, size = message.raw, len(message.data)
    author, seqno = len(message.author), len(message.seqno)
    topic, signature = len(message.topic.encode()), len(message.signature)
    # Of an empty field it is not known whether it is there; others fit one byte of length.
    if not (size and 0 < author < 0x80 and 0 < seqno < 0x80 and 0 < topic < 0x80):
        return 0
    data_at = 2 + author
    seqno_at = data_at + 1 + uvarint_size(size) + size
    topic_at = seqno_at + 2 + seqno
    end = topic_at + 2 + topic
    if not 0 < signature < 0x80 or end + 2 + signature != len(raw):
        return 0
    tags = raw[0], raw[data_at], raw[seqno_at], raw[topic_at], raw[end]
    return end if tags == _TAGS else 0


_TAGS = (0x0A, 0x12, 0x1A, 0x22, 0x2A)  # of author, data, seqno, topic and signature

# Parsed keys of the authors heard last: parsing one takes a tenth of what checking does.
_inline_key = lru_cache(maxsize=AUTHORS)(public_key_of)


def _author_key(message: Message) -> PublicKey | None:
    inline = _inline_key(message.author)
    if not message.key:
        return inline
    try:
        key = decode_public_key(message.key)
    except RemoteError:
        return None
    return key if key.peer_id() == message.author else None


class Author:
    """Makes the messages of one node: counts seqnos and signs. Safe in several threads.

    ``first_seqno`` must exceed every number the identity used before; a driver
    hands in wall-clock nanoseconds, as go-libp2p-pubsub does.
    """

    def __init__(self, key: PrivateKey, policy: SignaturePolicy, first_seqno: int) -> None:
        self._sign = key.signer()
        self._policy = policy
        self._seqnos = itertools.count(first_seqno)
        public = key.public_key()
        self.peer_id: PeerId = public.peer_id()

    def write(self, topic: str, data: bytes) -> Message:
        """A complete message on ``topic``. Raises LocalError for an impossible topic name."""
        check_topic(topic)
        name = topic.encode()
        of_data = b"\x12" + encode_uvarint(len(data))
        of_topic = b"\x22" + encode_uvarint(len(name))
        if self._policy is SignaturePolicy.STRICT_NO_SIGN:
            raw = b"".join((of_data, data, of_topic, name))
            return Message(topic, data, b"", b"", b"", b"", raw)
        seqno = next(self._seqnos).to_bytes(SEQNO_BYTES, "big")
        author = self.peer_id
        of_author = b"\x0a" + encode_uvarint(len(author))
        signed = b"".join(
            (SIGN_PREFIX, of_author, author, of_data, data, b"\x1a\x08", seqno, of_topic, name)
        )
        signature = self._sign(signed)
        of_signature = b"\x2a" + encode_uvarint(len(signature))
        raw = b"".join((memoryview(signed)[len(SIGN_PREFIX) :], of_signature, signature))
        return Message(topic, data, author, seqno, signature, b"", raw)


MESSAGE_IDS: dict[str, MessageIdFunction] = {"origin": id_from_origin, "content": id_from_content}


def message_id_function(name: str) -> MessageIdFunction:
    """The id function with that configuration name. Raises LocalError for an unknown one."""
    try:
        return MESSAGE_IDS[name]
    except KeyError:
        raise LocalError(f"message id {name!r}: use one of {', '.join(MESSAGE_IDS)}") from None
