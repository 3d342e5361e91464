"""The kernels for x86 with vectors: GFNI on 512 and on 256 bits, and AVX2.

Their inner loops are written for LLVM and not in Python, since numba has no vector types.
A panel is some output rows times some vectors of columns. Its sums stay in registers while
a loop runs over all sources, so a byte is loaded once per panel and a sum stored once. A
stripe is the columns of one panel, a block some stripes of all rows.

All that is compiled stands in this file: numba's cache forgets a function only when the
file changes that holds it.
"""

from collections.abc import Callable
from ctypes import memmove
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bruit.node.relay.coding.bitmaps import Maps, nibble_tables
from bruit.node.relay.coding.compiled import compiled
from bruit.node.relay.coding.kernels import Addresses, Kernel, Program
from bruit.node.relay.coding.memory import address, consecutive

BYTE = ir.IntType(8)
INT = ir.IntType(32)
WORD = ir.IntType(64)
LINE = 64  # bytes of a line of the cache
STAGE = 16 << 10  # bytes staged at a time: half of a first cache of 32 KiB

# How far ahead of the stripe at work the sources are fetched into the second cache, in bytes.
# Measured on a Zen 4: encoding 32+16 chunks of 320 KiB that are in no cache is 30 % faster so;
# twice as far makes no difference.
AHEAD = 512

Value = Any  # of llvmlite, which has no types


class Instructions(NamedTuple):
    """What differs between the vector kernels."""

    width: int  # bytes of a register
    vectors: int  # registers of columns in a panel
    rows: tuple[int, ...]  # heights of panels, largest first, the last is 1
    map_size: int  # bytes of a map, made ready
    # (builder, register of a source) -> what maps are applied to
    split: Callable[[Value, Value], list[Value]]
    # (builder, address of a map) -> the map in registers
    load_map: Callable[[Value, Value], list[Value]]
    # (builder, map, what `split` gave) -> register of products
    apply: Callable[[Value, list[Value], list[Value]], Value]

    @property
    def columns(self) -> int:
        """Bytes of every row that a stripe spans."""
        return self.width * self.vectors


def block(instructions: Instructions) -> Any:
    """``block(maps, sources, count, start, stripes, targets, rows, stage)`` in compiled code.

    All arguments are uint64. ``maps`` is the address of all maps: for every panel, for
    every source, those of the panel's rows. ``sources`` and ``targets`` are addresses of
    arrays of addresses, ``count`` and ``rows`` their lengths. ``stripes`` times
    `Instructions.columns` columns from ``start`` on are computed, at least one stripe.

    The sources are first copied to ``stage``, stripe by stripe. Rows whose distance is near
    a power of two, as those of a block of 1 MiB, fall into the same few sets of the first
    cache and push each other out; staged ones do not, and they are aligned.
    """

    def generate(context: Any, builder: Value, signature: Any, arguments: Any) -> Value:
        maps, sources, count, start, stripes, targets, rows, stage = arguments
        fill_stage(builder, instructions, sources, count, start, stripes, stage)
        stripe_size = builder.mul(count, WORD(instructions.columns))
        row: Value = WORD(0)
        for height in instructions.rows:
            before = builder.block
            check = builder.append_basic_block("rows_left")
            body = builder.append_basic_block("panels")
            after = builder.append_basic_block("next_height")
            builder.branch(check)
            builder.position_at_end(check)
            first = builder.phi(WORD)
            first.add_incoming(row, before)
            following = builder.add(first, WORD(height))
            builder.cbranch(builder.icmp_unsigned("<=", following, rows), body, after)
            builder.position_at_end(body)
            # A row has one map for every source, so panels of any height lie end to end.
            panel_maps = builder.add(
                maps, builder.mul(builder.mul(first, count), WORD(instructions.map_size))
            )
            panel_targets = builder.add(targets, builder.mul(first, WORD(8)))
            index, end = counted(builder, stripes)
            staged = builder.add(stage, builder.mul(index, stripe_size))
            place = builder.add(start, builder.mul(index, WORD(instructions.columns)))
            panel(builder, instructions, height, panel_maps, staged, count, place, panel_targets)
            end()
            first.add_incoming(following, builder.block)
            builder.branch(check)
            builder.position_at_end(after)
            row = first
        return context.get_dummy_value()

    def typed(
        typing_context: Any,
        maps: Any,
        sources: Any,
        count: Any,
        start: Any,
        stripes: Any,
        targets: Any,
        rows: Any,
        stage: Any,
    ) -> Any:
        return types.void(*[types.uint64] * 8), generate

    return intrinsic(typed)


