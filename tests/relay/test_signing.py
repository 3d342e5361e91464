"""Who signed what: against published vectors, a slow path of its own, and forgers."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.relay.keccak import keccak256
from bruit.node.relay.merkle import merkle_proof, merkle_tree
from bruit.node.relay.params import Attesting, ChannelParams
from bruit.node.relay.signing import (
    address_of,
    address_of_secret,
    attestation_of,
    check_acknowledgement,
    check_chunk,
    message_id_of,
    recover,
    sign,
    stake_of,
)
from bruit.node.relay.wire import (
    WHOLE,
    Acknowledgement,
    Attested,
    Frame,
    decode_acknowledgement,
    decode_attested,
)
from bruit.topics.errors import RemoteError
from tests.relay import slow_ethereum, vectors

VECTORS: dict[str, Any] = json.loads(vectors.FILE.read_text(encoding="utf-8"))
ORDER = slow_ethereum.N
PRODUCER, MEMBER = vectors.PRODUCER, vectors.MEMBER
PRODUCER_ID = bytes.fromhex(VECTORS["keys"]["producer"]["address"])
MEMBER_ID = bytes.fromhex(VECTORS["keys"]["member"]["address"])
SLOW = settings(max_examples=25, deadline=None)  # ten milliseconds a multiplication


def number(value: int) -> bytes:
    return value.to_bytes(32, "big")


def signature(r: int, s: int, recovery: int) -> bytes:
    return number(r) + number(s) + bytes([recovery])


digests = st.binary(min_size=32, max_size=32)
secrets = st.integers(1, ORDER - 1).map(number)


# Keccak


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        # Ethereum Yellow Paper, Appendix: the hash of nothing, of rlp(()) and of rlp("")
        ("", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        ("c0", "1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347"),
        ("80", "56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"),
    ],
)
def test_keccak_is_ethereums_and_not_sha3(data: str, digest: str) -> None:
    assert keccak256(bytes.fromhex(data)).hex() == digest
    assert slow_ethereum.keccak256(bytes.fromhex(data)).hex() == digest


@given(st.lists(st.binary(max_size=300), max_size=3))
def test_keccak_of_parts_is_that_of_the_whole(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert keccak256(*parts) == keccak256(memoryview(whole)) == slow_ethereum.keccak256(whole)


# Signatures


@pytest.mark.parametrize(
    ("secret", "address"),
    [
        # go-ethereum, crypto/crypto_test.go
        (
            "289c2857d4598e37fb9647507e47a309d6133539bf21a8b9cb6df88fd5232032",
            "970e8128ab834e8eac17ab8e3812f010678cf791",
        ),
        # EIP-712, Example.js: the secret is Keccak-256 of "cow"
        (
            keccak256(b"cow").hex(),
            "cd2a3d9f938e13cd947ec05abc7fe734df8dd826",
        ),
    ],
)
def test_an_id_is_an_ethereum_address(secret: str, address: str) -> None:
    assert address_of_secret(bytes.fromhex(secret)).hex() == address


def test_a_signature_of_ethereum_is_recovered() -> None:
    # go-ethereum, crypto/signature_test.go: testmsg, testsig, testpubkey
    digest = bytes.fromhex("ce0677bb30baa8cf067c88db9811f4333d131bf8bcf12fe7065d211dce971008")
    signed = bytes.fromhex(
        "90f27b8b488db00b00606796d2987f6a5f59ae62ea05effe84fef5b8b0e54998"
        "4a691139ad57a3f0b906637673aa2f63d1f55cb1a69199d4009eea23ceaddc9301"
    )
    key = bytes.fromhex(
        "04e32df42865e97135acfb65f3bae71bdc86f4d49150ad6a440b6f15878109880a"
        "0a2b2667f7e725ceea70c673093bf67663e0312623c8e091b13cf2c0f11ef652"
    )
    assert recover(digest, signed) == address_of(key) == slow_ethereum.recover(digest, signed)


def test_a_signature_of_ethereum_is_made() -> None:
    # EIP-712, Example.js: signHash() and sig; v is 27 more than the recovery id
    digest = bytes.fromhex("a5f5fa6b05af38f2e9d2889ac36f5a4ba31e20646781d23739de458d86d6593e")
    assert sign(keccak256(b"cow"), digest) == signature(
        0x24040EDA35064D96C51F3308B5FAE290EDAE563327348886A366ED604E0C0480,
        0x42BBABF2FAE4B00598596A99D577DDE56FF9D013E861F611CFE7B0728E1CD057,
        0,
    )


@SLOW
@given(secrets, digests)
def test_signatures_are_those_of_the_slow_path_and_lead_back_to_their_maker(
    secret: bytes, digest: bytes
) -> None:
    signed = sign(secret, digest)
    assert signed == slow_ethereum.sign(secret, digest)
    assert recover(digest, signed) == slow_ethereum.address_of_secret(secret)
    assert recover(digest, signed) == address_of_secret(secret)


@SLOW
@given(digests, st.binary(min_size=64, max_size=64), st.integers(0, 255))
def test_any_bytes_are_recovered_as_on_the_slow_path_or_refused(
    digest: bytes, data: bytes, recovery: int
) -> None:
    for last in (recovery, recovery % 2):
        signed = data + bytes([last])
        low = int.from_bytes(data[32:], "big") <= ORDER // 2
        expected = slow_ethereum.recover(digest, signed) if low and last <= 1 else None
        if expected is None:
            with pytest.raises(RemoteError):
                recover(digest, signed)
        else:
            assert recover(digest, signed) == expected


@given(secrets, digests)
def test_the_twin_of_a_signature_with_the_higher_s_is_refused(secret: bytes, digest: bytes) -> None:
    signed = sign(secret, digest)
    s = int.from_bytes(signed[32:64], "big")
    twin = signed[:32] + number(ORDER - s) + bytes([signed[64] ^ 1])
    assert s <= ORDER // 2
    with pytest.raises(RemoteError, match="upper half"):
        recover(digest, twin)


def test_the_twin_would_name_the_same_signer_if_it_were_not_refused() -> None:
    digest = keccak256(b"a digest")
    signed = sign(PRODUCER, digest)
    s = int.from_bytes(signed[32:64], "big")
    twin = signed[:32] + number(ORDER - s) + bytes([signed[64] ^ 1])
    assert slow_ethereum.recover(digest, twin) == PRODUCER_ID


@pytest.mark.parametrize("recovery", [2, 3, 4, 27, 28, 255])
def test_recovery_ids_beyond_1_are_refused(recovery: int) -> None:
    signed = sign(PRODUCER, bytes(32))[:64] + bytes([recovery])
    with pytest.raises(RemoteError, match="recovery id of 0 or 1"):
        recover(bytes(32), signed)


def test_an_r_that_needs_a_recovery_id_of_2_is_refused_with_any() -> None:
    # With r = 2 there are points at both x = r and x = r + n; only id 2 or 3 means the second.
    r = next(r for r in range(1, 100) if slow_ethereum.recover(bytes(32), signature(r, 1, 2)))
    with pytest.raises(RemoteError, match="recovery id"):
        recover(bytes(32), signature(r, 1, 2))


@pytest.mark.parametrize(
    ("r", "s"),
    [(0, 1), (1, 0), (0, 0), (ORDER, 1), (ORDER + 1, 1), (1, ORDER), (2**256 - 1, 1), (5, 1)],
)
def test_numbers_that_no_signature_has_are_refused(r: int, s: int) -> None:
    # x = 5 lies on no point of the curve.
    for recovery in (0, 1):
        with pytest.raises(RemoteError):
            recover(bytes(32), signature(r, s, recovery))


@pytest.mark.parametrize("size", [0, 1, 64, 66, 130])
def test_signatures_of_another_length_are_refused(size: int) -> None:
    with pytest.raises(RemoteError, match="65 bytes in all"):
        recover(bytes(32), (sign(PRODUCER, bytes(32)) * 2)[:size])


@given(st.integers(0, 97 * 8 - 1))
def test_a_flipped_bit_anywhere_names_somebody_else_or_nobody(bit: int) -> None:
    digest = keccak256(b"a digest")
    data = bytearray(digest + sign(PRODUCER, digest))
    data[bit // 8] ^= 1 << bit % 8
    try:
        assert recover(bytes(data[:32]), bytes(data[32:])) != PRODUCER_ID
    except RemoteError:
        return


def test_vectors_of_keys_and_message_id() -> None:
    assert address_of_secret(PRODUCER) == PRODUCER_ID
    assert address_of_secret(MEMBER) == MEMBER_ID
    assert message_id_of(bytes.fromhex(VECTORS["block"])).hex() == VECTORS["message_id"]


# Chunks


def channel(number: int, chunks: int, attesting: Attesting = Attesting.CHUNK) -> ChannelParams:
    return ChannelParams(
        id=number, topic="t", min_chunks=1, num_chunks=chunks, attesting=attesting, max_block=4096
    )


CHANNEL = channel(7, 48)


def attested_chunk(index: int = 3, chunk: bytes = b"a chunk") -> tuple[Attested, bytes]:
    attested = Attested(b"abcd", 7, index, 1_700_000_000, len(chunk), 77, keccak256(chunk))
    return attested, chunk


def frame(index: int = 3, chunk: bytes = b"a chunk", witness: bool = True) -> bytes:
    attested, chunk = attested_chunk(index, chunk)
    made = Frame(
        attestation_of(attested, index, sign(PRODUCER, keccak256(attested.encode()))),
        b"",
        (),
        chunk,
    )
    if witness:
        signed = sign(MEMBER, keccak256(made.encode()))
        made = msgspec.structs.replace(made, witness=signed)
    return made.encode()


def merkle_frame(
    index: int, count: int = 5, change: Callable[[Frame], Frame] | None = None
) -> bytes:
    chunks = [bytes([at]) * 9 for at in range(count)]
    tree = merkle_tree([keccak256(each) for each in chunks])
    attested = Attested(b"abcd", 7, WHOLE, 1_700_000_000, 9, 77, tree[-1][0])
    attestation = attestation_of(attested, index, sign(PRODUCER, keccak256(attested.encode())))
    made = Frame(attestation, b"", merkle_proof(tree, index), chunks[min(index, count - 1)])
    if change is not None:
        made = change(made)
    return made.encode()


@pytest.mark.parametrize("vector", VECTORS["attestations"])
def test_vectors_of_frames(vector: dict[str, Any]) -> None:
    here = channel(vector["channel"], 0xFFFF)
    witnessed = check_chunk(bytes.fromhex(vector["witnessed_frame"]), here, witnessed=True)
    assert (witnessed.producer, witnessed.member) == (PRODUCER_ID, MEMBER_ID)
    assert witnessed.attested.encode().hex() == vector["attested"]
    assert witnessed.message_hash.hex() == vector["message_hash"]
    assert witnessed.chunk == vector["chunk"]
    submitted = check_chunk(bytes.fromhex(vector["submitted_frame"]), here, witnessed=False)
    assert (submitted.producer, submitted.member) == (PRODUCER_ID, b"")
    assert submitted.message_hash == witnessed.message_hash
    assert submitted.attested == witnessed.attested
    made = sign(PRODUCER, keccak256(bytes.fromhex(vector["attested"])))
    assert made.hex() == vector["signature"]
    assert sign(MEMBER, witnessed.message_hash).hex() == vector["witness"]


@pytest.mark.parametrize("vector", VECTORS["merkle"], ids=lambda vector: len(vector["chunks"]))
def test_vectors_of_frames_under_a_merkle_root(vector: dict[str, Any]) -> None:
    count = len(vector["chunks"])
    here = channel(vector["channel"], count, Attesting.MERKLE)
    data = bytes.fromhex(vector["witnessed_frame_of_last"])
    for _ in range(2):  # the second time from memory
        found = check_chunk(data, here, witnessed=True)
        assert (found.producer, found.member) == (PRODUCER_ID, MEMBER_ID)
        assert found.attested == decode_attested(bytes.fromhex(vector["attested"]))
        assert (found.chunk, found.attested.chunk) == (count - 1, WHOLE)


@given(st.data())
def test_a_changed_byte_of_a_witnessed_frame_clears_producer_or_member(data: st.DataObject) -> None:
    whole = bytearray(frame())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    try:
        found = check_chunk(bytes(whole), CHANNEL, witnessed=True)
    except RemoteError:
        return
    # The producer signed neither the witness nor its own signature; the member signed both parts.
    in_witness = 81 <= place < 146
    assert (found.producer == PRODUCER_ID) == in_witness
    assert found.member != MEMBER_ID


@given(st.binary(max_size=300), st.booleans(), st.sampled_from(list(Attesting)))
def test_any_bytes_are_a_strangers_chunk_or_refused(
    data: bytes, witnessed: bool, attesting: Attesting
) -> None:
    for start in (data, b"abcd\x00\x07\x00\x03" + data):
        try:
            found = check_chunk(start, channel(7, 5, attesting), witnessed=witnessed)
        except RemoteError:
            continue
        assert len(found.producer) == 20
        assert found.producer != PRODUCER_ID


def test_a_chunk_of_another_channel_is_refused() -> None:
    with pytest.raises(RemoteError, match="a chunk of channel 7 on channel 8"):
        check_chunk(frame(), channel(8, 48), witnessed=True)


@pytest.mark.parametrize("index", [48, 49, 0xFFFE, WHOLE])
def test_a_chunk_beyond_the_last_is_refused(index: int) -> None:
    with pytest.raises(RemoteError, match=f"chunk {index} of 48"):
        check_chunk(frame(index), CHANNEL, witnessed=True)


def test_a_chunk_that_is_too_long_for_the_channel_is_refused() -> None:
    longest = CHANNEL.max_chunk()
    assert check_chunk(frame(chunk=bytes(longest)), CHANNEL, witnessed=True).chunk == 3
    with pytest.raises(RemoteError, match="this channel has"):
        check_chunk(frame(chunk=bytes(longest + 1)), CHANNEL, witnessed=True)


def test_a_frame_with_a_witness_is_none_without_and_the_other_way_round() -> None:
    # Read the wrong way, 65 bytes change sides between witness and chunk.
    assert check_chunk(frame(), CHANNEL, witnessed=False).producer != PRODUCER_ID
    long = frame(chunk=bytes(range(200)), witness=False)
    try:
        found = check_chunk(long, CHANNEL, witnessed=True)
    except RemoteError:
        return
    assert found.producer != PRODUCER_ID


MERKLE = channel(7, 5, Attesting.MERKLE)


def test_every_chunk_under_a_root_names_the_producer() -> None:
    for index in range(5):
        found = check_chunk(merkle_frame(index), MERKLE, witnessed=False)
        assert (found.producer, found.chunk) == (PRODUCER_ID, index)


def at_another_index(made: Frame) -> Frame:
    moved = msgspec.structs.replace(made.attestation, chunk=1)
    return msgspec.structs.replace(made, attestation=moved)


def with_a_wrong_sibling(made: Frame) -> Frame:
    return msgspec.structs.replace(made, proof=(bytes(32), *made.proof[1:]))


def with_siblings_in_another_order(made: Frame) -> Frame:
    return msgspec.structs.replace(made, proof=made.proof[::-1])


def with_another_chunk(made: Frame) -> Frame:
    return msgspec.structs.replace(made, chunk=b"\x07" * 9)


@pytest.mark.parametrize(
    "change",
    [at_another_index, with_a_wrong_sibling, with_siblings_in_another_order, with_another_chunk],
)
def test_what_a_root_does_not_cover_names_a_stranger_or_nobody(
    change: Callable[[Frame], Frame],
) -> None:
    check_chunk(merkle_frame(0), MERKLE, witnessed=False)  # so that the root is in memory
    try:
        found = check_chunk(merkle_frame(0, change=change), MERKLE, witnessed=False)
    except RemoteError:
        return
    assert found.producer != PRODUCER_ID


@pytest.mark.parametrize("index", [5, 6, 7, WHOLE])
def test_a_leaf_that_fills_the_tree_is_refused_as_a_chunk(index: int) -> None:
    def moved(made: Frame) -> Frame:
        return msgspec.structs.replace(
            made, attestation=msgspec.structs.replace(made.attestation, chunk=index)
        )

    with pytest.raises(RemoteError, match=f"chunk {index} of 5"):
        check_chunk(merkle_frame(4, change=moved), MERKLE, witnessed=False)


def test_the_signature_of_a_root_is_none_of_a_chunk_and_the_other_way_round() -> None:
    for data, here in ((merkle_frame(0), channel(7, 5)), (frame(), MERKLE)):
        try:
            found = check_chunk(data, here, witnessed=False)
        except RemoteError:
            continue
        assert found.producer != PRODUCER_ID


# Acknowledgements


@pytest.mark.parametrize("vector", VECTORS["acknowledgements"])
def test_vectors_of_acknowledgements(vector: dict[str, Any]) -> None:
    found = decode_acknowledgement(bytes.fromhex(vector["wire"]))
    assert check_acknowledgement(found) == MEMBER_ID
    assert sign(MEMBER, keccak256(found.signed_part())).hex() == vector["signature"]


def acknowledgement() -> Acknowledgement:
    given = Acknowledgement(b"abcd", 3, 9, 1_700_000_001, PRODUCER_ID)
    signed = sign(MEMBER, keccak256(given.signed_part()))
    return msgspec.structs.replace(given, signature=signed)


@given(st.integers(0, 96), st.integers(1, 255))
def test_a_changed_byte_of_an_acknowledgement_clears_its_member(place: int, change: int) -> None:
    data = bytearray(acknowledgement().encode())
    data[place] ^= change
    try:
        assert check_acknowledgement(decode_acknowledgement(bytes(data))) != MEMBER_ID
    except RemoteError:
        return


def test_an_unsigned_acknowledgement_is_nobodys() -> None:
    with pytest.raises(RemoteError):
        check_acknowledgement(msgspec.structs.replace(acknowledgement(), signature=b""))


# No signature passes for one of another kind


def signed_material() -> dict[str, bytes]:
    """What each kind signs, of one key and as alike as the formats allow."""
    attested, _ = attested_chunk()
    return {
        "attestation": attested.encode(),
        "root": msgspec.structs.replace(attested, chunk=WHOLE).encode(),
        "witness": frame(witness=False),
        "witness of the shortest frame": frame(chunk=b"\0", witness=False),
        "acknowledgement": acknowledgement().signed_part(),
    }


def test_a_signature_of_one_kind_is_none_of_another() -> None:
    material = signed_material()
    for kind, data in material.items():
        signed = sign(MEMBER, keccak256(data))
        for other, claimed in material.items():
            try:
                signer = recover(keccak256(claimed), signed)
            except RemoteError:
                signer = b""
            assert (signer == MEMBER_ID) == (kind == other)


@given(st.binary(min_size=52, max_size=52), st.binary(min_size=32, max_size=32))
def test_what_the_kinds_sign_differs_in_length_whatever_it_says(head: bytes, ack: bytes) -> None:
    attested = decode_attested(head)
    shortest = Frame(attestation_of(attested, 0, bytes(65)), b"", (), b"\0").encode()
    given_ack = decode_acknowledgement(ack + bytes(65))
    lengths = [len(attested.encode()), len(given_ack.signed_part()), len(shortest)]
    assert lengths == [52, 32, 82]


# Stake


@pytest.mark.parametrize(
    ("chunk", "per_byte", "size"),
    [
        (3, 1, 100 + 81),  # a chunk and its attestation
        (3, 5, 5 * (100 + 81)),
        (WHOLE, 1, 48 * (100 + 81)),
        (WHOLE, 5, 48 * 5 * (100 + 81)),
    ],
)
def test_an_attestation_occupies_stake_for_chunks_and_attestations(
    chunk: int, per_byte: int, size: int
) -> None:
    attested = Attested(b"abcd", 7, chunk, 0, 100, 1000, bytes(32))
    assert stake_of(attested, 48, per_byte) == (1000, 1000 + size)
