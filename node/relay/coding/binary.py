"""Coding over GF(2^8) and GF(2^16): systematic, and Rabin's dispersal.

A chunk over GF(2^16) holds the high bytes of its elements, then the low bytes.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache

import numpy as np

from bruit.node.relay.coding import frame
from bruit.node.relay.coding.bitmaps import maps_of_matrix
from bruit.node.relay.coding.fields import Elements, binary_field
from bruit.node.relay.coding.kernels import Addresses, Kernel, Program, program
from bruit.node.relay.coding.matrices import (
    Recovery,
    cauchy_rows,
    vandermonde_inverse,
    vandermonde_rows,
)
from bruit.node.relay.coding.memory import UnfilledBytes, address, addresses, consecutive, planes_of

# Larger matrices are made a block of rows at a time, anew for every message: one of
# 32,768×32,768 would take gigabytes. A block over GF(2^16) is 2 MiB of maps, and four times
# that as the tables of the kernels without GFNI; guess.
BLOCK_COEFFICIENTS = 1 << 16
# Larger ones are not remembered; 128 data chunks and 128 others make as many. Guess.
KEPT_COEFFICIENTS = 1 << 14
LINE = 64  # bytes of a line of the cache
# Bytes of a plane from which on a message is rebuilt in its place: the most columns that a
# kernel computes at a time.
IN_PLACE = 128
# Generators and inverses that are remembered by the process, the least recently used forgotten
# first. One of 32+16 chunks takes 4 KiB; 64 of the largest, over GF(2^16), 32 MiB. Guess.
KEPT_PROGRAMS = 64

Blocks = Iterable[tuple[int, Program]]  # rows of a matrix: how many, and their program


class BinaryCode:
    """What the two modes share: the field, the kernel and the shape of chunks."""

    def __init__(self, min_chunks: int, num_chunks: int, bits: int, kernel: Kernel | None) -> None:
        self.min_chunks = min_chunks
        self.num_chunks = num_chunks
        self.bits = bits
        self.planes = bits // 8
        self.kernel = kernel

    def chunk_length(self, message_length: int) -> int:
        return frame.chunk_length(message_length, self.planes, self.min_chunks)

    def max_chunk_length(self, message_length: int) -> int:
        return self.chunk_length(message_length)

    def fresh_chunks(self, count: int, length: int) -> tuple[list[memoryview], Addresses]:
        """So many chunks to be written: read-only views, and addresses.

        They begin on lines of the cache, and an odd number of lines apart: at a distance
        near a power of two they would fall into the same few sets of it.
        """
        distance = (-(-length // LINE) | 1) * LINE
        memory = np.empty(count * distance + LINE, np.uint8)
        view = memory.data.toreadonly()
        first = address(view)
        skipped = -first % LINE
        chunks = [
            view[start : start + length]
            for start in range(skipped, skipped + count * distance, distance)
        ]
        return chunks, consecutive(first + skipped, count, distance)

    def common_length(self, chunks: Mapping[int, memoryview]) -> int:
        return frame.common_length(chunks, self.planes, self.min_chunks)


class Systematic(BinaryCode):
    """The first k chunks are the frame itself."""

    def encode(self, message: bytes | memoryview) -> list[memoryview]:
        k, parity = self.min_chunks, self.num_chunks - self.min_chunks
        length = self.chunk_length(len(message))
        padding = k * length - len(message)  # the header included
        view = memoryview(message)
        # Only the chunks that the padding reaches into are copied.
        copied = -(-padding // length)
        head = b"".join(
            (
                frame.header(len(message)),
                bytes(padding - frame.HEADER),
                view[: copied * length - padding],
            )
        )
        head_view = memoryview(head)
        chunks = [head_view[i * length : (i + 1) * length] for i in range(copied)]
        chunks += [
            view[start : start + length]
            for start in range(copied * length - padding, len(message), length)
        ]
        if not parity:
            return chunks
        sources = consecutive(address(message) - padding, k, length)
        sources[:copied] = consecutive(address(head), copied, length)
        coded, targets = self.fresh_chunks(parity, length)
        run(
            programs(parity_blocks, k * parity, k, self.num_chunks, self.bits, self.kernel),
            planes_of(sources, length, self.planes),
            planes_of(targets, length, self.planes),
            length // self.planes,
        )
        return chunks + coded

    def decode(self, chunks: Mapping[int, memoryview]) -> bytes:
        k = self.min_chunks
        length = self.common_length(chunks)
        lost = [index for index in range(k) if index not in chunks]
        if not lost:
            parts = [chunks[index] for index in range(k)]
            return frame.unwrap(parts, length, self.planes, k)
        data = [index for index in range(k) if index in chunks]
        parity = sorted(index for index in chunks if index >= k)[: len(lost)]
        blocks = programs(
            recovery_blocks,
            k * len(lost),
            tuple(lost),
            tuple(data + parity),
            self.bits,
            self.kernel,
        )
        if isinstance(blocks, list) and length >= IN_PLACE * self.planes:
            return self.rebuilt_in_place(chunks, length, lost, data + parity, blocks)
        used = data + parity
        sources = np.array(addresses([chunks[index] for index in used]), np.uint64)
        rebuilt, targets = self.fresh_chunks(len(lost), length)
        run(
            blocks,
            planes_of(sources, length, self.planes),
            planes_of(targets, length, self.planes),
            length // self.planes,
        )
        whole = dict(chunks) | dict(zip(lost, rebuilt, strict=True))
        return frame.unwrap([whole[index] for index in range(k)], length, self.planes, k)

    def rebuilt_in_place(
        self,
        chunks: Mapping[int, memoryview],
        length: int,
        lost: list[int],
        used: list[int],
        blocks: Blocks,
    ) -> bytes:
        """The message, each byte of which is written once, and read where it was written."""
        k = self.min_chunks
        if 0 in chunks:
            head = bytes(chunks[0][: frame.HEADER])
        else:
            head = self.head(chunks, length, used, blocks)
        size = frame.message_length(head, length, self.planes, k)
        padding = k * length - size  # the header included
        front = -(-padding // length)  # chunks that the padding reaches into
        message = UnfilledBytes(size)
        place = message.address - padding  # of the frame, were it all there
        sources = np.array(used, np.uint64) * np.uint64(length) + np.uint64(place)
        targets = np.array(lost, np.uint64) * np.uint64(length) + np.uint64(place)
        elsewhere = []
        for position, index in enumerate(used):
            if front <= index < k:
                start = index * length - padding
                message.view[start : start + length] = chunks[index]
            else:
                elsewhere.append(position)
        sources[elsewhere] = addresses([chunks[used[position]] for position in elsewhere])
        rebuilt: dict[int, memoryview] = {}
        for position, index in enumerate(lost):
            if index >= front:
                break
            apart = np.empty(length, np.uint8)
            targets[position] = address(apart.data)
            rebuilt[index] = apart.data
        run(
            blocks,
            planes_of(sources, length, self.planes),
            planes_of(targets, length, self.planes),
            length // self.planes,
        )
        first = b"".join(rebuilt[i] if i in rebuilt else chunks[i] for i in range(front))
        frame.check_padding(first[frame.HEADER : padding])
        message.view[: len(first) - padding] = first[padding:]
        return message.filled()

    def head(
        self, chunks: Mapping[int, memoryview], length: int, used: list[int], blocks: Blocks
    ) -> bytes:
        """The header, where chunk 0 is lost: the first columns of all lost chunks are rebuilt."""
        planes, column = self.planes, length // self.planes
        starts = [plane * column for plane in range(planes)]
        heads = b"".join(
            [chunks[index][start : start + IN_PLACE] for index in used for start in starts]
        )
        count = sum(index >= self.min_chunks for index in used)  # of parity chunks, as of lost
        rebuilt = np.empty((count, planes, IN_PLACE), np.uint8)
        run(
            blocks,
            consecutive(address(heads), len(used) * planes, IN_PLACE),
            consecutive(address(rebuilt.data), count * planes, IN_PLACE),
            IN_PLACE,
        )
        return rebuilt[0, 0, : frame.HEADER].tobytes()


class Dispersal(BinaryCode):
    """Rabin's: character j of group g of the frame has the coefficient j of every row."""

    def encode(self, message: bytes | memoryview) -> list[memoryview]:
        k, n = self.min_chunks, self.num_chunks
        length = self.chunk_length(len(message))
        whole = frame.wrap(message, k * length)
        rows = k * self.planes
        columns = length // self.planes
        # [character of a group and its planes, group]
        turned = np.ascontiguousarray(np.frombuffer(whole, np.uint8).reshape(columns, rows).T)
        coded, targets = self.fresh_chunks(n, length)
        run(
            programs(dispersal_blocks, k * n, k, n, self.bits, self.kernel),
            consecutive(address(turned.data), rows, columns),
            planes_of(targets, length, self.planes),
            columns,
        )
        return coded

    def decode(self, chunks: Mapping[int, memoryview]) -> bytes:
        k = self.min_chunks
        length = self.common_length(chunks)
        used = sorted(chunks)[:k]
        rows = k * self.planes
        columns = length // self.planes
        sources = np.array(addresses([chunks[index] for index in used]), np.uint64)
        turned = np.empty((rows, columns), np.uint8)
        run(
            programs(gathering_blocks, k * k, tuple(used), self.bits, self.kernel),
            planes_of(sources, length, self.planes),
            consecutive(address(turned.data), rows, columns),
            columns,
        )
        whole = np.ascontiguousarray(turned.T).reshape(-1).data
        parts = [whole[start : start + length] for start in range(0, k * length, length)]
        return frame.unwrap(parts, length, self.planes, k)