def at(builder: Value, address: Value, kind: Value) -> Value:
    return builder.inttoptr(address, kind.as_pointer())


def counted(builder: Value, count: Value) -> tuple[Value, Callable[[], None]]:
    """Begin a loop over 0 … count-1; the second of the pair ends it. It runs at least once."""
    before = builder.block
    body = builder.append_basic_block("loop")
    after = builder.append_basic_block("looped")
    builder.branch(body)
    builder.position_at_end(body)
    index = builder.phi(WORD)
    index.add_incoming(WORD(0), before)

    def end() -> None:
        following = builder.add(index, WORD(1))
        index.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, count), body, after)
        builder.position_at_end(after)

    return index, end


def fill_stage(
    builder: Value,
    instructions: Instructions,
    sources: Value,
    count: Value,
    start: Value,
    stripes: Value,
    stage: Value,
) -> None:
    """Copy the columns of all sources; the columns to come are fetched ahead."""
    columns = instructions.columns
    kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), INT, INT, INT])
    fetch = declared(builder, "llvm.prefetch.p0", kind)
    vector = ir.VectorType(BYTE, instructions.width)
    source, end_sources = counted(builder, count)
    entry = builder.add(sources, builder.mul(source, WORD(8)))
    row = builder.add(builder.load(at(builder, entry, WORD)), start)
    stripe, end_stripes = counted(builder, stripes)
    place = builder.add(row, builder.mul(stripe, WORD(columns)))
    order = builder.add(builder.mul(stripe, count), source)
    staged = builder.add(stage, builder.mul(order, WORD(columns)))
    for offset in range(0, columns, LINE):
        ahead = at(builder, builder.add(place, WORD(AHEAD + offset)), BYTE)
        builder.call(fetch, [ahead, INT(0), INT(2), INT(1)])  # to read; second cache; data
    for offset in range(0, columns, instructions.width):
        loaded = builder.load(at(builder, builder.add(place, WORD(offset)), vector), align=1)
        pointer = at(builder, builder.add(staged, WORD(offset)), vector)
        builder.store(loaded, pointer, align=instructions.width)
    end_stripes()
    end_sources()


def panel(
    builder: Value,
    instructions: Instructions,
    rows: int,
    maps: Value,
    stage: Value,
    count: Value,
    start: Value,
    targets: Value,
) -> None:
    width, vectors = instructions.width, instructions.vectors
    vector = ir.VectorType(BYTE, width)
    before = builder.block
    index, end = counted(builder, count)
    loop = builder.block
    sums = [[builder.phi(vector) for _ in range(vectors)] for _ in range(rows)]
    place = builder.add(stage, builder.mul(index, WORD(instructions.columns)))
    loaded = []
    for i in range(vectors):
        pointer = at(builder, builder.add(place, WORD(i * width)), vector)
        loaded.append(instructions.split(builder, builder.load(pointer, align=width)))
    row_maps = builder.add(maps, builder.mul(index, WORD(rows * instructions.map_size)))
    results = []
    for row in range(rows):
        address = builder.add(row_maps, WORD(row * instructions.map_size))
        ready = instructions.load_map(builder, address)
        for i in range(vectors):
            total = sums[row][i]
            result = builder.xor(total, instructions.apply(builder, ready, loaded[i]))
            total.add_incoming(vector(None), before)
            total.add_incoming(result, loop)
            results.append(result)
    end()
    for row in range(rows):
        entry = builder.add(targets, WORD(8 * row))
        out = builder.add(builder.load(at(builder, entry, WORD)), start)
        for i in range(vectors):
            pointer = at(builder, builder.add(out, WORD(i * width)), vector)
            builder.store(results[row * vectors + i], pointer, align=1)


# --- instructions -------------------------------------------------------------------


def repeated(builder: Value, value: Value, kind: Value, times: int) -> Value:
    """A vector that holds ``value`` so many times."""
    vector = ir.VectorType(kind, times)
    one = builder.insert_element(vector(ir.Undefined), value, INT(0))
    mask = ir.Constant(ir.VectorType(INT, times), [0] * times)
    return builder.shuffle_vector(one, vector(ir.Undefined), mask)


