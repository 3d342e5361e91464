"""A transaction as it stands in a block, and what can be said of it alone.

Sources: BIP 144 (serialization with witness), BIP 141 (txid and wtxid),
Bitcoin Core ``src/primitives/transaction.h`` and
``src/consensus/tx_check.cpp``.
"""

import struct

import msgspec

from bruit.plugins.bitcoin.compact_size import read_compact_size
from bruit.plugins.bitcoin.merkle import double_sha256
from bruit.topics.errors import RemoteError

MAX_MONEY = 21_000_000 * 100_000_000  # satoshi; src/consensus/amount.h
NULL_OUTPOINT = bytes(32) + b"\xff\xff\xff\xff"  # what a coinbase spends
COINBASE_SCRIPT_SIZES = range(2, 101)  # bytes; tx_check.cpp, "bad-cb-length"

_read_input = struct.Struct("<36sB").unpack_from  # outpoint, first byte of the script's length
_read_output = struct.Struct("<qB").unpack_from  # value, first byte of the script's length


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """One parsed transaction. Sizes are bytes, hashes are in hashing order."""

    txid: bytes
    wtxid: bytes  # equal to txid when there is no witness
    size: int  # with witness
    stripped_size: int  # without witness
    outpoints: list[bytes]  # 36 bytes per input: txid, then 4-byte index
    input_scripts: list[bytes]
    values: list[int]  # satoshi per output, signed and unchecked
    output_scripts: list[bytes]
    witness: bytes  # the serialized stacks of all inputs, b"" when there is none

    @property
    def is_coinbase(self) -> bool:
        return len(self.outpoints) == 1 and self.outpoints[0] == NULL_OUTPOINT


def parse_transaction(data: bytes, start: int) -> Transaction:
    """The transaction that begins at byte ``start`` of ``data``.

    Work and memory are bounded by ``data``: no count is trusted before the
    bytes that it counts are there. Raises RemoteError when it is cut off, has
    no inputs or outputs, or its witness part is malformed or superfluous.
    """
    try:
        return _parse(data, start)
    except (IndexError, struct.error):
        raise RemoteError(f"truncated: the data ends at byte {len(data)}") from None


def _parse(data: bytes, start: int) -> Transaction:
    position = start + 4  # version
    segwit = data[position] == 0
    if segwit:
        flag = data[position + 1]
        if flag == 0:
            raise RemoteError("no inputs")
        if flag != 1:
            raise RemoteError(f"unknown flag {flag:#04x}, only 0x01 (witness) is known")
        position += 2
    body = position

    inputs, position = read_compact_size(data, position)
    if inputs == 0:
        raise RemoteError("no inputs")
    outpoints = []
    input_scripts = []
    for _ in range(inputs):
        outpoint, length = _read_input(data, position)
        position += 37
        if length >= 0xFD:
            length, position = read_compact_size(data, position - 1)
        outpoints.append(outpoint)
        input_scripts.append(data[position : position + length])
        position += length + 4  # sequence

    outputs, position = read_compact_size(data, position)
    if outputs == 0:
        raise RemoteError("no outputs")
    values = []
    output_scripts = []
    for _ in range(outputs):
        value, length = _read_output(data, position)
        position += 9
        if length >= 0xFD:
            length, position = read_compact_size(data, position - 1)
        values.append(value)
        output_scripts.append(data[position : position + length])
        position += length

    witness_start = position
    if segwit:
        position = _skip_witness(data, position, inputs)
    lock_time = position
    end = lock_time + 4
    if end > len(data):
        raise RemoteError(f"truncated: the data ends at byte {len(data)}")

    wtxid = double_sha256(data[start:end])
    txid = wtxid
    if segwit:
        txid = double_sha256(
            data[start : start + 4] + data[body:witness_start] + data[lock_time:end]
        )
    return Transaction(
        txid=txid,
        wtxid=wtxid,
        size=end - start,
        stripped_size=8 + witness_start - body,
        outpoints=outpoints,
        input_scripts=input_scripts,
        values=values,
        output_scripts=output_scripts,
        witness=data[witness_start:lock_time],
    )


def _skip_witness(data: bytes, position: int, inputs: int) -> int:
    """The position after the witness stacks of ``inputs`` inputs."""
    start = position
    for _ in range(inputs):
        items, position = read_compact_size(data, position)
        for _ in range(items):
            length = data[position]
            position += 1
            if length >= 0xFD:
                length, position = read_compact_size(data, position - 1)
            position += length
    if position - start == inputs:  # one zero count per input and nothing else
        raise RemoteError("superfluous witness: flagged, but every stack is empty")
    return position


def check_transaction(transaction: Transaction) -> None:
    """The rules of tx_check.cpp. Raises RemoteError naming the one broken."""
    total = 0
    for index, value in enumerate(transaction.values):
        total += value
        if not 0 <= value <= MAX_MONEY:
            raise RemoteError(f"output {index} has value {value}, not in 0..{MAX_MONEY}")
    if total > MAX_MONEY:
        raise RemoteError(f"outputs sum to {total}, over {MAX_MONEY}")
    outpoints = transaction.outpoints
    if len(outpoints) == 1:
        if outpoints[0] == NULL_OUTPOINT:
            length = len(transaction.input_scripts[0])
            if length not in COINBASE_SCRIPT_SIZES:
                raise RemoteError(f"coinbase script of {length} bytes, not 2..100")
        return
    if len(set(outpoints)) != len(outpoints):
        raise RemoteError("spends one output twice (duplicate inputs)")
    if NULL_OUTPOINT in outpoints:
        raise RemoteError("spends the null output, which only a coinbase may")
