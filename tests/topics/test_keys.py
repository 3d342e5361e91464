"""Keys and peer ids.

Keys are the test vectors of libp2p specs, ``peer-ids/peer-ids.md`` ("Test
vectors"); their peer ids in base58 are those that other implementations pin for
the same vectors.
"""

import base64
import hashlib

import base58
import coincurve
import nacl.signing
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from hypothesis import given
from hypothesis import strategies as st

from bruit.topics.errors import LocalError, RemoteError
from bruit.topics.keys import (
    MAX_PUBLIC_KEY,
    MUCH,
    KeyType,
    PrivateKey,
    PublicKey,
    decode_public_key,
    is_peer_id,
    peer_id_from_text,
    peer_id_text,
    public_key_of,
)

ED25519_SECRET = "7e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d"
ED25519_PUBLIC = "080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"
SECP256K1_SECRET = "53dadf1d5a164d6b4acdb15e24aa4c5b1d3461bdbd42abedb0a4404d56ced8fb"
SECP256K1_PUBLIC = "08021221037777e994e452c21604f91de093ce415f5432f701dd8cd1a7a6fea0e630bfca99"
ECDSA_PRIVATE = (  # SEC 1, DER
    "307702010104203e5b1fe9712e6c314942a750bd67485de3c1efe85b1bfb520ae8f9ae3dfa4a4c"
    "a00a06082a8648ce3d030107a14403420004de3d300fa36ae0e8f5d530899d83abab44abf3161f"
    "162a4bc901d8e6ecda020e8b6d5f8da30525e71d6851510c098e5c47c646a597fb4dcec034e9f7"
    "7c409e62"
)
ECDSA_PUBLIC = (
    "0803125b3059301306072a8648ce3d020106082a8648ce3d03010703420004de3d300fa36ae0e8"
    "f5d530899d83abab44abf3161f162a4bc901d8e6ecda020e8b6d5f8da30525e71d6851510c098e"
    "5c47c646a597fb4dcec034e9f77c409e62"
)
RSA_PUBLIC = (
    "080012a60430820222300d06092a864886f70d01010105000382020f003082020a0282020100e1be"
    "ab071d08200bde24eef00d049449b07770ff9910257b2d7d5dda242ce8f0e2f12e1af4b32d9efd2c"
    "090f66b0f29986dbb645dae9880089704a94e5066d594162ae6ee8892e6ec70701db0a6c445c0477"
    "8eb3de1293aa1a23c3825b85c6620a2bc3f82f9b0c309bc0ab3aeb1873282bebd3da03c33e76c21e"
    "9beb172fd44c9e43be32e2c99827033cf8d0f0c606f4579326c930eb4e854395ad941256542c7939"
    "02185153c474bed109d6ff5141ebf9cd256cf58893a37f83729f97e7cb435ec679d2e33901d27bb3"
    "5aa0d7e20561da08885ef0abbf8e2fb48d6a5487047a9ecb1ad41fa7ed84f6e3e8ecd5d98b3982d2"
    "a901b4454991766da295ab78822add5612a2df83bcee814cf50973e80d7ef38111b1bd87da2ae924"
    "38a2c8cbcc70b31ee319939a3b9c761dbc13b5c086d6b64bf7ae7dacc14622375d92a8ff9af7eb96"
    "2162bbddebf90acb32adb5e4e4029f1c96019949ecfbfeffd7ac1e3fbcc6b6168c34be3d5a2e5999"
    "fcbb39bba7adbca78eab09b9bc39f7fa4b93411f4cc175e70c0a083e96bfaefb04a9580b4753c173"
    "8a6a760ae1afd851a1a4bdad231cf56e9284d832483df215a46c1c21bdf0c6cfe951c18f1ee4078c"
    "79c13d63edb6e14feaeffabc90ad317e4875fe648101b0864097e998f0ca3025ef9638cd2b0caecd"
    "3770ab54a1d9c6ca959b0f5dcbc90caeefc4135baca6fd475224269bbe1b0203010001"
)
VECTORS = [
    (KeyType.ED25519, ED25519_PUBLIC, "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"),
    (KeyType.SECP256K1, SECP256K1_PUBLIC, "16Uiu2HAmLhLvBoYaoZfaMUKuibM6ac163GwKY74c5kiSLg5KvLpY"),
    (KeyType.ECDSA, ECDSA_PUBLIC, "QmVMT29id3TUASyfZZ6k9hmNyc2nYabCo4uMSpDw4zrgDk"),
    (KeyType.RSA, RSA_PUBLIC, "QmaeANgBs1DTSxWSrPPtobgQuxW8XTfsS4ydbK4rCHzqxG"),
]
vectors = pytest.mark.parametrize(
    ("kind", "encoded", "peer"), VECTORS, ids=[kind.name for kind, _, _ in VECTORS]
)
own_kinds = st.sampled_from([KeyType.ED25519, KeyType.SECP256K1])
# Every 32 bytes are a seed of Ed25519; of secp256k1, numbers from 1 to below the order are.
secrets = st.binary(min_size=31, max_size=31).map(lambda tail: b"\x01" + tail)


