"""Published vectors, and what any bytes at all do to the parsers."""

import struct
from hashlib import sha256
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bruit.plugins.bitcoin import BitcoinConfig, BitcoinPlugin, block_hash, generate_block
from bruit.plugins.bitcoin.block import parse_block, parse_header
from bruit.plugins.bitcoin.compact_size import MAX_SIZE, compact_size, read_compact_size
from bruit.plugins.bitcoin.merkle import find_commitment, merkle_root, witness_commitment
from bruit.plugins.bitcoin.pow import POW_LIMITS, Network, check_proof_of_work, decode_target
from bruit.plugins.bitcoin.script import MAX_HEIGHT, count_sigops, push_height, pushed_height
from bruit.plugins.bitcoin.transaction import parse_transaction
from bruit.topics.errors import LocalError, RemoteError
from bruit.topics.validation import Verdict

REGTEST = BitcoinPlugin(BitcoinConfig(network="regtest"))
SMALL = generate_block(Random(11), 5)

GENESIS_HEADER = bytes.fromhex(
    "01000000" + "00" * 32 + "3ba3edfd7a7b12b27ac72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a"
    "29ab5f49ffff001d1dac2b7c"
)


def dsha(data: bytes) -> bytes:
    return sha256(sha256(data).digest()).digest()


# -- header


def test_the_genesis_header_has_its_known_fields() -> None:
    header = parse_header(GENESIS_HEADER)
    assert header.version == 1
    assert header.previous == bytes(32)
    assert header.merkle_root[::-1].hex() == (
        "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b"
    )
    assert header.timestamp == 1231006505
    assert header.bits == 0x1D00FFFF
    assert header.nonce == 2083236893


def test_the_block_hash_is_in_display_order() -> None:
    assert block_hash(GENESIS_HEADER) == (
        "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"
    )


def test_the_hash_of_less_than_a_header_is_refused() -> None:
    with pytest.raises(RemoteError, match="79 bytes"):
        block_hash(GENESIS_HEADER[:79])


# -- proof of work


# Bitcoin Core src/test/arith_uint256_tests.cpp, bignum_SetCompact.
@pytest.mark.parametrize(
    ("bits", "target"),
    [
        (0x01123456, 0x12),
        (0x02008000, 0x80),
        (0x02123456, 0x1234),
        (0x03123456, 0x123456),
        (0x04123456, 0x12345600),
        (0x05009234, 0x92340000),
        (0x20123456, 0x123456 << 232),
    ],
)
def test_compact_targets_decode_as_published(bits: int, target: int) -> None:
    assert decode_target(bits) == target


@pytest.mark.parametrize(
    "bits",
    [
        *(0x0, 0x00123456, 0x01003456, 0x02000056, 0x03000000, 0x04000000),  # zero
        *(0x00923456, 0x01803456, 0x02800056, 0x03800000, 0x04800000),  # zero, sign set
        *(0x01FEDCBA, 0x04923456),  # negative
        *(0xFF123456, 0x23000001, 0x22000100, 0x21010000),  # 2^256 and more
    ],
)
def test_compact_values_that_are_no_target_are_refused(bits: int) -> None:
    with pytest.raises(RemoteError, match=f"nBits {bits:08x}"):
        decode_target(bits)


# The compact form of each powLimit, as in the genesis blocks of chainparams.cpp.
@pytest.mark.parametrize(
    ("network", "easiest", "too_easy"),
    [
        ("main", 0x1D00FFFF, 0x1D010000),
        ("test", 0x1D00FFFF, 0x1D010000),
        ("signet", 0x1E0377AE, 0x1E0377AF),
        ("regtest", 0x207FFFFF, 0x21008000),
    ],
)
def test_each_network_has_its_easiest_target(network: Network, easiest: int, too_easy: int) -> None:
    check_proof_of_work(bytes(32), easiest, network)
    with pytest.raises(RemoteError, match="easier than the limit"):
        check_proof_of_work(bytes(32), too_easy, network)


def test_a_hash_equal_to_its_target_meets_it_and_one_more_does_not() -> None:
    target = 0xFFFF << 208
    assert target <= POW_LIMITS["main"]
    check_proof_of_work(target.to_bytes(32, "little"), 0x1D00FFFF, "main")
    with pytest.raises(RemoteError, match="not met"):
        check_proof_of_work((target + 1).to_bytes(32, "little"), 0x1D00FFFF, "main")


# -- Merkle trees


def test_the_merkle_root_of_block_100000_is_as_published() -> None:
    txids = [
        "8c14f0db3df150123e6f3dbbf30f8b955a8249b62ac1d1ff16284aefa3d06d87",
        "fff2525b8931402dd09222c50775608f75787bd2b87e56995a7bdd30f79702c4",
        "6359f0868171b1d194cbee1af2f16ea598ae8fad666d9b012c8ed2b79a236ec4",
        "e9a66845e05d5abc0ad04ec80f774a7e585c6e8db975962d069a522137b80c1d",
    ]
    root, mutated = merkle_root([bytes.fromhex(txid)[::-1] for txid in txids])
    assert root[::-1].hex() == "f3e94742aca4b5ef85488dc37c06c3282295ffec960994b2c0d5ac2a25a95766"
    assert not mutated


