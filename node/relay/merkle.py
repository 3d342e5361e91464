"""A Merkle tree over chunks, so that one signature attests all of them.

Leaves are Keccak-256 of 0x00 and the chunk's own hash, nodes of 0x01 and their two children
(RFC 6962, §2.1: the prefixes keep a node from passing for a leaf). The lowest level is filled to a
power of two with the leaf of a chunk that does not exist (32 zero bytes), so that all proofs of a
broadcast have the same length.
"""

from collections.abc import Sequence

from bruit.node.relay.keccak import keccak256
from bruit.node.relay.wire import HASH_SIZE

_LEAF, _NODE = b"\x00", b"\x01"
_ABSENT = keccak256(_LEAF, bytes(HASH_SIZE))


def merkle_depth(count: int) -> int:
    """Hashes in a proof of one of ``count`` ≥ 1 chunks."""
    return (count - 1).bit_length()


def merkle_tree(chunk_hashes: Sequence[bytes]) -> list[list[bytes]]:
    """All levels, the leaves first and the root, alone, last. ``chunk_hashes`` ≥ 1."""
    leaves = [keccak256(_LEAF, each) for each in chunk_hashes]
    leaves += [_ABSENT] * ((1 << merkle_depth(len(leaves))) - len(leaves))
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append(
            [keccak256(_NODE, below[at], below[at + 1]) for at in range(0, len(below), 2)]
        )
    return levels


def merkle_proof(tree: Sequence[Sequence[bytes]], index: int) -> tuple[bytes, ...]:
    """The siblings on the way from leaf ``index`` to the root, the lowest first."""
    return tuple(level[(index >> height) ^ 1] for height, level in enumerate(tree[:-1]))


def merkle_root(index: int, chunk_hash: bytes, proof: Sequence[bytes]) -> bytes:
    """The root that a proof leads to, from the hash of chunk ``index``."""
    node = keccak256(_LEAF, chunk_hash)
    for height, sibling in enumerate(proof):
        pair = (sibling, node) if index >> height & 1 else (node, sibling)
        node = keccak256(_NODE, *pair)
    return node