# Vectors


@vectors
def test_a_public_key_gives_the_peer_id_of_the_vectors(
    kind: KeyType, encoded: str, peer: str
) -> None:
    key = decode_public_key(bytes.fromhex(encoded))
    assert key.kind is kind
    assert peer_id_text(key.peer_id()) == peer
    assert peer_id_from_text(peer) == key.peer_id()


@vectors
def test_a_public_key_is_encoded_as_it_was(kind: KeyType, encoded: str, peer: str) -> None:
    assert decode_public_key(bytes.fromhex(encoded)).encode().hex() == encoded


@pytest.mark.parametrize(
    ("kind", "secret", "public"),
    [
        (KeyType.ED25519, ED25519_SECRET, ED25519_PUBLIC),
        (KeyType.SECP256K1, SECP256K1_SECRET, SECP256K1_PUBLIC),
    ],
    ids=["ED25519", "SECP256K1"],
)
def test_a_private_key_gives_the_public_key_of_the_vectors(
    kind: KeyType, secret: str, public: str
) -> None:
    assert PrivateKey(kind, bytes.fromhex(secret)).public_key().encode().hex() == public


def test_ed25519_signs_as_the_standard_says() -> None:
    """RFC 8032, section 7.1, test 2."""
    secret = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
    public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    signature = (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    key = PrivateKey(KeyType.ED25519, bytes.fromhex(secret))
    assert key.public_key().raw.hex() == public
    assert key.sign(b"\x72").hex() == signature


@pytest.mark.parametrize("peer", ["Qm", "12D3"])
def test_the_examples_of_the_specification_are_peer_ids(peer: str) -> None:
    examples = {
        "Qm": "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        "12D3": "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA",
    }
    assert peer_id_text(peer_id_from_text(examples[peer])) == examples[peer]


# The first pair is an example of peer-ids.md, the second CID one of js-libp2p (peer-id.ts); what
# else stands here was converted by py-multibase.
@pytest.mark.parametrize(
    ("cid", "peer"),
    [
        (
            "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe",
            "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        ),
        (
            "k51qzi5uqu5dkwkqm42v9j9kqcam2jiuvloi16g72i4i4amoo2m8u3ol3mqu6s",
            "12D3KooWNZuG8phqhoNK9KWcUhwfzA3biDKNCUNVWEaJgigr6Acj",
        ),
        (
            "zdvgqC3jczfCwLUoSyWT8GLc5UZ9aG4RkAg7XAfidRbX9qVj6",
            "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        ),
    ],
    ids=["base32", "base36", "base58"],
)
def test_a_peer_id_is_read_from_a_cid(cid: str, peer: str) -> None:
    assert peer_id_from_text(cid) == peer_id_from_text(peer)


@pytest.mark.parametrize(
    "text",
    [
        "zb2rhhFAEMepUBbGyP1k8tGfz7BSciKXP6GHuUeUsJBaK6cqG",  # CID of something else (nim-libp2p)
        "zQmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",  # no CID inside (nim-libp2p)
        "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqx0",  # 0 is no digit (nim-libp2p)
        "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xq",  # cut short
        "bAFZBEIE5745RPV2M6TJYUUGYWY4D5EWRQGQQHFNF445HE3OMZPJBX5XQXE",
        "afzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe",
        "k51qzi5uqu5dkwkqm42v9j9kqcam2jiuvloi16g72i4i4amoo2m8u3ol3mqu6S",
        "k51qzi5uqu5dkwkqm42v9j9kqcam2jiuvloi16g72i4i4amoo2m8u3ol3mqu_6s",
        "bafzbe\u0131e5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe",  # i without a dot
        "k" + "z" * 10_000,
        "1" * 10_000,
        "b",
        "k",
        "z",
    ],
)
def test_what_is_no_cid_of_a_key_is_no_peer_id(text: str) -> None:
    with pytest.raises(LocalError, match="is not a peer id"):
        peer_id_from_text(text)


@given(st.text() | st.text("bkz1Qm0123456789abcdefghijklmnopqrstuvwxyz", max_size=120))
def test_any_text_is_a_peer_id_or_refused(text: str) -> None:
    try:
        peer = peer_id_from_text(text)
    except LocalError:
        return
    assert is_peer_id(peer)


@given(st.binary(min_size=32, max_size=32), st.sampled_from([b"\x12\x20", b"\x00\x20"]))
def test_every_peer_id_is_read_from_its_cid_in_every_base(digest: bytes, kind: bytes) -> None:
    peer = kind + digest
    cid = b"\x01\x72" + peer
    number, base36 = int.from_bytes(cid), ""
    while number:
        number, digit = divmod(number, 36)
        base36 = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + base36
    base32 = base64.b32encode(cid).decode().lower().rstrip("=")
    for text in ("b" + base32, "k" + base36, "z" + base58.b58encode(cid).decode()):
        assert peer_id_from_text(text) == peer


def test_a_key_of_42_bytes_goes_into_the_id_itself_and_one_of_43_is_hashed() -> None:
    whole, hashed = PublicKey(KeyType.RSA, bytes(38)), PublicKey(KeyType.RSA, bytes(39))
    assert len(whole.encode()) == 42
    assert whole.peer_id() == b"\x00\x2a" + whole.encode()
    assert hashed.peer_id() == b"\x12\x20" + hashlib.sha256(hashed.encode()).digest()


# Signatures


@given(own_kinds, secrets, st.binary(max_size=300))
def test_what_a_key_signs_its_public_key_verifies(
    kind: KeyType, secret: bytes, data: bytes
) -> None:
    key = PrivateKey(kind, secret)
    assert key.public_key().verify(data, key.sign(data))


@pytest.mark.parametrize("size", [MUCH - 1, MUCH, MUCH + 1, 500_000])
def test_an_ed25519_signature_is_the_same_at_every_size(size: int) -> None:
    """From MUCH bytes on another library makes and checks it; libsodium is the judge here."""
    key, data = PrivateKey(KeyType.ED25519, b"\x07" * 32), bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    signature = key.sign(data)
    assert signature == nacl.signing.SigningKey(key.secret).sign(data).signature
    assert key.public_key().verify(data, signature)
    assert not key.public_key().verify(data[:-1] + b"!", signature)
    assert not key.public_key().verify(data, bytes(64))


@given(own_kinds, st.binary(min_size=1, max_size=100), st.data())
def test_one_flipped_bit_in_data_or_signature_is_noticed(
    kind: KeyType, data: bytes, draw: st.DataObject
) -> None:
    key = PrivateKey(kind, b"\x01" * 32)
    signature = key.sign(data)
    signed = bytearray(signature + data)
    bit = draw.draw(st.integers(0, 8 * len(signed) - 1))
    signed[bit // 8] ^= 1 << bit % 8
    split = len(signature)
    assert not key.public_key().verify(bytes(signed[split:]), bytes(signed[:split]))


@given(own_kinds, secrets)
def test_a_signature_by_another_key_is_refused(kind: KeyType, secret: bytes) -> None:
    signature = PrivateKey(kind, secret).sign(b"data")
    assert not PrivateKey(kind, b"\x02" * 32).public_key().verify(b"data", signature)


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def subject_public_key_info(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def test_a_signature_by_an_rsa_key_is_verified(rsa_key: rsa.RSAPrivateKey) -> None:
    key = PublicKey(KeyType.RSA, subject_public_key_info(rsa_key))
    signature = rsa_key.sign(b"data", padding.PKCS1v15(), hashes.SHA256())
    assert decode_public_key(key.encode()) == key
    assert key.verify(b"data", signature)
    assert not key.verify(b"date", signature)
    assert not key.verify(b"data", signature[:-1])


def test_a_signature_by_the_ecdsa_key_of_the_vectors_is_verified() -> None:
    private = serialization.load_der_private_key(bytes.fromhex(ECDSA_PRIVATE), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    key = decode_public_key(bytes.fromhex(ECDSA_PUBLIC))
    assert key.raw == subject_public_key_info(private)
    signature = private.sign(b"data", ec.ECDSA(hashes.SHA256()))
    assert key.verify(b"data", signature)
    assert not key.verify(b"date", signature)


def test_a_key_under_the_name_of_another_kind_verifies_nothing(rsa_key: rsa.RSAPrivateKey) -> None:
    signature = rsa_key.sign(b"data", padding.PKCS1v15(), hashes.SHA256())
    raw = subject_public_key_info(rsa_key)
    for kind in (KeyType.ECDSA, KeyType.ED25519, KeyType.SECP256K1):
        assert not PublicKey(kind, raw).verify(b"data", signature)


@pytest.mark.parametrize("surplus", [b"\x00", bytes(32)], ids=["33 bytes", "64 bytes"])
def test_an_ed25519_key_with_bytes_after_it_is_no_key(surplus: bytes) -> None:
    """Otherwise one key would have as many peer ids as there are endings."""
    key = PrivateKey(KeyType.ED25519, bytes(32))
    longer = PublicKey(KeyType.ED25519, key.public_key().raw + surplus)
    assert not longer.verify(b"data", key.sign(b"data"))


def test_an_ed25519_key_that_is_too_short_is_not_read_past_its_end() -> None:
    """libsodium takes 32 bytes wherever they are, and Python ends its bytes with a zero."""
    keys = (PrivateKey(KeyType.ED25519, seed.to_bytes(32, "big")) for seed in range(10_000))
    key = next(key for key in keys if key.public_key().raw.endswith(b"\x00"))
    shorter = PublicKey(KeyType.ED25519, key.public_key().raw[:-1])
    assert not shorter.verify(b"data", key.sign(b"data"))


def test_an_uncompressed_secp256k1_key_is_no_key() -> None:
    """go-libp2p names it by its compressed form, so it would have two peer ids."""
    private = coincurve.PrivateKey(b"\x01" * 32)
    signature = private.sign(b"data")
    compressed, whole = private.public_key.format(), private.public_key.format(compressed=False)
    assert PublicKey(KeyType.SECP256K1, compressed).verify(b"data", signature)
    assert not PublicKey(KeyType.SECP256K1, whole).verify(b"data", signature)


def test_an_rsa_key_below_2048_bits_is_refused() -> None:
    """As go-libp2p and rust-libp2p do."""
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    signature = weak.sign(b"data", padding.PKCS1v15(), hashes.SHA256())
    assert not PublicKey(KeyType.RSA, subject_public_key_info(weak)).verify(b"data", signature)


# Hostile input


@given(st.binary(max_size=120))
def test_any_bytes_are_a_public_key_in_canonical_form_or_a_fault(encoded: bytes) -> None:
    try:
        key = decode_public_key(encoded)
    except RemoteError:
        return
    assert key.encode() == encoded


@given(st.sampled_from(KeyType), st.binary(max_size=120), st.binary(max_size=80))
def test_malformed_keys_and_signatures_verify_nothing_and_raise_nothing(
    kind: KeyType, raw: bytes, signature: bytes
) -> None:
    assert PublicKey(kind, raw).verify(b"data", signature) is False


@given(st.binary(max_size=70))
def test_any_bytes_have_a_key_inside_or_none(peer: bytes) -> None:
    key = public_key_of(peer)
    assert key is None or key.peer_id() == peer


@given(st.sampled_from(KeyType), st.binary(min_size=1, max_size=38))
def test_a_short_key_is_found_inside_its_peer_id(kind: KeyType, raw: bytes) -> None:
    key = PublicKey(kind, raw)
    assert public_key_of(key.peer_id()) == key


def test_a_hashed_peer_id_has_no_key_inside() -> None:
    assert public_key_of(decode_public_key(bytes.fromhex(ECDSA_PUBLIC)).peer_id()) is None


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "0801",  # no data
        "1220" + "11" * 32,  # no type
        "0804122011" + "11" * 31,  # a type that does not exist
        "1220" + "11" * 32 + "0801",  # fields in the wrong order
        "0801122011" + "11" * 31 + "18012000",  # fields that do not exist
        "0801122011" + "11" * 30,  # data shorter than announced
        "0801122011" + "11" * 32,  # and longer
        "088100122011" + "11" * 31,  # the type in two bytes where one does
        "080112a000" + "11" * 32,  # the length in two bytes where one does
    ],
)
def test_another_encoding_than_the_deterministic_one_is_refused(encoded: str) -> None:
    """``peer-ids.md``, "Keys": minimal varints, in tag order, all fields, no others."""
    with pytest.raises(RemoteError):
        decode_public_key(bytes.fromhex(encoded))


def test_a_key_is_taken_up_to_its_limit_and_refused_beyond() -> None:
    head = 5  # bytes before the data: two tags, the type, a length of two bytes
    largest = PublicKey(KeyType.RSA, bytes(MAX_PUBLIC_KEY - head)).encode()
    assert len(largest) == MAX_PUBLIC_KEY
    assert decode_public_key(largest).encode() == largest
    with pytest.raises(RemoteError, match="2049 bytes"):
        decode_public_key(PublicKey(KeyType.RSA, bytes(MAX_PUBLIC_KEY - head + 1)).encode())


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("1220" + "00" * 32, True),
        ("1221" + "00" * 33, False),  # SHA-256 has 32 bytes
        ("1220" + "00" * 31, False),
        ("1320" + "00" * 32, False),  # no hash that peer ids use
        ("000100", True),
        ("0000", False),
        ("0002" + "00", False),
        ("003e" + "00" * 62, True),  # 64 bytes
        ("003f" + "00" * 63, False),
        ("", False),
    ],
)
def test_a_peer_id_is_an_identity_or_sha_256_multihash(peer: str, expected: bool) -> None:
    assert is_peer_id(bytes.fromhex(peer)) is expected


@given(
    st.one_of(st.text(max_size=60), st.binary(max_size=50).map(base58.b58encode).map(bytes.decode))
)
def test_any_text_is_a_peer_id_or_a_local_error(text: str) -> None:
    try:
        peer = peer_id_from_text(text)
    except LocalError:
        return
    assert is_peer_id(peer)


@pytest.mark.parametrize(
    ("kind", "size"), [(KeyType.RSA, 32), (KeyType.ECDSA, 32), (KeyType.ED25519, 31)]
)
def test_a_private_key_that_cannot_sign_is_refused(kind: KeyType, size: int) -> None:
    with pytest.raises(LocalError):
        PrivateKey(kind, bytes(size))


def test_a_private_key_does_not_show_its_secret() -> None:
    shown = repr(PrivateKey(KeyType.ED25519, b"secret, not told" * 2))
    assert shown == "PrivateKey(ED25519, hidden)"


@pytest.mark.parametrize(
    "scalar", [0, 2**256 - 432420386565659656852420866394968145599, 2**256 - 1]
)
def test_a_scalar_outside_the_curves_order_is_no_private_key(scalar: int) -> None:
    """SEC 2, 2.4.1: n = 2^256 - 432420386565659656852420866394968145599 for secp256k1."""
    with pytest.raises(LocalError, match="curve's order"):
        PrivateKey(KeyType.SECP256K1, scalar.to_bytes(32, "big"))