def obvious_root(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    pairs = [leaves[i : i + 2] for i in range(0, len(leaves), 2)]
    return obvious_root([dsha(pair[0] + pair[-1]) for pair in pairs])


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40, unique=True))
def test_the_merkle_root_is_that_of_the_obvious_model(leaves: list[bytes]) -> None:
    assert merkle_root(leaves) == (obvious_root(leaves), False)


@pytest.mark.parametrize(
    ("honest", "repeated_tail"), [(3, 1), (5, 1), (6, 2), (7, 1), (10, 2), (12, 4)]
)
def test_a_repeated_tail_has_the_same_root_and_shows(honest: int, repeated_tail: int) -> None:
    leaves = [dsha(bytes([i])) for i in range(honest)]
    root, mutated = merkle_root(leaves)
    assert not mutated
    assert merkle_root(leaves + leaves[-repeated_tail:]) == (root, True)


def test_the_commitment_of_a_block_of_nothing_but_its_coinbase_is_the_known_one() -> None:
    # Every empty block since SegWit carries this output.
    script = bytes.fromhex(
        "6a24aa21a9ede2f61c3f71d1defd3fa999dfa36953755c690689799962b48bebd836974e8cf9"
    )
    assert find_commitment([b"", script, b"\x51"]) == witness_commitment([], bytes(32))


def test_an_output_one_byte_short_is_no_commitment_and_a_longer_one_is() -> None:
    script = bytes.fromhex("6a24aa21a9ed") + bytes(range(32))
    assert find_commitment([script[:-1]]) is None
    assert find_commitment([script + b"more"]) == bytes(range(32))
    assert find_commitment([]) is None


# -- scripts


# (height, push), after the rule of BIP 34 with the one-byte opcodes for 0..16.
@pytest.mark.parametrize(
    ("height", "push"),
    [
        (0, "00"),
        (1, "51"),
        (16, "60"),
        (17, "0111"),
        (127, "017f"),
        (128, "028000"),
        (32767, "02ff7f"),
        (32768, "03008000"),
        (227931, "035b7a03"),  # BIP34Height of the main network
        (8388608, "0400008000"),
        (2147483647, "04ffffff7f"),
    ],
)
def test_heights_are_pushed_as_bip34_says(height: int, push: str) -> None:
    assert push_height(height).hex() == push
    assert pushed_height(bytes.fromhex(push) + b"rest") == height


@pytest.mark.parametrize(
    "script",
    ["", "04", "61", "0101", "020500", "0380", "03ffffff", "050102030405", "4c0111", "04ffffffff"],
)
def test_what_is_no_minimal_push_of_a_height_gives_none(script: str) -> None:
    assert pushed_height(bytes.fromhex(script)) is None


@given(st.integers(0, MAX_HEIGHT), st.binary(max_size=8))
def test_a_pushed_height_reads_back(height: int, rest: bytes) -> None:
    assert pushed_height(push_height(height) + rest) == height


@pytest.mark.parametrize("height", [-1, MAX_HEIGHT + 1])
def test_a_height_that_cannot_be_pushed_is_the_callers_mistake(height: int) -> None:
    with pytest.raises(LocalError):
        push_height(height)


# Sums follow Bitcoin Core src/test/sigopcount_tests.cpp and GetSigOpCount(false).
@pytest.mark.parametrize(
    ("script", "sigops"),
    [
        ("", 0),
        ("4fac", 1),
        ("ab", 0),
        ("ac", 1),
        ("ad", 1),
        ("ae", 20),
        ("af", 20),
        ("b0", 0),
        ("5114" + "00" * 20 + "14" + "00" * 20 + "52ae", 20),
        ("5114" + "00" * 20 + "14" + "00" * 20 + "52ae" + "63ac68", 21),
        ("76a914" + "ac" * 20 + "88ac", 1),
        ("a914" + "ac" * 20 + "87", 0),
        ("ac02ac", 1),  # a push cut off ends the count
        ("ac4c", 1),
        ("4c02acac" + "ac", 1),
        ("4d0200acac" + "ac", 1),
        ("4e02000000acac" + "ac", 1),
        ("4effffffff" + "ac", 0),
    ],
)
def test_signature_operations_are_counted_in_opcodes_only(script: str, sigops: int) -> None:
    assert count_sigops(bytes.fromhex(script)) == sigops


# -- counts


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (0, "00"),
        (252, "fc"),
        (253, "fdfd00"),
        (65535, "fdffff"),
        (65536, "fe00000100"),
        (0x02000000, "fe00000002"),
    ],
)
def test_counts_have_their_published_form(value: int, form: str) -> None:
    assert compact_size(value).hex() == form
    data = b"??" + bytes.fromhex(form)
    assert read_compact_size(data, 2) == (value, len(data))
    assert read_compact_size(data + b"?", 2) == (value, len(data))
    with pytest.raises(RemoteError, match="truncated"):
        read_compact_size(data[:-1], 2)


