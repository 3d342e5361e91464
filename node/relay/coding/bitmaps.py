"""Multiplication by a constant as linear maps of bits, the one thing that kernels compute.

Multiplying by c in GF(2^m) is linear over the bits of the other factor. In GF(2^8) it is
an 8×8 matrix of bits. In GF(2^16) it is a 2×2 block of such matrices, from the high and
the low byte of an element to those of the product. A chunk over GF(2^16) holds the high
bytes of all its elements, then the low bytes: two planes. So a kernel sees rows of bytes
and 8×8 maps between them, and never a field.

A map is a uint64. Row i, the input bits that are summed into bit i of the output, is its
byte 7-i: the form that the instruction vgf2p8affineqb takes.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from bruit.node.relay.coding.fields import Elements, binary_field

Maps = npt.NDArray[np.uint64]  # [output rows, input rows]


@cache
def maps_of_elements(bits: int) -> Maps:
    """For every element of GF(2^bits) its maps: [element, output plane, input plane]."""
    field = binary_field(bits)
    planes = bits // 8
    elements = np.arange(field.order)
    maps = np.zeros((field.order, planes, planes), np.uint64)
    for in_bit in range(bits):
        image = field.multiply(elements, np.asarray(1 << in_bit))
        for out_bit in range(bits):
            bit = (image >> out_bit & 1).astype(np.uint64)
            place = 8 * (7 - out_bit % 8) + in_bit % 8
            # The high byte is plane 0.
            plane = planes - 1 - out_bit // 8, planes - 1 - in_bit // 8
            maps[:, *plane] |= bit << np.uint64(place)
    return maps


def maps_of_matrix(bits: int, matrix: Elements) -> Maps:
    """The maps of a matrix of coefficients, each spread over its planes."""
    planes = bits // 8
    rows, columns = matrix.shape
    maps = maps_of_elements(bits)[matrix].transpose(0, 2, 1, 3)
    return np.ascontiguousarray(maps.reshape(rows * planes, columns * planes))


def nibble_tables(maps: Maps) -> npt.NDArray[np.uint8]:
    """For every map its values at 0 … 15, then at 0, 16, … 240: 32 bytes each."""
    from bruit.node.relay.coding.tables import fill_tables

    tables = np.empty((maps.size, 32), np.uint8)
    fill_tables(np.ascontiguousarray(maps).reshape(-1), tables)
    return tables.reshape(*maps.shape, 32)
