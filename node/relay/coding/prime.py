"""Coding modulo a prime, as the Marlin relay document has it.

The frame is read as groups of k characters, of one byte modulo 257 and of two (big-endian)
modulo 65537. Symbol g of chunk i is the sum of the characters of group g times the
coefficients of row i. A symbol may be P-1, which does not fit the character's bytes: a
chunk is the low part of every symbol, then the positions of the symbols that are P-1 in
rising order, then their number, each as 4 bytes big-endian. Without the number it could
not be told where the symbols end.

Products are computed in floating point by numpy's matrix product: exact, since k·(P-1)²
stays below 2^53.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bruit.node.relay.coding import frame
from bruit.node.relay.coding.fields import PrimeField
from bruit.node.relay.coding.matrices import vandermonde_inverse, vandermonde_rows
from bruit.topics.errors import RemoteError

COUNT = 4  # bytes of a position, and of their number
KEPT_INVERSES = 16  # per process, 128 MiB each at the very worst and 8 KiB for 32 chunks; guess
STRIP = 1 << 14  # groups multiplied at a time, to stay in the caches; guess

Matrix = npt.NDArray[np.float64]
Symbols = npt.NDArray[np.int64]


class PrimeCode:
    """Rabin's dispersal modulo 257 or 65537."""

    def __init__(self, min_chunks: int, num_chunks: int, prime: int) -> None:
        self.min_chunks = min_chunks
        self.num_chunks = num_chunks
        self.prime = prime
        self.unit = 1 if prime == 257 else 2  # bytes of a character
        self.dtype = ">u1" if prime == 257 else ">u2"

    def chunk_length(self, message_length: int) -> int:
        return frame.chunk_length(message_length, self.unit, self.min_chunks) + COUNT

    def max_chunk_length(self, message_length: int) -> int:
        length = frame.chunk_length(message_length, self.unit, self.min_chunks)
        return length + length // self.unit * COUNT + COUNT

    def encode(self, message: bytes | memoryview) -> list[memoryview]:
        k = self.min_chunks
        length = frame.chunk_length(len(message), self.unit, k)
        whole = np.frombuffer(frame.wrap(message, k * length), self.dtype).reshape(-1, k)
        symbols = product(generator(self.prime, k, self.num_chunks), whole.T, self.prime)
        return [memoryview(self.pack(row)) for row in symbols]

    def decode(self, chunks: Mapping[int, memoryview]) -> bytes:
        k = self.min_chunks
        used = sorted(chunks)[:k]
        rows = [self.unpack(chunks[index], index) for index in used]
        lengths = {len(row) for row in rows}
        if len(lengths) > 1:
            raise RemoteError(
                f"chunks of one message have {min(lengths)} to {max(lengths)} symbols"
            )
        characters = product(inverse(self.prime, tuple(used)), np.stack(rows), self.prime)
        if (characters == self.prime - 1).any():
            raise RemoteError(f"the chunks give a character {self.prime - 1}, which is none")
        whole = memoryview(characters.T.astype(self.dtype).tobytes())
        length = len(rows[0]) * self.unit
        parts = [whole[start : start + length] for start in range(0, k * length, length)]
        return frame.unwrap(parts, length, self.unit, k)

    def pack(self, symbols: Symbols) -> bytes:
        """A chunk. The low part of P-1 is zero."""
        positions = np.flatnonzero(symbols == self.prime - 1)
        low = symbols.astype(np.uint16).astype(self.dtype)
        return b"".join(
            (
                low.tobytes(),
                positions.astype(">u4").tobytes(),
                len(positions).to_bytes(COUNT, "big"),
            )
        )

    def unpack(self, chunk: memoryview, index: int) -> Symbols:
        count = int.from_bytes(chunk[-COUNT:], "big")
        end = len(chunk) - COUNT * (count + 1)
        most = frame.chunk_length(frame.MAX_MESSAGE, self.unit, self.min_chunks)
        if not 0 < end <= most or end % self.unit:
            raise RemoteError(
                f"chunk {index} of {len(chunk)} bytes cannot hold {count} large symbols"
            )
        symbols = np.frombuffer(chunk[:end], self.dtype).astype(np.int64)
        positions = np.frombuffer(chunk[end : len(chunk) - COUNT], ">u4").astype(np.int64)
        if (np.diff(positions) <= 0).any() or (count and positions[-1] >= len(symbols)):
            raise RemoteError(f"chunk {index}: the positions of large symbols do not rise, or end")
        if symbols[positions].any():
            raise RemoteError(f"chunk {index}: a large symbol has a low part that is not zero")
        symbols[positions] = self.prime - 1
        return symbols


def product(matrix: Matrix, columns: npt.NDArray[np.integer], prime: int) -> Symbols:
    """The matrix times the columns, modulo the prime."""
    result = np.empty((len(matrix), columns.shape[1]), np.int64)
    for start in range(0, columns.shape[1], STRIP):
        strip = columns[:, start : start + STRIP].astype(np.float64)
        result[:, start : start + STRIP] = matrix @ strip
    result %= prime
    return result


@lru_cache(maxsize=KEPT_INVERSES)
def generator(prime: int, min_chunks: int, num_chunks: int) -> Matrix:
    rows = vandermonde_rows(PrimeField(prime), np.arange(num_chunks), min_chunks)
    return rows.astype(np.float64)


@lru_cache(maxsize=KEPT_INVERSES)
def inverse(prime: int, points: tuple[int, ...]) -> Matrix:
    return vandermonde_inverse(PrimeField(prime), np.array(points)).astype(np.float64)
