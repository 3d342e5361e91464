"""Identities: key pairs, their libp2p encoding, and the peer ids made from them.

Source: libp2p specs, ``peer-ids/peer-ids.md``. Ed25519 goes through libsodium, or
OpenSSL where there is much to hash, and secp256k1 through libsecp256k1; all release
the GIL while they compute. RSA and ECDSA keys are verified, for peers that have one,
never made.
"""

import base64
import hashlib
from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

import base58
import coincurve
import msgspec
import nacl.bindings
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from nacl.exceptions import CryptoError

from bruit.topics.errors import LocalError, RemoteError
from bruit.topics.uvarint import encode_uvarint

PeerId: TypeAlias = bytes  # the multihash, as it stands in the `from` field of a message

MAX_INLINE_KEY = 42  # bytes of encoded key that still go into the id itself (peer-ids.md)
MAX_PUBLIC_KEY = 2048  # bytes of encoded key taken from a peer: an 8192-bit RSA key is 1,100
# What go-libp2p and rust-libp2p refuse must be refused here too: whoever forwards a
# message that its peers find forged pays for it with its score.
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192  # go-libp2p core/crypto; rust-libp2p through ring
# Bytes from which on OpenSSL is faster for Ed25519: its arithmetic takes twice libsodium's
# 50 µs, its SHA-512 half the time. Measured; both accept the same, but that libsodium
# refuses keys of small order, which are nobody's.
MUCH = 32_768
SECP256K1_KEY = 33  # bytes: compressed only, or one key would have two peer ids
MAX_PEER_ID = 64  # bytes; identity multihashes end at 44, SHA-256 ones are 34
MAX_PEER_ID_TEXT = 107  # characters: a CID of the longest id in base32, the widest
_IDENTITY, _SHA2_256 = 0x00, 0x12  # multihash codes
_CID_OF_KEY = b"\x01\x72"  # version 1, multicodec libp2p-key
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


class KeyType(IntEnum):
    """Key types of ``peer-ids.md``, with their numbers on the wire."""

    RSA = 0
    ED25519 = 1
    SECP256K1 = 2
    ECDSA = 3


def peer_id_text(peer: PeerId) -> str:
    """The base58 form that people read and addresses carry."""
    return base58.b58encode(peer).decode()


def peer_id_from_text(text: str) -> PeerId:
    """The peer id in either form of ``peer-ids.md``: bare base58, or a CID of a libp2p key.

    CIDs are read in base32, base36 and base58, those in use. Raises LocalError when
    ``text`` is no peer id.
    """
    try:
        if len(text) > MAX_PEER_ID_TEXT or not text.isascii():
            raise ValueError
        peer = base58.b58decode(text) if text.startswith(("1", "Qm")) else _from_cid(text)
    except ValueError:
        peer = b""
    if not is_peer_id(peer):
        raise LocalError(
            f"{text[:MAX_PEER_ID_TEXT]!r} is not a peer id: expected 12D3KooW…, Qm… or bafz…"
        )
    return peer


def _from_cid(text: str) -> bytes:
    """The multihash in a CID. Raises ValueError where there is none, or none of a libp2p key."""
    digits = text[1:]
    match text[:1]:  # the multibase; the first two are what go-libp2p and IPNS write
        case "b":
            if digits != digits.lower():
                raise ValueError
            cid = base64.b32decode(digits.upper() + "=" * (-len(digits) % 8))
        case "k":
            if not set(digits) <= set(_BASE36):
                raise ValueError
            cid = int(digits, 36).to_bytes(len(digits)).lstrip(b"\x00")
        case "z":
            cid = base58.b58decode(digits)
        case _:
            raise ValueError
    if not cid.startswith(_CID_OF_KEY):
        raise ValueError
    return cid.removeprefix(_CID_OF_KEY)


def is_peer_id(peer: bytes) -> bool:
    """Whether the bytes are a multihash that a peer id may be."""
    if not 2 < len(peer) <= MAX_PEER_ID or peer[1] != len(peer) - 2:
        return False
    return peer[0] == _IDENTITY or (peer[0] == _SHA2_256 and len(peer) == 34)


