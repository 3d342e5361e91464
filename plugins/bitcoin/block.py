"""A raw block: its parser, and the consensus rules that need nothing but the block.

Sources: Bitcoin Core ``src/validation.cpp`` (CheckBlock, CheckWitnessMalleation,
and of ContextualCheckBlock and ConnectBlock what needs no chain), BIP 141.
"""

import struct

import msgspec

from bruit.plugins.bitcoin.compact_size import read_compact_size
from bruit.plugins.bitcoin.merkle import (
    double_sha256,
    find_commitment,
    merkle_root,
    witness_commitment,
)
from bruit.plugins.bitcoin.script import count_sigops, pushed_height
from bruit.plugins.bitcoin.transaction import Transaction, check_transaction, parse_transaction
from bruit.topics.errors import RemoteError

HEADER_SIZE = 80  # bytes

# Bitcoin Core src/consensus/consensus.h.
MAX_BLOCK_SERIALIZED_SIZE = 4_000_000  # bytes
MAX_BLOCK_WEIGHT = 4_000_000
WITNESS_SCALE_FACTOR = 4
MAX_STRIPPED_SIZE = MAX_BLOCK_WEIGHT // WITNESS_SCALE_FACTOR  # bytes
MAX_LEGACY_SIGOPS = 80_000 // WITNESS_SCALE_FACTOR  # MAX_BLOCK_SIGOPS_COST

# A coinbase witness is one stack of one item of 32 bytes (BIP 141).
RESERVED_VALUE_PREFIX = b"\x01\x20"

# BIP 34: below this version the coinbase script says nothing of a height.
HEIGHT_VERSION = 2

_read_header = struct.Struct("<i32s32sIII").unpack_from


class Header(msgspec.Struct, frozen=True):
    """The 80 bytes that are mined. Hashes are in hashing order."""

    hash: bytes
    version: int
    previous: bytes
    merkle_root: bytes
    timestamp: int  # seconds since 1970-01-01 UTC
    bits: int  # compact target
    nonce: int


class Block(msgspec.Struct, frozen=True):
    """A parsed block: well-formed, not yet checked."""

    header: Header
    transactions: list[Transaction]  # never empty
    size: int  # bytes with witness
    stripped_size: int  # bytes without witness

    @property
    def weight(self) -> int:
        """Three times the stripped size plus the full size (BIP 141)."""
        return self.stripped_size * (WITNESS_SCALE_FACTOR - 1) + self.size

    @property
    def height(self) -> int | None:
        """What the coinbase claims (BIP 34); None when it claims nothing."""
        if self.header.version < HEIGHT_VERSION:
            return None
        return pushed_height(self.transactions[0].input_scripts[0])


def block_hash(data: bytes) -> str:
    """Block hash as hex in display order, from a block or its header alone.

    Raises RemoteError when ``data`` is shorter than a header.
    """
    return parse_header(data).hash[::-1].hex()


def parse_header(data: bytes) -> Header:
    """The header at the start of ``data``. Raises RemoteError when it is cut off."""
    if len(data) < HEADER_SIZE:
        raise RemoteError(f"truncated: {len(data)} bytes, a header has {HEADER_SIZE}")
    return Header(double_sha256(data[:HEADER_SIZE]), *_read_header(data))


def parse_block(data: bytes) -> Block:
    """All of ``data`` as one block.

    Raises RemoteError when anything is cut off, left over or malformed.
    """
    header = parse_header(data)
    count, position = read_compact_size(data, HEADER_SIZE)
    if count == 0:
        raise RemoteError("no transactions")
    transactions = []
    stripped_size = position
    for index in range(count):
        try:
            transaction = parse_transaction(data, position)
        except RemoteError as error:
            raise RemoteError(f"transaction {index}: {error}") from None
        transactions.append(transaction)
        position += transaction.size
        stripped_size += transaction.stripped_size
    if position != len(data):
        raise RemoteError(f"{len(data) - position} bytes left over after the last transaction")
    return Block(header, transactions, len(data), stripped_size)


