"""Messages and signatures in simulation.

A real signature takes 25 µs to make and about 50 µs to check, and a thousand
nodes check each message a thousand times. `SimAuthor` therefore writes messages
of the same shape and size whose "signature" is a keyed hash, and `Notary` checks
it with a table of everybody's keys: whoever tampers with a message, or signs in
another node's name, is found out just the same.
"""

import hashlib
from enum import Enum

from bruit.topics.keys import PeerId, PrivateKey
from bruit.topics.message import SEQNO_BYTES, Author, Message, SignaturePolicy, signature_valid
from bruit.topics.message_pb2 import PubsubMessage
from bruit.topics.names import check_topic

_SIGNATURE_BYTES = 64  # as Ed25519's


class Signatures(Enum):
    """How messages are signed and checked."""

    STAND_IN = "stand-in"  # keyed hashes, about 2 µs
    REAL = "real"  # the identity key, `bruit.topics.message.signature_valid`


class SimAuthor:
    """Makes the messages of one node, as `bruit.topics.message.Author` does."""

    def __init__(self, peer: PeerId, secret: bytes, policy: SignaturePolicy) -> None:
        self.peer_id = peer
        self._secret = secret
        self._policy = policy
        self._seqno = 1

    def write(self, topic: str, data: bytes) -> Message:
        """A complete message on ``topic``. Raises LocalError for an impossible topic name."""
        check_topic(topic)
        body = PubsubMessage(data=data, topic=topic)
        if self._policy is SignaturePolicy.STRICT_SIGN:
            body.author = self.peer_id
            body.seqno = self._seqno.to_bytes(SEQNO_BYTES, "big")
            self._seqno += 1
            body.signature = _sign(self._secret, topic, body.seqno, data)
        return Message(
            topic, data, body.author, body.seqno, body.signature, b"", body.SerializeToString()
        )


class Notary:
    """Makes the authors of one network and checks what they sign."""

    def __init__(self, signatures: Signatures) -> None:
        self._real = signatures is Signatures.REAL
        self._secrets: dict[PeerId, bytes] = {}

    def author(self, key: PrivateKey, policy: SignaturePolicy) -> Author | SimAuthor:
        """An author under the identity of ``key``, whose signatures will be found valid."""
        if self._real:
            return Author(key, policy, first_seqno=1)
        peer = key.public_key().peer_id()
        secret = hashlib.sha256(b"bruit simulated signature" + key.secret).digest()
        self._secrets[peer] = secret
        return SimAuthor(peer, secret, policy)

    def valid(self, message: Message) -> bool:
        """Whether the author that ``message`` names signed it."""
        if self._real:
            return signature_valid(message)
        secret = self._secrets.get(message.author)
        return secret is not None and message.signature == _sign(
            secret, message.topic, message.seqno, message.data
        )


def _sign(secret: bytes, topic: str, seqno: bytes, data: bytes) -> bytes:
    # The head carries its lengths, so that no two messages are hashed alike.
    name = topic.encode()
    head = b"%d:%b%d:%b" % (len(name), name, len(seqno), seqno)
    return hashlib.blake2b(head + data, key=secret, digest_size=_SIGNATURE_BYTES).digest()