class PublicKey(msgspec.Struct, frozen=True):
    """A public key: ``kind`` and the bytes that ``peer-ids.md`` prescribes for it."""

    kind: KeyType
    raw: bytes

    def encode(self) -> bytes:
        """The deterministic protobuf form: field 1 the type, field 2 the bytes."""
        return bytes((0x08, self.kind, 0x12)) + encode_uvarint(len(self.raw)) + self.raw

    def peer_id(self) -> PeerId:
        encoded = self.encode()
        if len(encoded) <= MAX_INLINE_KEY:
            return bytes((_IDENTITY, len(encoded))) + encoded
        return bytes((_SHA2_256, 32)) + hashlib.sha256(encoded).digest()

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Whether ``signature`` over ``data`` is by this key. Never raises."""
        try:
            match self.kind:
                case KeyType.ED25519:
                    # libsodium believes in both lengths and reads a short key past its end.
                    if len(self.raw) != nacl.bindings.crypto_sign_PUBLICKEYBYTES:
                        return False
                    if len(signature) != nacl.bindings.crypto_sign_BYTES:
                        return False
                    if len(data) >= MUCH:
                        Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
                        return True
                    nacl.bindings.crypto_sign_open(signature + data, self.raw)
                    return True
                case KeyType.SECP256K1:
                    if len(self.raw) != SECP256K1_KEY:
                        return False
                    return coincurve.PublicKey(self.raw).verify(signature, data)
                case KeyType.RSA | KeyType.ECDSA:
                    return _verify_x509(self, data, signature)
        except (ValueError, TypeError, InvalidSignature, CryptoError):
            return False


def _verify_x509(key: PublicKey, data: bytes, signature: bytes) -> bool:
    public = serialization.load_der_public_key(key.raw)
    if isinstance(public, rsa.RSAPublicKey) and key.kind is KeyType.RSA:
        if not MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS:
            return False
        public.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
        return True
    if isinstance(public, ec.EllipticCurvePublicKey) and key.kind is KeyType.ECDSA:
        public.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        return True
    return False


def decode_public_key(encoded: bytes) -> PublicKey:
    """Parse the protobuf form. Raises RemoteError on anything but the canonical encoding."""
    if len(encoded) > MAX_PUBLIC_KEY:
        raise RemoteError(f"public key of {len(encoded)} bytes: the limit is {MAX_PUBLIC_KEY}")
    if len(encoded) >= 5 and encoded[0] == 0x08 and encoded[1] <= 3 and encoded[2] == 0x12:
        length_size = 1 if encoded[3] < 0x80 else 2
        key = PublicKey(KeyType(encoded[1]), encoded[3 + length_size :])
        if key.encode() == encoded:
            return key
    raise RemoteError(f"public key {encoded[:8].hex()}… is not the encoding of peer-ids.md")


def public_key_of(peer: PeerId) -> PublicKey | None:
    """The key inside an identity peer id, or None where the id is only a hash."""
    if len(peer) < 2 or peer[0] != _IDENTITY or peer[1] != len(peer) - 2:
        return None
    try:
        return decode_public_key(peer[2:])
    except RemoteError:
        return None


class PrivateKey(msgspec.Struct, frozen=True):
    """A node's identity. ``secret`` is 32 bytes: an Ed25519 seed or a secp256k1 scalar."""

    kind: KeyType
    secret: bytes

    def __post_init__(self) -> None:
        if self.kind not in (KeyType.ED25519, KeyType.SECP256K1) or len(self.secret) != 32:
            raise LocalError("a private key is 32 bytes of kind ed25519 or secp256k1")
        if self.kind is KeyType.SECP256K1:
            try:
                coincurve.PrivateKey(self.secret)
            except ValueError:
                raise LocalError("a secp256k1 private key is from 1 to the curve's order") from None

    def __repr__(self) -> str:
        return f"PrivateKey({self.kind.name}, hidden)"

    def public_key(self) -> PublicKey:
        if self.kind is KeyType.ED25519:
            return PublicKey(self.kind, nacl.bindings.crypto_sign_seed_keypair(self.secret)[0])
        return PublicKey(self.kind, coincurve.PrivateKey(self.secret).public_key.format())

    def sign(self, data: bytes) -> bytes:
        """64 bytes for Ed25519, DER over SHA-256 for secp256k1."""
        return self.signer()(data)

    def signer(self) -> Callable[[bytes], bytes]:
        """`sign` with the expanded key kept: a third cheaper from the second call on."""
        if self.kind is KeyType.SECP256K1:
            return coincurve.PrivateKey(self.secret).sign
        expanded = nacl.bindings.crypto_sign_seed_keypair(self.secret)[1]
        of_much = Ed25519PrivateKey.from_private_bytes(self.secret)

        def sign(data: bytes) -> bytes:
            if len(data) >= MUCH:
                return of_much.sign(data)
            return nacl.bindings.crypto_sign(data, expanded)[: nacl.bindings.crypto_sign_BYTES]

        return sign
