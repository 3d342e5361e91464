"""Fields, generators and inverses are those of galois, and any k rows are independent."""

from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest

from bruit.node.relay.coding.fields import (
    POLYNOMIAL_8,
    POLYNOMIAL_16,
    Field,
    PrimeField,
    binary_field,
)
from bruit.node.relay.coding.matrices import (
    Recovery,
    cauchy_rows,
    vandermonde_inverse,
    vandermonde_rows,
)
from tests.relay.coding import oracle

ORDERS = (2**8, 2**16, 257, 65537)


def our_field(order: int) -> Field:
    if order in (257, 65537):
        return PrimeField(order)
    return binary_field(order.bit_length() - 1)


@pytest.mark.parametrize("order", ORDERS)
def test_arithmetic_is_that_of_galois(order: int) -> None:
    ours, gf = our_field(order), oracle.field(order)
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, order, 2000), rng.integers(0, order, 2000)
    left[:3], right[1:4] = 0, 0
    assert (ours.add(left, right) == gf(left) + gf(right)).all()
    assert (ours.subtract(left, right) == gf(left) - gf(right)).all()
    assert (ours.multiply(left, right) == gf(left) * gf(right)).all()
    some = rng.integers(1, order, 2000)
    assert (ours.invert(some) == gf(some) ** -1).all()


@pytest.mark.parametrize(("bits", "polynomial"), [(8, POLYNOMIAL_8), (16, POLYNOMIAL_16)])
def test_two_generates_every_element_but_zero(bits: int, polynomial: int) -> None:
    field = binary_field(bits)
    assert field.polynomial == polynomial
    assert sorted(field.powers[: field.order - 1]) == list(range(1, field.order))


@pytest.mark.parametrize("order", [2**8, 2**16])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 4), (4, 6), (10, 14), (5, 40)])
def test_the_parity_rows_are_the_cauchy_matrix_of_galois(order: int, k: int, n: int) -> None:
    ours = cauchy_rows(binary_field(order.bit_length() - 1), np.arange(k, n), k)
    assert ours.tolist() == oracle.coefficient_rows(oracle.systematic(order, k, n)[k:])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 4), (4, 6), (5, 40)])
def test_the_rows_of_the_dispersal_are_the_powers_of_galois(order: int, k: int, n: int) -> None:
    ours = vandermonde_rows(our_field(order), np.arange(n), k)
    assert ours.tolist() == oracle.coefficient_rows(oracle.dispersal(order, k, n))


@pytest.mark.parametrize("order", [2**8, 2**16])
def test_what_rebuilds_lost_chunks_is_the_inverse_of_galois(order: int) -> None:
    field = binary_field(order.bit_length() - 1)
    random = Random(1)
    for k, n in [(1, 2), (2, 5), (7, 12), (9, 30)]:
        generator = oracle.systematic(order, k, n)
        for _ in range(4):
            used = sorted(random.sample(range(n), k))
            lost = [index for index in range(k) if index not in used]
            inverse = np.linalg.inv(generator[used])
            ours = Recovery(field, np.array(lost, int), np.array(used)).rows(slice(None))
            assert ours.tolist() == oracle.coefficient_rows(inverse[lost])


@pytest.mark.parametrize("order", ORDERS)
def test_the_inverse_of_the_dispersal_is_that_of_galois(order: int) -> None:
    random = Random(2)
    for k, n in [(1, 1), (1, 7), (2, 5), (7, 12), (9, 250)]:
        used = random.sample(range(n), k)
        inverse = np.linalg.inv(oracle.dispersal(order, k, n)[used])
        ours = vandermonde_inverse(our_field(order), np.array(used))
        assert ours.tolist() == oracle.coefficient_rows(inverse)


@pytest.mark.parametrize("generator", [oracle.systematic, oracle.dispersal])
def test_all_choices_of_rows_of_a_small_generator_are_independent(
    generator: Callable[[int, int, int], Any],
) -> None:
    for k in range(1, 5):
        rows = generator(2**8, k, 7)
        for chosen in combinations(range(7), k):
            assert np.linalg.matrix_rank(rows[list(chosen)]) == k


def test_a_large_inverse_is_one() -> None:
    """Checked as a product: galois without compilation would take a while."""
    random = Random(3)
    for order in ORDERS:
        field = our_field(order)
        used = np.array(random.sample(range(order), 60))
        product = np.zeros((60, 60), np.int64)
        generator, inverse = vandermonde_rows(field, used, 60), vandermonde_inverse(field, used)
        for middle in range(60):
            term = field.multiply(generator[:, middle, None], inverse[None, middle, :])
            product = field.add(product, term)
        assert (product == np.eye(60, dtype=int)).all()
