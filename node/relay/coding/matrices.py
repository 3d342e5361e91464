"""Generator matrices any k rows of which are independent, and their inverses.

A chunk i stands at the point i of the field, so the points are distinct as long as
there are no more chunks than elements.

**Systematic.** The generator is [I; C]: the first k chunks are the data d_0 … d_(k-1),
and parity chunk x (k ≤ x < n) is the sum over j of d_j / (x - j): C is a Cauchy matrix.

Any k chunks determine the data. Let f(z) be the sum of d_j / (z - j), and
N(z) = f(z)·(z - 0)(z - 1)…(z - (k-1)), a polynomial of degree below k. Its value at a
parity point x is c_x·w_x, with w_x the product of the (x - j) over all j < k, none of
which is zero; at a data point j it is d_j·w_j, with w_j the product over all other data
points. So chunk a is N(a)/w_a for every a < n, the w_a are known and not zero, and k
values of a polynomial of degree below k determine it. This is the statement that every
square part of a Cauchy matrix is invertible, put so that it also gives the inverse
without elimination: Lagrange's interpolation of N from the chunks at hand, S, gives

    c_t = sum over a in S of  c_a · (w_a / A'(a)) · (A(t) / w_t) / (t - a)

where A(t) is the product of the (t - b) over b in S, and A'(a) that of the (a - b) over
the other b in S.

**Rabin's dispersal** ("ida" and "mod P"). Row x is (1, x, x², …, x^(k-1)): chunk x is the
value at x of the polynomial whose coefficients are the data. k rows are a Vandermonde
matrix with distinct points, whose determinant is the product of the differences of
points, so not zero. A Cauchy matrix would need n + k points, which GF(2^8) lacks for
256 chunks.
"""

import numpy as np

from bruit.node.relay.coding.fields import BinaryField, Elements, Field


def cauchy_rows(field: BinaryField, rows: Elements, min_chunks: int) -> Elements:
    """The rows of the systematic generator for these parity chunks."""
    return field.invert(rows[:, None] ^ np.arange(min_chunks)[None, :])


def vandermonde_rows(field: Field, rows: Elements, min_chunks: int) -> Elements:
    """The rows of Rabin's generator for these chunks."""
    matrix = np.ones((len(rows), min_chunks), np.int64)
    for power in range(1, min_chunks):
        matrix[:, power] = field.multiply(matrix[:, power - 1], rows)
    return matrix


class Recovery:
    """How lost data chunks follow from k others: systematic generator only.

    A difference of zero, of a point from itself, has the logarithm 0 in the field's table:
    so products over "the other" points need no exception.
    """

    def __init__(self, field: BinaryField, lost: Elements, used: Elements) -> None:
        from bruit.node.relay.coding.interpolation import log_weights

        self.field = field
        self.lost = lost
        self.used = used
        self.of_lost = np.empty(len(lost), np.int64)  # log of A(t) / w_t
        self.of_used = np.empty(len(used), np.int64)  # log of w_a / A'(a)
        log_weights(field.logs, lost, used, self.of_lost, self.of_used)

    def rows(self, some: slice) -> Elements:
        """The coefficients of these of the lost chunks, in every chunk used."""
        from bruit.node.relay.coding.interpolation import lagrange

        lost = self.lost[some]
        rows = np.empty((len(lost), len(self.used)), np.int64)
        field = self.field
        lagrange(field.logs, field.powers, lost, self.used, self.of_lost[some], self.of_used, rows)
        return rows


def vandermonde_inverse(field: Field, points: Elements) -> Elements:
    """The inverse of the Vandermonde matrix at these distinct points.

    Column i holds the coefficients of the polynomial that is 1 at point i and 0 at the
    others: A(z) / (z - a_i) by synthetic division, over its value at a_i.
    """
    count = len(points)
    zero = np.zeros(1, np.int64)
    master = np.ones(1, np.int64)  # A(z), lowest coefficient first
    for point in points:
        shifted = np.concatenate([zero, master])
        scaled = np.concatenate([field.multiply(master, point), zero])
        master = field.subtract(shifted, scaled)
    inverse = np.empty((count, count), np.int64)
    quotient = np.zeros(count, np.int64)
    value = np.zeros(count, np.int64)  # of each quotient at its point, by Horner
    for power in range(count - 1, -1, -1):
        quotient = field.add(field.multiply(quotient, points), master[power + 1])
        inverse[power] = quotient
        value = field.add(field.multiply(value, points), quotient)
    return field.multiply(inverse, field.invert(value)[None, :])
