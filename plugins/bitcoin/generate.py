"""Valid regtest blocks of random transactions, for demonstrations and tests.

A generated block passes every check of `BitcoinPlugin` on regtest. Its
signatures are random bytes and its inputs spend nothing real, so a full node
would refuse it.
"""

import struct
from random import Random

from bruit.plugins.bitcoin.block import MAX_BLOCK_WEIGHT, MAX_STRIPPED_SIZE
from bruit.plugins.bitcoin.compact_size import compact_size
from bruit.plugins.bitcoin.merkle import (
    COMMITMENT_PREFIX,
    double_sha256,
    merkle_root,
    witness_commitment,
)
from bruit.plugins.bitcoin.pow import decode_target
from bruit.plugins.bitcoin.script import push_height
from bruit.plugins.bitcoin.transaction import NULL_OUTPOINT
from bruit.topics.errors import LocalError

# How many transactions make a block of about 1 MB (10^6 bytes), by the sizes below.
TRANSACTIONS_PER_MEGABYTE = 3_300

REGTEST_BITS = 0x207FFFFF  # chainparams.cpp, regtest: every second hash meets it
GENESIS_TIME = 1_296_688_602  # seconds; timestamp of the regtest genesis block
BLOCK_INTERVAL = 600  # seconds; chainparams.cpp, nPowTargetSpacing
VERSION = 0x2000_0000  # BIP 9, no deployment signalled
SUBSIDY = 50 * 100_000_000  # satoshi; the first 150 blocks of regtest
DUST = 546  # satoshi; a smaller P2PKH output is not relayed (src/policy/policy.cpp)
MAX_VALUE = 100 * 100_000_000  # satoshi per output; guess
TAG = b"/bruit/"

_SEQUENCE = b"\xfd\xff\xff\xff"  # BIP 125, replaceable
_NO_LOCK_TIME = bytes(4)

# How many inputs and outputs, and how often: guess, near a mean of 300 bytes
# where the 3315 transactions of main block 574200 have 376.
_INPUTS, _INPUT_WEIGHTS = (1, 2, 3, 6), (70, 18, 8, 4)
_OUTPUTS, _OUTPUT_WEIGHTS = (1, 2, 3, 10), (20, 65, 10, 5)

# scriptPubKey around a random payload: prefix, bytes of payload, suffix.
_OUTPUT_FORMS = (
    (b"\x76\xa9\x14", 20, b"\x88\xac"),  # P2PKH
    (b"\xa9\x14", 20, b"\x87"),  # P2SH
    (b"\x00\x14", 20, b""),  # P2WPKH
    (b"\x51\x20", 32, b""),  # P2TR
)


def generate_block(
    rng: Random, transactions: int = TRANSACTIONS_PER_MEGABYTE, *, height: int = 1
) -> bytes:
    """A raw block of ``transactions`` transactions, the coinbase among them.

    The same generator state gives the same bytes. The parent hash is random;
    the timestamp follows from ``height`` at one block per ten minutes.

    Raises LocalError for less than one transaction, more than a block can hold
    (about 4,000), or a height outside 0..2^31-1; ``rng`` may have advanced.
    """
    if transactions < 1:
        raise LocalError(
            f"a block of {transactions} transactions: ask for at least 1, the coinbase"
        )
    height_script = push_height(height)
    previous = rng.randbytes(32)
    extra_nonce = rng.randbytes(8)

    bodies: list[bytes] = []
    txids: list[bytes] = []
    wtxids: list[bytes] = []
    stripped_size = size = 0
    for _ in range(transactions - 1):
        body, stripped = _transaction(rng)
        stripped_size += len(stripped)
        size += len(body)
        # The header and the coinbase take less than 1,000 bytes, 4,000 of weight.
        if stripped_size > MAX_STRIPPED_SIZE - 1_000 or (
            3 * stripped_size + size > MAX_BLOCK_WEIGHT - 4_000
        ):
            raise LocalError(
                f"{transactions} transactions do not fit a block: ask for at most {len(bodies)}"
            )
        bodies.append(body)
        txids.append(double_sha256(stripped))
        wtxids.append(double_sha256(body))

    reserved = bytes(32)
    script = height_script + compact_size(len(extra_nonce)) + extra_nonce + TAG
    commitment = COMMITMENT_PREFIX + witness_commitment(wtxids, reserved)
    core = (
        b"\x01" + NULL_OUTPOINT + _prefixed(script) + b"\xff\xff\xff\xff"
        + b"\x02" + _output(SUBSIDY, b"\x00\x14" + rng.randbytes(20)) + _output(0, commitment)
    )  # fmt: skip
    coinbase, stripped = _assemble(core, b"\x01" + _prefixed(reserved))
    root, _ = merkle_root([double_sha256(stripped), *txids])
    timestamp = GENESIS_TIME + BLOCK_INTERVAL * height
    header = _mine(struct.pack("<i32s32sII", VERSION, previous, root, timestamp, REGTEST_BITS))
    return b"".join((header, compact_size(transactions), coinbase, *bodies))


def _transaction(rng: Random) -> tuple[bytes, bytes]:
    """A random transaction, with and without its witness."""
    inputs = []
    witness = []
    segwit = False
    for _ in range(rng.choices(_INPUTS, _INPUT_WEIGHTS)[0]):
        outpoint = rng.randbytes(32) + rng.randrange(4).to_bytes(4, "little")
        signature = _prefixed(rng.randbytes(71) + b"\x01")  # DER and SIGHASH_ALL
        key = _prefixed(b"\x02" + rng.randbytes(32))
        script, stack = b"", b"\x00"
        form = rng.randrange(3)
        if form == 0:  # P2PKH
            script = signature + key
        elif form == 1:  # P2WPKH
            stack = b"\x02" + signature + key
        else:  # P2TR, spent by key
            stack = b"\x01" + _prefixed(rng.randbytes(64))
        segwit = segwit or form != 0
        inputs.append(outpoint + _prefixed(script) + _SEQUENCE)
        witness.append(stack)
    outputs = []
    for _ in range(rng.choices(_OUTPUTS, _OUTPUT_WEIGHTS)[0]):
        prefix, payload, suffix = rng.choice(_OUTPUT_FORMS)
        outputs.append(
            _output(rng.randrange(DUST, MAX_VALUE), prefix + rng.randbytes(payload) + suffix)
        )
    core = b"".join((compact_size(len(inputs)), *inputs, compact_size(len(outputs)), *outputs))
    return _assemble(core, b"".join(witness) if segwit else b"")


def _assemble(core: bytes, witness: bytes) -> tuple[bytes, bytes]:
    """A transaction from its inputs and outputs, with and without ``witness`` (BIP 144)."""
    version = b"\x02\x00\x00\x00"
    stripped = version + core + _NO_LOCK_TIME
    if not witness:
        return stripped, stripped
    return version + b"\x00\x01" + core + witness + _NO_LOCK_TIME, stripped


def _output(value: int, script: bytes) -> bytes:
    return value.to_bytes(8, "little") + _prefixed(script)


def _prefixed(data: bytes) -> bytes:
    return compact_size(len(data)) + data


def _mine(unsolved: bytes) -> bytes:
    """The 76 bytes ``unsolved`` with the first nonce that meets `REGTEST_BITS`."""
    target = decode_target(REGTEST_BITS)
    nonce = 0
    while True:
        header = unsolved + nonce.to_bytes(4, "little")
        if int.from_bytes(double_sha256(header), "little") <= target:
            return header
        nonce += 1
