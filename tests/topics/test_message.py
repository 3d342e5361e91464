"""Messages: their bytes, signatures, ids, and what the signature policy forbids.

The bytes are held against an encoder of a few obvious lines, written from the
schema in libp2p specs, ``pubsub/README.md``, and used by nothing but this test.
"""

import hashlib
from collections.abc import Callable

import coincurve
import nacl.signing
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from hypothesis import given
from hypothesis import strategies as st

from bruit.topics.errors import LocalError, RemoteError
from bruit.topics.keys import KeyType, PrivateKey, PublicKey
from bruit.topics.message import (
    Author,
    Message,
    SignaturePolicy,
    decode_message,
    id_from_content,
    id_from_origin,
    message_id_function,
    policy_fault,
    signature_valid,
)
from bruit.topics.message_pb2 import PubsubMessage

FROM, DATA, SEQNO, TOPIC, SIGNATURE, KEY = range(1, 7)  # field numbers of the schema
KEYS = {kind: PrivateKey(kind, b"\x01" * 32) for kind in (KeyType.ED25519, KeyType.SECP256K1)}
ALICE = PrivateKey(KeyType.ED25519, b"alice's secret, of 32 bytes.....")
BOB = PrivateKey(KeyType.ED25519, b"bob's secret, 32 bytes long.....")

kinds = st.sampled_from(list(KEYS))
topics = st.text(
    st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40
)  # printable, as `check_topic` wants them


def field(number: int, value: bytes) -> bytes:
    """One length-delimited protobuf field."""
    size, length = [], len(value)
    while length >= 128:
        size.append(length % 128 + 128)
        length //= 128
    return bytes([number * 8 + 2, *size, length]) + value


def encode(**fields: bytes) -> bytes:
    numbers = {"author": FROM, "data": DATA, "seqno": SEQNO, "topic": TOPIC}
    numbers |= {"signature": SIGNATURE, "key": KEY}
    return b"".join(field(numbers[name], value) for name, value in fields.items())


def signed(by: PrivateKey, unsigned: bytes, **fields: bytes) -> Message:
    """A message whose signature covers ``unsigned``, with ``fields`` behind it."""
    signature = by.sign(b"libp2p-pubsub:" + unsigned)
    return decode_message(unsigned + encode(signature=signature, **fields))


def body(key: PrivateKey = ALICE, topic: bytes = b"blocks", data: bytes = b"data") -> bytes:
    author = key.public_key().peer_id()
    return encode(author=author, data=data, seqno=bytes(8), topic=topic)


# What an author writes


