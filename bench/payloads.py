"""What is published: random bytes, and a sum to recognise them by, in any order."""

import hashlib
import random
from collections.abc import Iterable

SEED = 6420


def payloads(size: int, count: int) -> list[bytes]:
    """The same ``count`` payloads of ``size`` random bytes each time."""
    rng = random.Random(SEED)
    return [rng.randbytes(size) for _ in range(count)]


def checksum(received: Iterable[bytes]) -> str:
    """Sum of the SHA-256 digests: one payload lost, changed or doubled makes another sum."""
    digests = (hashlib.sha256(payload).digest() for payload in received)
    return f"{sum(int.from_bytes(digest, 'big') for digest in digests):x}"
