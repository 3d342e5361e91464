"""The kernel for any processor: table look-ups that serve eight output rows at once.

One entry of 64 bits holds what eight output rows take from a nibble of an input byte.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bruit.node.relay.coding.bitmaps import Maps, nibble_tables
from bruit.node.relay.coding.compiled import compiled
from bruit.node.relay.coding.kernels import Addresses, Program

GROUP = 8  # output rows in one entry of 64 bits
BLOCK = 1024  # columns summed at a time: 8 KiB of sums, a quarter of a common L1 cache; guess


def _pointer(typing_context: Any, address: Any) -> Any:
    """The bytes at an address, to be indexed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    pointer_type: Any = types.CPointer  # without types of its own
    return pointer_type(types.uint8)(types.uint64), generate


pointer: Any = intrinsic(_pointer)


def portable_program(maps: Maps) -> Program:
    """See `kernels.program`."""
    rows, inputs = maps.shape
    groups = -(-rows // GROUP)
    tables = np.zeros((groups * GROUP, inputs, 32), np.uint8)
    tables[:rows] = nibble_tables(maps)
    # [group, input, nibble] with the eight rows of a group as the bytes of an entry
    packed = tables.reshape(groups, GROUP, inputs, 32).transpose(0, 2, 3, 1)
    entries = np.ascontiguousarray(packed).view(np.uint64)[..., 0]

    def run(sources: Addresses, targets: Addresses, length: int) -> None:
        multiply(entries, sources, targets, length)

    return run


def _multiply(entries: Any, sources: Any, targets: Any, length: int) -> None:
    sums = np.empty(BLOCK, np.uint64)
    for start in range(0, length, BLOCK):
        width = min(BLOCK, length - start)
        for group in range(entries.shape[0]):
            sums[:] = 0
            for source in range(entries.shape[1]):
                column = pointer(sources[source] + np.uint64(start))
                low = entries[group, source, :16]
                high = entries[group, source, 16:]
                for place in range(width):
                    byte = column[place]
                    sums[place] ^= low[byte & 15] ^ high[byte >> 4]
            for row in range(min(GROUP, len(targets) - group * GROUP)):
                out = pointer(targets[group * GROUP + row] + np.uint64(start))
                shift = np.uint64(8 * row)
                for place in range(width):
                    out[place] = sums[place] >> shift


multiply = compiled("void(uint64[:,:,::1], uint64[::1], uint64[::1], int64)", _multiply)