@given(kinds, topics, st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_a_signed_message_has_the_bytes_of_the_schema(
    kind: KeyType, topic: str, data: bytes, seqno: int
) -> None:
    key = KEYS[kind]
    message = Author(key, SignaturePolicy.STRICT_SIGN, seqno).write(topic, data)
    assert message.raw == encode(
        author=key.public_key().peer_id(),
        data=data,
        seqno=seqno.to_bytes(8, "big"),
        topic=topic.encode(),
        signature=message.signature,
    )
    assert decode_message(message.raw) == message


@given(topics, st.binary(max_size=300))
def test_an_unsigned_message_has_topic_and_data_and_nothing_else(topic: str, data: bytes) -> None:
    message = Author(ALICE, SignaturePolicy.STRICT_NO_SIGN, 1).write(topic, data)
    assert message.raw == encode(data=data, topic=topic.encode())
    assert decode_message(message.raw) == message


def test_an_ed25519_signature_covers_prefix_and_message_without_signature() -> None:
    """``pubsub/README.md``, "Message Signing"."""
    message = Author(KEYS[KeyType.ED25519], SignaturePolicy.STRICT_SIGN, 7).write("blocks", b"data")
    covered = encode(
        author=message.author, data=b"data", seqno=b"\0\0\0\0\0\0\0\x07", topic=b"blocks"
    )
    public = nacl.signing.SigningKey(b"\x01" * 32).verify_key
    assert public.verify(b"libp2p-pubsub:" + covered, message.signature)


def test_a_secp256k1_signature_covers_the_same() -> None:
    key = KEYS[KeyType.SECP256K1]
    message = Author(key, SignaturePolicy.STRICT_SIGN, 7).write("blocks", b"data")
    covered = encode(
        author=message.author, data=b"data", seqno=b"\0\0\0\0\0\0\0\x07", topic=b"blocks"
    )
    digest = hashlib.sha256(b"libp2p-pubsub:" + covered).digest()
    public = coincurve.PublicKey(key.public_key().raw)
    assert public.verify(message.signature, digest, hasher=None)


def test_sequence_numbers_go_up_by_one_from_the_first() -> None:
    author = Author(ALICE, SignaturePolicy.STRICT_SIGN, 2**32 - 1)
    assert [author.write("blocks", b"same").seqno.hex() for _ in range(3)] == [
        "00000000ffffffff",
        "0000000100000000",
        "0000000100000001",
    ]


def test_an_impossible_topic_is_refused_and_costs_no_sequence_number() -> None:
    author = Author(ALICE, SignaturePolicy.STRICT_SIGN, 5)
    for topic in ("", "t" * 257, "a\nb"):
        with pytest.raises(LocalError):
            author.write(topic, b"data")
    assert author.write("blocks", b"data").seqno == (5).to_bytes(8, "big")


# Whose signature holds


@given(kinds, topics, st.binary(max_size=300))
def test_what_an_author_writes_has_a_valid_signature(
    kind: KeyType, topic: str, data: bytes
) -> None:
    message = Author(KEYS[kind], SignaturePolicy.STRICT_SIGN, 1).write(topic, data)
    assert signature_valid(message)
    assert policy_fault(message, SignaturePolicy.STRICT_SIGN) is None


@given(kinds, st.data())
def test_no_message_with_a_flipped_bit_is_signed(kind: KeyType, draw: st.DataObject) -> None:
    message = Author(KEYS[kind], SignaturePolicy.STRICT_SIGN, 1).write("blocks", b"some data")
    raw = bytearray(message.raw)
    bit = draw.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    try:
        flipped = decode_message(bytes(raw))
    except RemoteError:
        return
    assert policy_fault(flipped, SignaturePolicy.STRICT_SIGN) or not signature_valid(flipped)


def test_a_message_by_the_slow_encoder_is_signed() -> None:
    message = signed(ALICE, body())
    assert signature_valid(message)
    assert (message.topic, message.data) == ("blocks", b"data")
    assert message.author == ALICE.public_key().peer_id()


def test_a_message_in_the_name_of_another_is_forged() -> None:
    assert not signature_valid(signed(BOB, body(ALICE)))


def test_the_signature_of_one_message_does_not_fit_another() -> None:
    signature = signed(ALICE, body(data=b"data")).signature
    assert not signature_valid(decode_message(body(data=b"date") + encode(signature=signature)))


def test_the_prefix_is_part_of_what_is_signed() -> None:
    """So that a signature made for another purpose is none for a message."""
    signature = ALICE.sign(body())
    assert not signature_valid(decode_message(body() + encode(signature=signature)))


def test_fields_out_of_order_are_signed_in_order() -> None:
    """As go verifies: it encodes anew what it has parsed."""
    author = ALICE.public_key().peer_id()
    signature = signed(ALICE, body()).signature
    shuffled = encode(
        topic=b"blocks", signature=signature, seqno=bytes(8), data=b"data", author=author
    )
    assert signature_valid(decode_message(shuffled))


@pytest.mark.parametrize("extra", [field(15, b"from the future"), b"\x78\x05"])
def test_a_field_from_the_future_is_kept_and_covered_by_the_signature(extra: bytes) -> None:
    """Fields that are not in the schema are signed behind those that are, as in go."""
    message = signed(ALICE, body() + extra)
    assert signature_valid(message)
    assert message.raw == body() + extra + encode(signature=message.signature)
    added = decode_message(signed(ALICE, body()).raw + extra)
    assert not signature_valid(added)


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_of(key: rsa.RSAPrivateKey) -> PublicKey:
    return PublicKey(
        KeyType.RSA,
        key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )


# Everything that protobuf allows: fields in any order, again, empty, in a longer form than
# needed, unknown. What is signed is what a parser makes of it, written in the schema's order.
def long_form(number: int, value: bytes) -> bytes:
    """A field whose length takes a byte more than it needs."""
    head, body = field(number, value)[: -len(value) or None], value
    return head[:-1] + bytes([head[-1] | 0x80, 0]) + body


def of_number(number: int, values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    form = st.sampled_from([field, field, field, long_form])
    return st.builds(lambda write, value: write(number, value), form, values)


odd_fields = st.lists(
    st.one_of(
        of_number(FROM, st.just(ALICE.public_key().peer_id())),
        of_number(DATA, st.sampled_from([b"", b"x", b"data", bytes(200)])),
        of_number(SEQNO, st.sampled_from([b"\x01", bytes(8)])),
        of_number(TOPIC, st.sampled_from([b"/t", "/täglich".encode()])),
        st.sampled_from([b"\x38\x01", b"\x3a\x00", field(9, b"from the future")]),
    ),
    max_size=7,
)


@given(
    before=odd_fields,
    after=odd_fields,
    plain=st.permutations(["author", "data", "seqno", "topic", "signature"]),
)
def test_what_is_signed_is_what_a_parser_makes_of_any_encoding(
    before: list[bytes], after: list[bytes], plain: list[str]
) -> None:
    values = {
        "author": ALICE.public_key().peer_id(),
        "data": b"data",
        "seqno": bytes(8),
        "topic": b"/t",
        "signature": bytes(64),
    }
    body = {name: values[name] for name in plain}
    parsed = PubsubMessage.FromString(b"".join((*before, encode(**body), *after)))
    parsed.ClearField("signature")
    unsigned = parsed.SerializeToString(deterministic=True)
    body["signature"] = ALICE.sign(b"libp2p-pubsub:" + unsigned)
    assert signature_valid(decode_message(b"".join((*before, encode(**body), *after))))
    body["signature"] = ALICE.sign(b"libp2p-pubsub:" + unsigned + b"\x38\x02")
    assert not signature_valid(decode_message(b"".join((*before, encode(**body), *after))))


@given(plain=st.permutations(["author", "data", "seqno", "topic", "signature"]))
def test_an_empty_field_and_an_unknown_one_of_its_size_are_told_apart(plain: list[str]) -> None:
    """What is there and what is signed have the same length, and are not the same."""
    values = {"author": ALICE.public_key().peer_id(), "seqno": bytes(8), "topic": b"/t"}
    without = encode(**{name: values[name] for name in plain if name in values})
    signed_as = encode(author=values["author"], data=b"", seqno=bytes(8), topic=b"/t")
    signature = ALICE.sign(b"libp2p-pubsub:" + signed_as)
    stuffed = decode_message(without + b"\x3a\x00" + encode(signature=signature))
    assert not signature_valid(stuffed)


def test_an_author_whose_id_is_a_hash_sends_the_key_along(rsa_key: rsa.RSAPrivateKey) -> None:
    public = public_of(rsa_key)
    unsigned = encode(author=public.peer_id(), data=b"data", seqno=bytes(8), topic=b"blocks")
    signature = rsa_key.sign(b"libp2p-pubsub:" + unsigned, padding.PKCS1v15(), hashes.SHA256())
    with_key = unsigned + encode(signature=signature, key=public.encode())
    assert signature_valid(decode_message(with_key))
    assert not signature_valid(decode_message(unsigned + encode(signature=signature)))


def test_a_key_that_is_not_the_authors_does_not_count(rsa_key: rsa.RSAPrivateKey) -> None:
    """Else anybody could sign in the name of an author whose id is a hash."""
    victim = public_of(rsa_key).peer_id()
    unsigned = encode(author=victim, data=b"data", seqno=bytes(8), topic=b"blocks")
    forged = signed(BOB, unsigned, key=BOB.public_key().encode())
    assert not signature_valid(forged)


def test_a_key_may_come_along_with_an_author_whose_id_contains_it() -> None:
    assert signature_valid(signed(ALICE, body(), key=ALICE.public_key().encode()))


@pytest.mark.parametrize("key", [b"\x08\x01", b"junk", BOB.public_key().encode()])
def test_a_key_that_contradicts_the_authors_id_makes_the_message_invalid(key: bytes) -> None:
    assert not signature_valid(signed(ALICE, body(), key=key))


# What the policy forbids


@pytest.mark.parametrize("missing", ["author", "seqno", "signature"])
def test_strict_sign_asks_for_author_seqno_and_signature(missing: str) -> None:
    fields = {
        "author": ALICE.public_key().peer_id(),
        "data": b"data",
        "seqno": bytes(8),
        "topic": b"blocks",
        "signature": bytes(64),
    }
    whole = decode_message(encode(**fields))
    assert policy_fault(whole, SignaturePolicy.STRICT_SIGN) is None
    del fields[missing]
    fault = policy_fault(decode_message(encode(**fields)), SignaturePolicy.STRICT_SIGN)
    assert fault is not None
    assert missing in fault


@pytest.mark.parametrize("present", ["author", "seqno", "signature", "key"])
def test_strict_no_sign_forbids_each_field_about_the_author(present: str) -> None:
    """``pubsub/README.md``, "Signature Policy Options"."""
    plain = encode(data=b"data", topic=b"blocks")
    assert policy_fault(decode_message(plain), SignaturePolicy.STRICT_NO_SIGN) is None
    marked = decode_message(plain + encode(**{present: b"x"}))
    assert policy_fault(marked, SignaturePolicy.STRICT_NO_SIGN) == "unexpected auth info"


@pytest.mark.parametrize(("name", "largest"), [("signature", bytes(1024)), ("seqno", bytes(64))])
def test_what_the_author_says_of_itself_is_bounded(name: str, largest: bytes) -> None:
    fields = {
        "author": ALICE.public_key().peer_id(),
        "seqno": bytes(8),
        "topic": b"blocks",
        "signature": bytes(64),
    }
    at_limit = decode_message(encode(**(fields | {name: largest})))
    assert policy_fault(at_limit, SignaturePolicy.STRICT_SIGN) is None
    beyond = decode_message(encode(**(fields | {name: largest + b"\0"})))
    assert policy_fault(beyond, SignaturePolicy.STRICT_SIGN) == "malformed auth info"


@pytest.mark.parametrize("author", [b"alice", b"\x12\x20" + bytes(31), bytes(2)])
def test_an_author_that_is_no_peer_id_is_refused(author: bytes) -> None:
    message = decode_message(
        encode(author=author, seqno=bytes(8), topic=b"blocks", signature=bytes(64))
    )
    assert policy_fault(message, SignaturePolicy.STRICT_SIGN) == "malformed auth info"


# Ids


def test_the_id_by_origin_is_author_and_sequence_number() -> None:
    message = Author(ALICE, SignaturePolicy.STRICT_SIGN, 1).write("blocks", b"data")
    assert id_from_origin(message) == ALICE.public_key().peer_id() + b"\0\0\0\0\0\0\0\x01"


def test_the_id_by_content_is_a_hash_of_topic_and_data_alone() -> None:
    expected = hashlib.sha256(b"\0\0\0\x06blocks" + b"data").digest()
    for key, policy in (
        (ALICE, SignaturePolicy.STRICT_SIGN),
        (BOB, SignaturePolicy.STRICT_NO_SIGN),
    ):
        assert id_from_content(Author(key, policy, 1).write("blocks", b"data")) == expected


def test_where_the_topic_ends_changes_the_id_by_content() -> None:
    author = Author(ALICE, SignaturePolicy.STRICT_NO_SIGN, 1)
    assert id_from_content(author.write("ab", b"c")) != id_from_content(author.write("a", b"bc"))


@pytest.mark.parametrize(
    ("name", "function"), [("origin", id_from_origin), ("content", id_from_content)]
)
def test_id_functions_are_found_by_name(name: str, function: Callable[[Message], bytes]) -> None:
    assert message_id_function(name) is function


def test_an_unknown_id_function_is_answered_with_those_that_exist() -> None:
    with pytest.raises(LocalError, match="'hash': use one of origin, content"):
        message_id_function("hash")


# Hostile bytes


def check_decoding(raw: bytes) -> None:
    try:
        message = decode_message(raw)
    except RemoteError:
        return
    assert message.raw == raw
    assert 0 < len(message.topic) <= 256
    for policy in SignaturePolicy:
        policy_fault(message, policy)
    assert signature_valid(message) is False


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_fault(raw: bytes) -> None:
    check_decoding(raw)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 15), st.binary(max_size=70)).map(lambda each: field(*each)),
            st.binary(max_size=5),
        ),
        max_size=8,
    )
)
def test_any_mixture_of_fields_and_garbage_is_a_message_or_a_fault(parts: list[bytes]) -> None:
    check_decoding(b"".join(parts))


@given(st.data())
def test_a_truncated_message_is_a_fault_or_not_signed(draw: st.DataObject) -> None:
    raw = Author(ALICE, SignaturePolicy.STRICT_SIGN, 1).write("blocks", b"data").raw
    check_decoding(raw[: draw.draw(st.integers(0, len(raw) - 1))])


@pytest.mark.parametrize(
    "topic", [None, b"", b"\xff\xfe", b"t" * 257], ids=["missing", "empty", "no UTF-8", "too long"]
)
def test_a_message_without_a_possible_topic_is_a_fault(topic: bytes | None) -> None:
    raw = encode(data=b"data") if topic is None else encode(data=b"data", topic=topic)
    with pytest.raises(RemoteError):
        decode_message(raw)