@pytest.mark.parametrize("value", [-1, MAX_SIZE + 1])
def test_a_count_that_has_no_form_is_the_callers_mistake(value: int) -> None:
    with pytest.raises(LocalError):
        compact_size(value)


@given(st.binary(max_size=12), st.integers(0, 12))
def test_any_bytes_are_a_count_in_its_one_form_or_refused(data: bytes, start: int) -> None:
    try:
        value, end = read_compact_size(data, start)
    except RemoteError:
        return
    assert data[start:end] == compact_size(value)


# -- transactions

scripts = st.one_of(st.binary(max_size=40), st.binary(min_size=253, max_size=300))
stacks = st.lists(scripts, max_size=3)


def prefixed(data: bytes) -> bytes:
    return compact_size(len(data)) + data


@given(
    st.lists(st.tuples(st.binary(min_size=36, max_size=36), scripts, stacks), min_size=1),
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), scripts), min_size=1),
    st.binary(max_size=9),
)
def test_a_serialized_transaction_parses_to_what_it_was_made_of(
    inputs: list[tuple[bytes, bytes, list[bytes]]], outputs: list[tuple[int, bytes]], rest: bytes
) -> None:
    core = compact_size(len(inputs))
    core += b"".join(outpoint + prefixed(script) + b"SEQU" for outpoint, script, _ in inputs)
    core += compact_size(len(outputs))
    core += b"".join(struct.pack("<q", value) + prefixed(script) for value, script in outputs)
    witness = b"".join(
        compact_size(len(stack)) + b"".join(map(prefixed, stack)) for _, _, stack in inputs
    )
    stripped = full = b"VERS" + core + b"LOCK"
    if any(stack for _, _, stack in inputs):
        full = b"VERS\x00\x01" + core + witness + b"LOCK"

    found = parse_transaction(rest + full + rest, len(rest))
    assert found.outpoints == [outpoint for outpoint, _, _ in inputs]
    assert found.input_scripts == [script for _, script, _ in inputs]
    assert found.values == [value for value, _ in outputs]
    assert found.output_scripts == [script for _, script in outputs]
    assert found.witness == (witness if full != stripped else b"")
    assert (found.size, found.stripped_size) == (len(full), len(stripped))
    assert (found.wtxid, found.txid) == (dsha(full), dsha(stripped))


@given(st.binary(max_size=200), st.integers(0, 20))
@example(b"VERS\x00\x01\x00\x00LOCK", 0)
@example(b"VERS\x01" + bytes(36) + b"\xff" * 9, 0)
def test_any_bytes_are_a_transaction_or_refused(data: bytes, start: int) -> None:
    try:
        found = parse_transaction(data, start)
    except RemoteError:
        return
    assert start + found.size <= len(data)


# -- blocks


@given(st.binary(max_size=300))
def test_any_bytes_after_a_header_are_a_block_or_refused(body: bytes) -> None:
    try:
        found = parse_block(GENESIS_HEADER + body)
    except RemoteError:
        return
    assert found.size == len(GENESIS_HEADER + body)


@given(st.binary(max_size=400))
def test_any_bytes_are_rejected_without_a_failure(data: bytes) -> None:
    found = REGTEST.validate("blocks", data)
    assert found.verdict is Verdict.REJECT
    assert found.reason


def test_every_flipped_bit_is_noticed() -> None:
    assert REGTEST.validate("blocks", SMALL).verdict is Verdict.ACCEPT
    # The header but for its Merkle root is free: another value is another block,
    # and about every second one meets the target of regtest.
    free = {*range(0, 36), *range(68, 80)}
    for place in range(len(SMALL)):
        for bit in range(8):
            data = bytearray(SMALL)
            data[place] ^= 1 << bit
            found = REGTEST.validate("blocks", bytes(data))
            if found.verdict is Verdict.ACCEPT:
                assert place in free, place
                assert found.facts["hash"] == dsha(bytes(data[:80]))[::-1].hex()


def test_every_truncation_is_rejected() -> None:
    for end in range(len(SMALL)):
        assert REGTEST.validate("blocks", SMALL[:end]).verdict is Verdict.REJECT


@given(
    st.integers(80, len(SMALL)), st.integers(0, 60), st.one_of(st.just(b""), st.binary(max_size=60))
)
def test_any_other_transactions_under_the_same_header_are_rejected(
    start: int, length: int, patch: bytes
) -> None:
    data = SMALL[:start] + patch + SMALL[start + length :]
    expected = Verdict.ACCEPT if data == SMALL else Verdict.REJECT
    assert REGTEST.validate("blocks", data).verdict is expected


@given(st.integers(80, len(SMALL) - 40), st.integers(1, 400), st.integers(80, len(SMALL)))
def test_pieces_of_the_block_in_another_place_are_rejected(
    start: int, length: int, target: int
) -> None:
    piece = SMALL[start : start + length]
    data = SMALL[:target] + piece + SMALL[target:]
    assert REGTEST.validate("blocks", data).verdict is Verdict.REJECT
