"""Arithmetic of the finite fields, on numpy arrays of elements.

Two kinds with one interface. `BinaryField` is GF(2^8) or GF(2^16), by logarithms;
`PrimeField` is the integers modulo P. Bulk data never passes through here, only
coefficients: see `kernels` and `prime`.
"""

from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

Elements = npt.NDArray[np.int64]

# x^8+x^4+x^3+x^2+1: the polynomial of ISA-L, zfec, RAID 6 and most Reed-Solomon codes.
POLYNOMIAL_8 = 0x11D
# x^16+x^12+x^3+x+1: the usual polynomial for 16 bits, as in Plank's jerasure and GF-Complete.
POLYNOMIAL_16 = 0x1100B


class Field(Protocol):
    """What the generator matrices and their inverses need of a field."""

    order: int  # number of elements

    def add(self, left: Elements, right: Elements) -> Elements: ...

    def subtract(self, left: Elements, right: Elements) -> Elements: ...

    def multiply(self, left: Elements, right: Elements) -> Elements: ...

    def invert(self, elements: Elements) -> Elements:
        """Reciprocals; there must be no zero among the elements."""
        ...


class BinaryField:
    """GF(2^bits) modulo a primitive polynomial, of which 2 (that is, x) is a generator."""

    def __init__(self, bits: int, polynomial: int) -> None:
        self.bits = bits
        self.order = 1 << bits
        self.polynomial = polynomial
        cycle = self.order - 1  # of the non-zero elements under multiplication by x
        powers = np.empty(cycle, np.int64)
        element = 1
        for exponent in range(cycle):
            powers[exponent] = element
            element <<= 1
            if element & self.order:
                element ^= polynomial
        # Twice over, so that a sum of two logarithms needs no reduction.
        self.powers = np.concatenate([powers, powers])
        self.logs = np.zeros(self.order, np.int64)  # that of 0 is never used
        self.logs[powers] = np.arange(cycle)

    def add(self, left: Elements, right: Elements) -> Elements:
        return left ^ right

    def subtract(self, left: Elements, right: Elements) -> Elements:
        return left ^ right

    def multiply(self, left: Elements, right: Elements) -> Elements:
        product = self.powers[self.logs[left] + self.logs[right]]
        return np.where((left == 0) | (right == 0), 0, product)

    def invert(self, elements: Elements) -> Elements:
        return self.powers[self.order - 1 - self.logs[elements]]

    def from_logs(self, logs: Elements) -> Elements:
        """The elements with these logarithms, which may be any integers."""
        return self.powers[logs % (self.order - 1)]


class PrimeField:
    """The integers modulo ``order``, a prime below 2^31 (products fit 64 bits)."""

    def __init__(self, order: int) -> None:
        self.order = order

    def add(self, left: Elements, right: Elements) -> Elements:
        return (left + right) % self.order

    def subtract(self, left: Elements, right: Elements) -> Elements:
        return (left - right) % self.order

    def multiply(self, left: Elements, right: Elements) -> Elements:
        return left * right % self.order

    def invert(self, elements: Elements) -> Elements:
        result = np.ones_like(elements)  # elements^(order - 2), by Fermat
        for bit in f"{self.order - 2:b}":
            result = result * result % self.order
            if bit == "1":
                result = result * elements % self.order
        return result


@cache
def binary_field(bits: int) -> BinaryField:
    """GF(2^8) or GF(2^16), made once; the second takes some 20 ms."""
    return BinaryField(bits, {8: POLYNOMIAL_8, 16: POLYNOMIAL_16}[bits])
