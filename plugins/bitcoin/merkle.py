"""Merkle roots and the witness commitment.

Sources: Bitcoin Core ``src/consensus/merkle.cpp``; BIP 141, "Commitment
structure". Cost: two SHA-256 per node, n-1 nodes for n leaves.
"""

from collections.abc import Sequence
from hashlib import sha256
from operator import eq

# BIP 141: OP_RETURN, a push of 36 bytes, the four bytes of the commitment header.
COMMITMENT_PREFIX = bytes.fromhex("6a24aa21a9ed")
COMMITMENT_SIZE = len(COMMITMENT_PREFIX) + 32


def double_sha256(data: bytes) -> bytes:
    return sha256(sha256(data).digest()).digest()


def merkle_root(leaves: Sequence[bytes]) -> tuple[bytes, bool]:
    """Root over at least one 32-byte leaf, and whether the tree is mutated.

    An odd row repeats its last hash, so a list that ends in a repeat of its own
    tail has the root of the list without it (CVE-2012-2459). Such a list shows
    as two equal hashes side by side in one row, which no honest block has.
    """
    row = list(leaves)
    mutated = False
    while len(row) > 1:
        mutated = mutated or any(map(eq, row[0::2], row[1::2]))
        if len(row) % 2:
            row.append(row[-1])
        row = [
            sha256(sha256(left + right).digest()).digest()
            for left, right in zip(row[0::2], row[1::2], strict=True)
        ]
    return row[0], mutated


def witness_commitment(wtxids: Sequence[bytes], reserved: bytes) -> bytes:
    """The commitment over the ``wtxids`` of every transaction but the coinbase.

    ``reserved`` is the 32-byte witness reserved value. The coinbase takes part
    as 32 zero bytes (BIP 141).
    """
    root, _ = merkle_root([bytes(32), *wtxids])
    return double_sha256(root + reserved)


def find_commitment(output_scripts: Sequence[bytes]) -> bytes | None:
    """The commitment in a coinbase's output scripts; the last one counts (BIP 141)."""
    for script in reversed(output_scripts):
        if len(script) >= COMMITMENT_SIZE and script.startswith(COMMITMENT_PREFIX):
            return script[len(COMMITMENT_PREFIX) : COMMITMENT_SIZE]
    return None
