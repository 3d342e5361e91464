"""The fields and generators as galois has them, written down without our code.

``compile="python-calculate"``: compiling each field for speed takes seconds.
"""

from functools import cache
from typing import Any

import galois
import numpy as np

HEADER = 4  # bytes of the length in the frame


@cache
def field(order: int) -> Any:
    polynomials = {2**8: 0x11D, 2**16: 0x1100B}
    if order in polynomials:
        polynomial = galois.Poly.Int(polynomials[order])
        return galois.GF(order, irreducible_poly=polynomial, compile="python-calculate")
    return galois.GF(order, compile="python-calculate")


def systematic(order: int, k: int, n: int) -> Any:
    """[I; 1/(x - y)]."""
    gf = field(order)
    points = gf(np.arange(n))
    parity = gf(np.ones((n - k, k), int)) / (points[k:, None] - points[None, :k])
    return gf(np.vstack([gf.Identity(k), parity]))


def dispersal(order: int, k: int, n: int) -> Any:
    """x^j, with 0^0 = 1."""
    gf = field(order)
    return gf(np.arange(n))[:, None] ** np.arange(k)[None, :]


def framed(message: bytes, multiple: int) -> bytes:
    size = -(-(HEADER + len(message)) // multiple) * multiple
    return len(message).to_bytes(HEADER, "big") + message.rjust(size - HEADER, b"\0")


def coefficient_rows(elements: Any) -> list[list[int]]:
    return [[int(element) for element in row] for row in elements]
