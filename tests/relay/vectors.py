"""Test vectors of the relay's wire, made on the slow path: what `vectors.json` must hold.

Byte strings are hexadecimal. Another implementation that reads the inputs must come to the
outputs; `bruit` is checked against the same file.
"""

import json
from pathlib import Path
from typing import Any

from tests.relay.slow_ethereum import address_of_secret, keccak256, sign

FILE = Path(__file__).with_name("vectors.json")
RING = 1 << 256

PRODUCER = keccak256(b"a producer")
MEMBER = keccak256(b"a member")
BLOCK = b"a block"
WHOLE = 0xFFFF

# channel, chunk, timestamp, chunk length, stake offset: ordinary, all lowest, all highest
ATTESTATIONS = [
    (7, 3, 1_700_000_000, 100, 4_096),
    (0, 0, 0, 1, 0),
    (0xFFFF, 0xFFFE, 0xFFFF_FFFF, 333, 0xFFFF_FFFF),
]
# chunk, cluster, timestamp
ACKNOWLEDGEMENTS = [(3, 9, 1_700_000_001), (0, 0, 0), (0xFFFE, 0xFFFF, 0xFFFF_FFFF)]
TREES = [1, 2, 3, 5, 48]  # chunks
CLUSTERS = [1, 2, 3, 5, 8, 13, 4_000, 65_535]


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big")


def chunk_of(index: int, length: int) -> bytes:
    """Bytes that look like nothing else: 0, 1, 2 … from the index on."""
    return bytes((index + at) % 256 for at in range(length))


def attestation(fields: tuple[int, int, int, int, int]) -> dict[str, Any]:
    channel, index, timestamp, length, offset = fields
    message_id, chunk = keccak256(BLOCK)[:4], chunk_of(index, length)
    head = message_id + number(channel, 2) + number(index, 2) + number(timestamp, 4)
    attested = head + number(length, 4) + number(offset, 4) + keccak256(chunk)
    signature = sign(PRODUCER, keccak256(attested))
    wire = head + number(offset, 4) + signature
    message_hash = keccak256(wire + chunk)
    witness = sign(MEMBER, message_hash)
    return {
        "message_id": message_id.hex(),
        "channel": channel,
        "chunk": index,
        "timestamp": timestamp,
        "chunk_length": length,
        "stake_offset": offset,
        "chunk_bytes": chunk.hex(),
        "attested": attested.hex(),
        "signature": signature.hex(),
        "wire": wire.hex(),
        "submitted_frame": (wire + chunk).hex(),
        "message_hash": message_hash.hex(),
        "witness": witness.hex(),
        "witnessed_frame": (wire + witness + chunk).hex(),
    }


def acknowledgement(fields: tuple[int, int, int]) -> dict[str, Any]:
    index, cluster, timestamp = fields
    message_id, producer = keccak256(BLOCK)[:4], address_of_secret(PRODUCER)
    head = message_id + number(index, 2) + number(cluster, 2) + number(timestamp, 4) + producer
    signature = sign(MEMBER, keccak256(head))
    return {
        "message_id": message_id.hex(),
        "chunk": index,
        "cluster": cluster,
        "timestamp": timestamp,
        "producer": producer.hex(),
        "signature": signature.hex(),
        "wire": (head + signature).hex(),
    }


def node(leaves: list[bytes]) -> bytes:
    """The root over a power of two of leaves, from the top down."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return keccak256(b"\x01" + node(leaves[:half]) + node(leaves[half:]))


def proof_of(leaves: list[bytes], index: int) -> list[bytes]:
    """Siblings, the lowest first, from the top down."""
    if len(leaves) == 1:
        return []
    half = len(leaves) // 2
    if index < half:
        return [*proof_of(leaves[:half], index), node(leaves[half:])]
    return [*proof_of(leaves[half:], index - half), node(leaves[:half])]


def leaves_of(hashes: list[bytes]) -> list[bytes]:
    width = 1
    while width < len(hashes):
        width *= 2
    return [keccak256(b"\x00" + each) for each in hashes + [bytes(32)] * (width - len(hashes))]


def tree(count: int) -> dict[str, Any]:
    """A broadcast of ``count`` chunks under one signature; the frame is that of the last chunk."""
    channel, timestamp, length, offset = 9, 1_700_000_000, 50, 77
    message_id, last = keccak256(BLOCK)[:4], count - 1
    leaves = leaves_of([keccak256(chunk_of(index, length)) for index in range(count)])
    root, proof = node(leaves), proof_of(leaves, last)
    when = number(timestamp, 4)
    attested = message_id + number(channel, 2) + number(WHOLE, 2) + when
    attested += number(length, 4) + number(offset, 4) + root
    signature = sign(PRODUCER, keccak256(attested))
    wire = message_id + number(channel, 2) + number(last, 2) + when + number(offset, 4) + signature
    rest = b"".join(proof) + chunk_of(last, length)
    witness = sign(MEMBER, keccak256(wire + rest))
    return {
        "channel": channel,
        "chunks": [chunk_of(index, length).hex() for index in range(count)],
        "root": root.hex(),
        "proof_of_last": [each.hex() for each in proof],
        "attested": attested.hex(),
        "signature": signature.hex(),
        "witnessed_frame_of_last": (wire + witness + rest).hex(),
    }


def options(message_id: bytes, chunk: int, count: int, clusters: list[int]) -> list[int]:
    """By distance on the ring, then by id: every cluster looked at."""
    here = int.from_bytes(keccak256(message_id + number(chunk, 2)), "big")

    def distance(cluster: int) -> int:
        way = abs(int.from_bytes(keccak256(number(cluster, 2)), "big") - here)
        return min(way, RING - way)

    return sorted(clusters, key=lambda cluster: (distance(cluster), cluster))[:count]


def vectors() -> dict[str, Any]:
    """All vectors, as `vectors.json` holds them."""
    return {
        "keys": {
            name: {"secret": secret.hex(), "address": address_of_secret(secret).hex()}
            for name, secret in (("producer", PRODUCER), ("member", MEMBER))
        },
        "block": BLOCK.hex(),
        "message_id": keccak256(BLOCK)[:4].hex(),
        "attestations": [attestation(fields) for fields in ATTESTATIONS],
        "acknowledgements": [acknowledgement(fields) for fields in ACKNOWLEDGEMENTS],
        "merkle": [tree(count) for count in TREES],
        "cluster_options": {
            "clusters": CLUSTERS,
            "count": 3,
            "chunks": [options(keccak256(BLOCK)[:4], chunk, 3, CLUSTERS) for chunk in range(16)],
        },
    }


def as_text() -> str:
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(as_text(), encoding="utf-8")