def declared(builder: Value, name: str, kind: Value) -> Value:
    """A function that LLVM itself provides."""
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


def affine(width: int, vectors: int) -> Instructions:
    """GFNI: an instruction applies an 8×8 matrix of bits to every byte of a register."""
    vector = ir.VectorType(BYTE, width)
    kind = ir.FunctionType(vector, [vector, vector, BYTE])
    name = f"llvm.x86.vgf2p8affineqb.{8 * width}"

    def load_map(builder: Value, address: Value) -> list[Value]:
        word = builder.load(builder.inttoptr(address, WORD.as_pointer()))
        return [builder.bitcast(repeated(builder, word, WORD, width // 8), vector)]

    def apply(builder: Value, ready: list[Value], source: list[Value]) -> Value:
        function = declared(builder, name, kind)
        return builder.call(function, [source[0], ready[0], BYTE(0)])

    def split(builder: Value, loaded: Value) -> list[Value]:
        return [loaded]

    return Instructions(width, vectors, (8, 4, 2, 1), 8, split, load_map, apply)


def shuffle(vectors: int) -> Instructions:
    """AVX2: a byte shuffle looks up sixteen values at a time, one for each nibble."""
    width = 32
    vector = ir.VectorType(BYTE, width)
    half = ir.VectorType(BYTE, 16)
    kind = ir.FunctionType(vector, [vector, vector])
    name = "llvm.x86.avx2.pshuf.b"

    def split(builder: Value, loaded: Value) -> list[Value]:
        mask = ir.Constant(vector, [15] * width)
        shifted = builder.lshr(loaded, ir.Constant(vector, [4] * width))
        return [builder.and_(loaded, mask), shifted]

    def load_map(builder: Value, address: Value) -> list[Value]:
        twice = ir.Constant(ir.VectorType(INT, width), [*range(16), *range(16)])
        tables = []
        for offset in (0, 16):
            place = builder.inttoptr(builder.add(address, WORD(offset)), half.as_pointer())
            table = builder.load(place, align=1)
            tables.append(builder.shuffle_vector(table, half(ir.Undefined), twice))
        return tables

    def apply(builder: Value, ready: list[Value], source: list[Value]) -> Value:
        function = declared(builder, name, kind)
        low = builder.call(function, [ready[0], source[0]])
        high = builder.call(function, [ready[1], source[1]])
        return builder.xor(low, high)

    return Instructions(width, vectors, (4, 2, 1), 32, split, load_map, apply)


# --- kernels ------------------------------------------------------------------------

GFNI_512 = affine(64, vectors=2)
GFNI_256 = affine(32, vectors=1)
AVX2 = shuffle(vectors=2)

GFNI_512_COLUMNS = GFNI_512.columns
gfni_512_block = block(GFNI_512)


def _gfni_512(maps: Any, sources: Any, targets: Any, length: Any, memory: Any) -> None:
    count = len(sources)
    most = (len(memory) - LINE) // (count * GFNI_512_COLUMNS)
    stage = (np.uint64(memory.ctypes.data) + np.uint64(LINE - 1)) & ~np.uint64(LINE - 1)
    start = 0
    while start < length:
        stripes = min(most, (length - start) // GFNI_512_COLUMNS)
        if stripes == 0:  # the last stripe overlaps the one before
            start = length - GFNI_512_COLUMNS
            stripes = 1
        gfni_512_block(
            np.uint64(maps.ctypes.data),
            np.uint64(sources.ctypes.data),
            np.uint64(count),
            np.uint64(start),
            np.uint64(stripes),
            np.uint64(targets.ctypes.data),
            np.uint64(len(targets)),
            stage,
        )
        start += stripes * GFNI_512_COLUMNS


GFNI_256_COLUMNS = GFNI_256.columns
gfni_256_block = block(GFNI_256)


def _gfni_256(maps: Any, sources: Any, targets: Any, length: Any, memory: Any) -> None:
    count = len(sources)
    most = (len(memory) - LINE) // (count * GFNI_256_COLUMNS)
    stage = (np.uint64(memory.ctypes.data) + np.uint64(LINE - 1)) & ~np.uint64(LINE - 1)
    start = 0
    while start < length:
        stripes = min(most, (length - start) // GFNI_256_COLUMNS)
        if stripes == 0:  # the last stripe overlaps the one before
            start = length - GFNI_256_COLUMNS
            stripes = 1
        gfni_256_block(
            np.uint64(maps.ctypes.data),
            np.uint64(sources.ctypes.data),
            np.uint64(count),
            np.uint64(start),
            np.uint64(stripes),
            np.uint64(targets.ctypes.data),
            np.uint64(len(targets)),
            stage,
        )
        start += stripes * GFNI_256_COLUMNS


AVX2_COLUMNS = AVX2.columns
avx2_block = block(AVX2)


def _avx2(maps: Any, sources: Any, targets: Any, length: Any, memory: Any) -> None:
    count = len(sources)
    most = (len(memory) - LINE) // (count * AVX2_COLUMNS)
    stage = (np.uint64(memory.ctypes.data) + np.uint64(LINE - 1)) & ~np.uint64(LINE - 1)
    start = 0
    while start < length:
        stripes = min(most, (length - start) // AVX2_COLUMNS)
        if stripes == 0:  # the last stripe overlaps the one before
            start = length - AVX2_COLUMNS
            stripes = 1
        avx2_block(
            np.uint64(maps.ctypes.data),
            np.uint64(sources.ctypes.data),
            np.uint64(count),
            np.uint64(start),
            np.uint64(stripes),
            np.uint64(targets.ctypes.data),
            np.uint64(len(targets)),
            stage,
        )
        start += stripes * AVX2_COLUMNS


Bytes = npt.NDArray[np.uint8]
Multiply = Callable[[Bytes, Addresses, Addresses, int, Bytes], None]


KERNELS: dict[Kernel, tuple[Instructions, Multiply]] = {
    Kernel.GFNI_512: (GFNI_512, _gfni_512),
    Kernel.GFNI_256: (GFNI_256, _gfni_256),
    Kernel.AVX2: (AVX2, _avx2),
}


@cache
def compiled_kernel(kernel: Kernel) -> Multiply:
    return compiled(
        "void(uint8[::1], uint64[::1], uint64[::1], int64, uint8[::1])", KERNELS[kernel][1]
    )


def vector_program(maps: Maps, kernel: Kernel) -> Program:
    """See `kernels.program`."""
    instructions = KERNELS[kernel][0]
    multiply = compiled_kernel(kernel)
    ready = in_panels(instructions, maps)
    columns = instructions.columns  # rows that are shorter are copied

    def run(sources: Addresses, targets: Addresses, length: int) -> None:
        memory = stage_for(len(sources), columns)
        if length >= columns:
            multiply(ready, sources, targets, length, memory)
            return
        inputs = np.zeros((len(sources), columns), np.uint8)
        outputs = np.empty((len(targets), columns), np.uint8)
        wide_sources = consecutive(address(inputs.data), len(sources), columns)
        wide_targets = consecutive(address(outputs.data), len(targets), columns)
        for wide, source in zip(wide_sources.tolist(), sources.tolist(), strict=True):
            memmove(wide, source, length)
        multiply(ready, wide_sources, wide_targets, columns, memory)
        for wide, target in zip(wide_targets.tolist(), targets.tolist(), strict=True):
            memmove(target, wide, length)

    return run


def stage_for(count: int, columns: int) -> Bytes:
    """Where so many sources are staged, with room to begin on a line of the cache.

    It is made here, and not in the kernel, which knows it by its address alone: numba lets go of an
    array after its last mention, and its memory would be somebody else's while the kernel writes.
    """
    stripes = max(1, STAGE // (count * columns))
    return np.empty(stripes * count * columns + LINE, np.uint8)


def in_panels(instructions: Instructions, maps: Maps) -> npt.NDArray[np.uint8]:
    """All maps in the order in which blocks read them: panel, source, row of the panel."""
    rows, inputs = maps.shape
    parts = []
    first = 0
    for height in instructions.rows:
        panels = (rows - first) // height
        if panels:
            some = maps[first : first + panels * height].reshape(panels, height, inputs)
            ordered = np.ascontiguousarray(some.transpose(0, 2, 1)).reshape(-1)
            forms = ordered if instructions.map_size == 8 else nibble_tables(ordered)
            parts.append(forms.view(np.uint8).reshape(-1))
            first += panels * height
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