def check_block(block: Block) -> None:
    """Everything but the proof of work. Raises RemoteError naming the broken rule."""
    _check_sizes(block)
    _check_merkle_root(block)
    _check_coinbase(block)
    for index, transaction in enumerate(block.transactions):
        try:
            check_transaction(transaction)
        except RemoteError as error:
            raise RemoteError(f"transaction {index}: {error}") from None
    _check_spends(block)
    _check_sigops(block)
    _check_witness(block)


def _check_sizes(block: Block) -> None:
    if block.stripped_size > MAX_STRIPPED_SIZE:
        raise RemoteError(f"stripped size {block.stripped_size} is over {MAX_STRIPPED_SIZE} bytes")
    if block.weight > MAX_BLOCK_WEIGHT:
        raise RemoteError(f"weight {block.weight} is over {MAX_BLOCK_WEIGHT}")


def _check_merkle_root(block: Block) -> None:
    root, mutated = merkle_root([transaction.txid for transaction in block.transactions])
    claimed = block.header.merkle_root
    if root != claimed:
        raise RemoteError(
            f"merkle root mismatch: the header says {claimed[::-1].hex()}, "
            f"the transactions give {root[::-1].hex()}"
        )
    if mutated:
        raise RemoteError("mutated merkle tree: transactions are repeated (CVE-2012-2459)")


def _check_coinbase(block: Block) -> None:
    if not block.transactions[0].is_coinbase:
        raise RemoteError("the first transaction is not a coinbase")
    for index, transaction in enumerate(block.transactions[1:], 1):
        if transaction.is_coinbase:
            raise RemoteError(f"more than one coinbase: transaction {index} is one too")


def _check_spends(block: Block) -> None:
    """What must hold between the transactions of one block, whatever the chain holds.

    Core finds these against its coin database (ConnectBlock): an output is
    spent once; one made in this block is spent later in it, exists, and is not
    the coinbase's, which matures after 100 blocks.
    """
    transactions = block.transactions
    places = {transaction.txid: place for place, transaction in enumerate(transactions)}
    spent: set[bytes] = set()
    for place, transaction in enumerate(transactions):
        for outpoint in transaction.outpoints:
            if outpoint in spent:
                raise RemoteError(f"transaction {place}: spends an output already spent before it")
            spent.add(outpoint)
            source = places.get(outpoint[:32])
            if source is None:
                continue
            if source >= place:
                raise RemoteError(
                    f"transaction {place}: spends transaction {source}, which comes after it"
                )
            if source == 0:
                raise RemoteError(f"transaction {place}: spends the coinbase of its own block")
            output = int.from_bytes(outpoint[32:], "little")
            if output >= len(transactions[source].values):
                raise RemoteError(
                    f"transaction {place}: spends output {output} of transaction {source}, "
                    "which has no such output"
                )


def _check_sigops(block: Block) -> None:
    sigops = 0
    for transaction in block.transactions:
        sigops += sum(map(count_sigops, transaction.input_scripts))
        sigops += sum(map(count_sigops, transaction.output_scripts))
        if sigops > MAX_LEGACY_SIGOPS:
            raise RemoteError(f"more than {MAX_LEGACY_SIGOPS} legacy signature operations")


def _check_witness(block: Block) -> None:
    coinbase = block.transactions[0]
    commitment = find_commitment(coinbase.output_scripts)
    if commitment is None:
        for index, transaction in enumerate(block.transactions):
            if transaction.witness:
                raise RemoteError(
                    f"witness commitment missing: transaction {index} has unexpected witness data"
                )
        return
    reserved = coinbase.witness[len(RESERVED_VALUE_PREFIX) :]
    if not coinbase.witness.startswith(RESERVED_VALUE_PREFIX) or len(reserved) != 32:
        raise RemoteError(
            "witness commitment without its reserved value: "
            "the coinbase witness is not one item of 32 bytes"
        )
    wtxids = [transaction.wtxid for transaction in block.transactions[1:]]
    computed = witness_commitment(wtxids, reserved)
    if computed != commitment:
        raise RemoteError(
            f"witness commitment mismatch: the coinbase says {commitment.hex()}, "
            f"the transactions give {computed.hex()}"
        )
