"""The inner loop of `bitmaps.nibble_tables`, compiled: every new inverse needs its tables."""

from typing import Any

import numpy as np

from bruit.node.relay.coding.compiled import compiled


def _fill_tables(maps: Any, tables: Any) -> None:
    ones = np.uint64(0x0101010101010101)
    # Brings bit 0 of byte 7-i to bit 56+i; no two of its products meet.
    gather = np.uint64(0x8040201008040201)
    for index in range(len(maps)):
        for half in range(2):
            first = 16 * half
            tables[index, first] = 0
            for bit in range(4):
                picked = maps[index] >> np.uint64(4 * half + bit) & ones
                image = np.uint8(picked * gather >> np.uint64(56))
                for low in range(1 << bit):
                    tables[index, first + (1 << bit) + low] = tables[index, first + low] ^ image


fill_tables = compiled("void(uint64[::1], uint8[:,::1])", _fill_tables)