# --- matrices, made ready -----------------------------------------------------------


def run(blocks: Blocks, sources: Addresses, targets: Addresses, length: int) -> None:
    """Every block of rows over all sources."""
    done = 0
    for rows, block in blocks:
        block(sources, targets[done : done + rows], length)
        done += rows


def programs(make: Callable[..., Blocks], coefficients: int, *arguments: Hashable) -> Blocks:
    """What ``make`` makes of the arguments: all of it in a list, unless it is too large.

    Small matrices are remembered.
    """
    if coefficients > BLOCK_COEFFICIENTS:
        return make(*arguments)
    if coefficients > KEPT_COEFFICIENTS:
        return list(make(*arguments))
    return remembered(make, *arguments)


@lru_cache(maxsize=KEPT_PROGRAMS)
def remembered(make: Callable[..., Blocks], *arguments: Hashable) -> Blocks:
    return list(make(*arguments))


def in_blocks(
    rows: int, columns: int, bits: int, kernel: Kernel | None, matrix: Callable[[slice], Elements]
) -> Blocks:
    step = max(1, BLOCK_COEFFICIENTS // columns)
    for start in range(0, rows, step):
        maps = maps_of_matrix(bits, matrix(slice(start, start + step)))
        yield len(maps), program(maps, kernel)


def parity_blocks(min_chunks: int, num_chunks: int, bits: int, kernel: Kernel | None) -> Blocks:
    field = binary_field(bits)
    points = np.arange(min_chunks, num_chunks)
    return in_blocks(
        len(points),
        min_chunks,
        bits,
        kernel,
        lambda some: cauchy_rows(field, points[some], min_chunks),
    )


def recovery_blocks(
    lost: tuple[int, ...], used: tuple[int, ...], bits: int, kernel: Kernel | None
) -> Blocks:
    recovery = Recovery(binary_field(bits), np.array(lost), np.array(used))
    return in_blocks(len(lost), len(used), bits, kernel, recovery.rows)


def dispersal_blocks(min_chunks: int, num_chunks: int, bits: int, kernel: Kernel | None) -> Blocks:
    field = binary_field(bits)
    points = np.arange(num_chunks)
    return in_blocks(
        num_chunks,
        min_chunks,
        bits,
        kernel,
        lambda some: vandermonde_rows(field, points[some], min_chunks),
    )


def gathering_blocks(used: tuple[int, ...], bits: int, kernel: Kernel | None) -> Blocks:
    inverse = vandermonde_inverse(binary_field(bits), np.array(used))
    return in_blocks(len(used), len(used), bits, kernel, lambda some: inverse[some])
