"""Private keys on disk.

A key file is one line of text: the base64 of the protobuf private key of
libp2p specs, ``peer-ids/peer-ids.md`` ("Keys"), the form that go-libp2p's
``MarshalPrivateKey`` writes. Ed25519 holds 64 bytes (seed, then public key),
secp256k1 32. Only its owner may read the file (mode 0600), and nothing here
ever overwrites one.
"""

import base64
import binascii
import os
import secrets
import stat
from pathlib import Path

import coincurve

from bruit.topics.errors import LocalError
from bruit.topics.keys import KeyType, PrivateKey

KEY_TYPES = {"ed25519": KeyType.ED25519, "secp256k1": KeyType.SECP256K1}
MAX_KEY_FILE = 1024  # bytes; guess: the longest key this file may hold is 93 characters
_SEED = 32  # bytes of an Ed25519 seed or of a secp256k1 scalar


def new_key(kind: KeyType = KeyType.ED25519) -> PrivateKey:
    """A fresh key from the operating system's randomness. Raises LocalError for RSA and ECDSA."""
    if kind is KeyType.SECP256K1:
        return PrivateKey(kind, coincurve.PrivateKey().secret)
    return PrivateKey(kind, secrets.token_bytes(_SEED))


def create_key_file(path: Path, key: PrivateKey) -> None:
    """Write ``key`` to a new file of mode 0600. Raises LocalError when that cannot be done."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(base64.b64encode(encode_private_key(key)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise LocalError(
            f"key file {path} exists and is never overwritten: move it away or name another"
        ) from None
    except OSError as problem:
        raise LocalError(f"key file {path} cannot be created: {problem.strerror}") from None


def load_key_file(path: Path) -> PrivateKey:
    """Read a key. Raises LocalError when there is none, others may read it, or it is malformed."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise LocalError(
                    f"key file {path} has mode {mode:04o}, so that others can use the identity: "
                    f"run chmod 600 {path}"
                )
            text = file.read(MAX_KEY_FILE + 1)
    except FileNotFoundError:
        raise LocalError(
            f"key file {path} does not exist: make one with `bruit keys new {path}`"
        ) from None
    except OSError as problem:
        raise LocalError(f"key file {path} cannot be read: {problem.strerror}") from None
    try:
        return decode_private_key(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, LocalError):
        raise LocalError(
            f"key file {path} holds no key: expected one line of base64, "
            "the libp2p encoding of an ed25519 or secp256k1 private key"
        ) from None


def encode_private_key(key: PrivateKey) -> bytes:
    """The protobuf form: field 1 the type, field 2 the bytes that peer-ids.md prescribes."""
    data = key.secret
    if key.kind is KeyType.ED25519:
        data += key.public_key().raw
    return bytes((0x08, key.kind, 0x12, len(data))) + data


def decode_private_key(encoded: bytes) -> PrivateKey:
    """Inverse of `encode_private_key`. Raises LocalError on anything else.

    The 96-byte Ed25519 form of old libp2p versions is not taken.
    """
    if len(encoded) >= 4 + _SEED and encoded[1] in KEY_TYPES.values():
        key = PrivateKey(KeyType(encoded[1]), encoded[4 : 4 + _SEED])
        try:
            key.public_key()
        except ValueError:  # a secp256k1 scalar that is 0 or not below the group order
            raise LocalError("the secp256k1 key is outside the group") from None
        if encode_private_key(key) == encoded:
            return key
    raise LocalError("not the libp2p encoding of an ed25519 or secp256k1 private key")
