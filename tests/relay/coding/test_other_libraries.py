"""The code beside zfec and ISA-L: the same chunks where the matrices agree."""

from random import Random

import numpy as np
import pytest
import zfec

from bruit.node.relay.coding.bitmaps import maps_of_matrix
from bruit.node.relay.coding.code import Code
from bruit.node.relay.coding.kernels import Kernel, program, supported
from tests.relay.coding import oracle

ISAL_HEADER = 80  # bytes that pyeclib writes before every chunk


@pytest.mark.parametrize("kernel", supported())
@pytest.mark.parametrize(("k", "m"), [(10, 4), (16, 16), (32, 16), (32, 32)])
def test_parity_chunks_are_those_of_isal_with_a_cauchy_matrix(
    k: int, m: int, kernel: Kernel
) -> None:
    interface = pytest.importorskip("pyeclib.ec_iface")  # Linux only
    length = 16 * 70  # ISA-L's chunks have a multiple of 16 bytes
    message = Random(1).randbytes(k * length - oracle.HEADER)
    whole = oracle.framed(message, k)
    driver = interface.ECDriver(k=k, m=m, ec_type="isa_l_rs_cauchy")
    theirs = [fragment[ISAL_HEADER:] for fragment in driver.encode(whole)]
    assert [bytes(chunk) for chunk in Code(k, k + m, kernel=kernel).encode(message)] == theirs


@pytest.mark.parametrize("kernel", supported())
def test_the_product_with_the_matrix_of_zfec_is_that_of_zfec(kernel: Kernel) -> None:
    k, n, length = 8, 20, 500
    encoder = zfec.Encoder(k, n)
    units = [bytes(int(i == j) for j in range(k)) for i in range(k)]
    # What zfec makes of the unit matrix is its generator.
    matrix = np.array([list(row) for row in encoder.encode(units)], int)
    data = [Random(i).randbytes(length) for i in range(k)]
    sources = [np.frombuffer(row, np.uint8) for row in data]
    targets = np.zeros((n, length), np.uint8)
    program(maps_of_matrix(8, matrix), kernel)(
        np.array([row.ctypes.data for row in sources], np.uint64),
        targets.ctypes.data + np.arange(n, dtype=np.uint64) * np.uint64(length),
        length,
    )
    assert [row.tobytes() for row in targets] == encoder.encode(data)


def test_a_message_survives_both_libraries_and_ours_alike() -> None:
    k, n = 5, 9
    message = Random(2).randbytes(5 * 320 - oracle.HEADER)
    whole = oracle.framed(message, k)
    pieces = [whole[start : start + 320] for start in range(0, len(whole), 320)]
    chosen = [1, 3, 5, 6, 8]
    theirs = zfec.Encoder(k, n).encode(pieces)
    assert b"".join(zfec.Decoder(k, n).decode([theirs[i] for i in chosen], chosen)) == whole
    ours = Code(k, n).encode(message)
    assert Code(k, n).decode({i: ours[i] for i in chosen}) == message
