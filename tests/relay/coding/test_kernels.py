"""Every kernel computes the same product, of any shape, and writes nothing else."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.relay.coding.bitmaps import Maps, maps_of_matrix
from bruit.node.relay.coding.compiled import compiled
from bruit.node.relay.coding.kernels import NEEDS, Kernel, program, supported
from tests.relay.coding import oracle

KERNELS = supported()
GUARD = 0xA5  # a byte before and behind every row of output


def bits_of(maps: Maps) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """[row, input, output bit, input bit], as `bitmaps` defines a map."""
    shifts = [[8 * (7 - out) + into for into in range(8)] for out in range(8)]
    return (maps[..., None, None] >> np.array(shifts, np.uint64) & np.uint64(1)).astype(np.int64)


def plain_product(maps: Maps, rows: list[bytes]) -> list[bytes]:
    """By sums of bits."""
    data = np.array([list(row) for row in rows], np.uint8).reshape(len(rows), -1)
    bits = np.unpackbits(data[:, None, :], axis=1, bitorder="little").astype(np.int64)
    out = np.einsum("rkoi,kic->roc", bits_of(maps), bits) & 1
    packed = np.packbits(out.astype(np.uint8), axis=1, bitorder="little")[:, 0, :]
    return [row.tobytes() for row in packed]


def run(kernel: Kernel, maps: Maps, rows: list[bytes], shift: int) -> list[bytes]:
    """The kernel's output; rows lie ``shift`` bytes further apart than they are long."""
    length = len(rows[0])
    ready = program(maps, kernel)
    sources = np.array(bytearray(b"".join(bytes(shift) + row for row in rows) + b"\0"), np.uint8)
    distance = length + 1 + shift
    targets = np.full(len(maps) * distance + 1, GUARD, np.uint8)
    first_source, first_target = sources.ctypes.data + shift, targets.ctypes.data + 1
    ready(
        np.array([first_source + i * (length + shift) for i in range(len(rows))], np.uint64),
        np.array([first_target + i * distance for i in range(len(maps))], np.uint64),
        length,
    )
    apart = targets[1:].reshape(len(maps), distance)
    assert targets[0] == GUARD
    assert (apart[:, length:] == GUARD).all()
    return [row[:length].tobytes() for row in apart]


@pytest.mark.parametrize("kernel", KERNELS)
def test_tails_of_every_length(kernel: Kernel) -> None:
    rng = np.random.default_rng(1)
    maps = rng.integers(0, 2**64, (9, 5), np.uint64)
    for length in [*range(1, 131), 191, 192, 193, 255, 256, 257, 1023, 1025, 5000]:
        rows = [rng.bytes(length) for _ in range(5)]
        assert run(kernel, maps, rows, length % 7) == plain_product(maps, rows), length


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_of_no_bytes_is_left_alone(kernel: Kernel) -> None:
    maps = np.ones((2, 1), np.uint64)
    assert run(kernel, maps, [b""], 3) == [b"", b""]


@pytest.mark.parametrize("kernel", KERNELS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_number_of_rows_and_inputs(kernel: Kernel, data: st.DataObject) -> None:
    outputs = data.draw(st.integers(1, 40))
    inputs = data.draw(st.integers(1, 70))
    length = data.draw(st.integers(1, 700))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    maps = rng.integers(0, 2**64, (outputs, inputs), np.uint64)
    rows = [rng.bytes(length) for _ in range(inputs)]
    assert run(kernel, maps, rows, data.draw(st.integers(0, 65))) == plain_product(maps, rows)


@pytest.mark.parametrize("kernel", KERNELS)
def test_more_inputs_than_the_first_cache_holds(kernel: Kernel) -> None:
    rng = np.random.default_rng(2)
    maps = rng.integers(0, 2**64, (3, 600), np.uint64)
    rows = [rng.bytes(300) for _ in range(600)]
    assert run(kernel, maps, rows, 0) == plain_product(maps, rows)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_product_over_eight_bits_is_that_of_galois(kernel: Kernel) -> None:
    gf = oracle.field(2**8)
    rng = np.random.default_rng(3)
    matrix = rng.integers(0, 256, (5, 6))
    data = rng.integers(0, 256, (6, 130), np.uint8)
    expected = np.array(gf(matrix) @ gf(data), np.uint8)
    rows = [row.tobytes() for row in data]
    assert run(kernel, maps_of_matrix(8, matrix), rows, 0) == [row.tobytes() for row in expected]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_product_over_sixteen_bits_is_that_of_galois(kernel: Kernel) -> None:
    gf = oracle.field(2**16)
    rng = np.random.default_rng(4)
    matrix = rng.integers(0, 2**16, (3, 4))
    data = rng.integers(0, 2**16, (4, 90))
    expected = np.array(gf(matrix) @ gf(data), np.int64)

    def planes(elements: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[bytes]:
        halves = [half for row in elements for half in (row >> 8, row & 255)]
        return [half.astype(np.uint8).tobytes() for half in halves]

    assert run(kernel, maps_of_matrix(16, matrix), planes(data), 0) == planes(expected)


def test_the_portable_kernel_is_always_there() -> None:
    assert KERNELS[-1] is Kernel.PORTABLE
    assert set(NEEDS) == set(Kernel)


def test_importing_the_code_compiles_nothing() -> None:
    script = (
        "import sys, bruit.node.relay.coding.code\n"
        "sys.exit(any(name in sys.modules for name in ('numba', 'llvmlite', 'galois')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_function_that_cannot_be_cached_is_compiled_all_the_same() -> None:
    # numba finds no folder for a function without a file.
    space: dict[str, object] = {}
    exec("def fill(target):\n    target[:] = 7", space)
    function = space["fill"]
    assert callable(function)
    target = np.zeros(3, np.uint8)
    compiled("void(uint8[::1])", function)(target)
    assert target.tolist() == [7, 7, 7]
