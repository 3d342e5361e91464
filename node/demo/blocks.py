"""Where the demonstrated block comes from: a file, or our own miner."""

import bz2
import lzma
import random
from pathlib import Path
from typing import IO

from bruit.topics.errors import LocalError

MAX_BLOCK = 4_000_000  # bytes; BIP 141, no block is larger
MAX_TEXT = 2 * MAX_BLOCK + 1024  # bytes of a block in hexadecimal, with line ends


def load_block(path: Path) -> bytes:
    """A block from a raw or hexadecimal file, which may be packed as .bz2 or .xz.

    Raises LocalError where the file cannot be read or is larger than a block can be.
    """
    try:
        with _open(path) as file:
            content = file.read(MAX_TEXT + 1)
    except (OSError, EOFError, lzma.LZMAError) as problem:
        raise LocalError(f"block file {path} cannot be read: {problem}") from None
    try:
        block = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        block = content
    if len(content) > MAX_TEXT or len(block) > MAX_BLOCK:
        raise LocalError(f"block file {path} is larger than any block: at most {MAX_BLOCK} bytes")
    return block


def _open(path: Path) -> IO[bytes]:
    match path.suffix:
        case ".bz2":
            return bz2.open(path, "rb")
        case ".xz":
            return lzma.open(path, "rb")
        case _:
            return path.open("rb")


def tamper_with(block: bytes, rng: random.Random) -> tuple[bytes, int]:
    """The block with one bit of one transaction byte flipped, and where."""
    start = 80 + 9  # behind the header and the longest transaction count
    if len(block) <= start:
        raise LocalError(f"a block of {len(block)} bytes has no transaction to tamper with")
    at = rng.randrange(start, len(block))
    changed = bytearray(block)
    changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed), at
