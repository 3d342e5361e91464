"""Any k of n chunks give the message back, in every mode; nothing else does."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.relay.coding import binary, frame, prime
from bruit.node.relay.coding.code import MAX_DISPERSAL, Code, Coding
from bruit.node.relay.coding.kernels import Kernel, supported
from bruit.topics.errors import LocalError, RemoteError
from tests.relay.coding import oracle

# More than 256 chunks are coded over GF(2^16).
SHAPES = [(1, 1), (1, 3), (3, 3), (3, 5), (10, 14), (16, 32), (7, 256), (2, 300), (40, 270)]


def shapes_of(coding: Coding) -> list[tuple[int, int]]:
    return [(k, n) for k, n in SHAPES if coding is not Coding.MOD257 or n <= 256]


@pytest.mark.parametrize("coding", Coding)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_any_min_chunks_of_them_give_the_message_back(coding: Coding, data: st.DataObject) -> None:
    k, n = data.draw(st.sampled_from(shapes_of(coding)))
    message = data.draw(st.binary(max_size=50) | st.integers(0, 5000).map(Random(1).randbytes))
    code = Code(k, n, coding)
    chunks = code.encode(message)
    assert len(chunks) == n
    chosen = data.draw(st.permutations(range(n)))[: data.draw(st.integers(k, n))]
    assert code.decode({index: chunks[index] for index in chosen}) == message


@pytest.mark.parametrize("coding", Coding)
def test_every_choice_of_chunks_of_a_small_code(coding: Coding) -> None:
    message = Random(2).randbytes(1000)
    code = Code(3, 7, coding)
    chunks = code.encode(message)
    for chosen in combinations(range(7), 3):
        assert code.decode({index: chunks[index] for index in chosen}) == message


@pytest.mark.parametrize("coding", Coding)
@pytest.mark.parametrize("message", [b"", b"\0", b"\0" * 100, b"\0\0a", b"a\0\0"])
def test_empty_messages_and_leading_zeros_survive(coding: Coding, message: bytes) -> None:
    for k, n in shapes_of(coding):
        code = Code(k, n, coding)
        chunks = code.encode(message)
        assert code.decode(dict(list(enumerate(chunks))[n - k :])) == message


@pytest.mark.parametrize("coding", Coding)
@pytest.mark.parametrize("kernel", supported())
def test_long_messages_are_rebuilt_in_place(coding: Coding, kernel: Kernel) -> None:
    random = Random(3)
    for k, n in [(1, 2), (2, 4), (10, 14), (100, 260)]:
        if coding is Coding.MOD257 and n > 256:
            continue
        code = Code(k, n, coding, kernel)
        for size in (60_000, k * 4096 - 4, k * 4096 - 3, k * 4097 - 5):
            message = random.randbytes(size)
            chunks = code.encode(message)
            some = random.sample(range(n), k)
            assert code.decode({index: chunks[index] for index in some}) == message
            last = range(n - k, n)
            assert code.decode({index: bytes(chunks[index]) for index in last}) == message


@pytest.mark.parametrize("order", [2**8, 2**16])
def test_systematic_chunks_are_the_products_of_galois(order: int) -> None:
    k, n = (5, 12) if order == 2**8 else (5, 260)
    message = Random(4).randbytes(333)
    chunks = Code(k, n).encode(message)
    unit = 1 if order == 2**8 else 2
    whole = oracle.framed(message, k * unit)
    length = len(whole) // k
    assert [bytes(c) for c in chunks[:k]] == [whole[i * length :][:length] for i in range(k)]
    gf = oracle.field(order)
    rows = [elements(chunk, unit) for chunk in chunks]
    product = oracle.systematic(order, k, n)[: k + 6] @ gf(np.array(rows[:k]))
    assert [list(map(int, row)) for row in product] == rows[: k + 6]


@pytest.mark.parametrize("order", [2**8, 2**16])
def test_dispersed_chunks_are_the_document_s_sums_in_galois(order: int) -> None:
    """Symbol g of chunk i: the sum over j of character j of group g times ENCODER_DATA[i][j]."""
    k, n = (5, 9) if order == 2**8 else (5, 258)
    message = Random(5).randbytes(101)
    chunks = Code(k, n, Coding.IDA).encode(message)
    unit = 1 if order == 2**8 else 2
    groups = np.frombuffer(oracle.framed(message, k * unit), f">u{unit}").reshape(-1, k)
    gf = oracle.field(order)
    product = oracle.dispersal(order, k, n)[:9] @ gf(groups.T.astype(int))
    assert [list(map(int, row)) for row in product] == [elements(c, unit) for c in chunks[:9]]


@pytest.mark.parametrize(("coding", "order"), [(Coding.MOD257, 257), (Coding.MOD65537, 65537)])
def test_chunks_modulo_a_prime_are_the_document_s_sums_in_galois(
    coding: Coding, order: int
) -> None:
    k, n = 5, 40
    message = Random(6).randbytes(4000)
    unit = 1 if order == 257 else 2
    groups = np.frombuffer(oracle.framed(message, k * unit), f">u{unit}").reshape(-1, k)
    product = oracle.dispersal(order, k, n) @ oracle.field(order)(groups.T.astype(int))
    for row, chunk in zip(product, Code(k, n, coding).encode(message), strict=True):
        symbols = [int(symbol) for symbol in row]
        large = [place for place, symbol in enumerate(symbols) if symbol == order - 1]
        low = b"".join((symbol % (order - 1)).to_bytes(unit, "big") for symbol in symbols)
        tail = b"".join(place.to_bytes(4, "big") for place in [*large, len(large)])
        assert bytes(chunk) == low + tail


def elements(chunk: memoryview, unit: int) -> list[int]:
    """Elements of a chunk; over 16 bits all high bytes come first."""
    if unit == 1:
        return list(chunk)
    half = len(chunk) // 2
    return [high << 8 | low for high, low in zip(chunk[:half], chunk[half:], strict=True)]


@pytest.mark.parametrize("order", [257, 65537])
def test_symbols_that_do_not_fit_are_listed_behind_the_others(order: int) -> None:
    code = prime.PrimeCode(2, 4, order)
    symbols = np.array([order - 1, 0, 5, order - 1, order - 1], np.int64)
    chunk = code.pack(symbols)
    assert chunk[-16:].hex() == "00000000000000030000000400000003"
    assert (code.unpack(memoryview(chunk), 0) == symbols).all()


@pytest.mark.parametrize("coding", Coding)
def test_chunks_have_the_length_that_is_announced(coding: Coding) -> None:
    for k, n in shapes_of(coding):
        code = Code(k, n, coding)
        for size in (0, 1, 7, 500, 4001):
            lengths = {len(chunk) for chunk in code.encode(Random(size).randbytes(size))}
            assert min(lengths) >= code.chunk_length(size)
            assert max(lengths) <= code.max_chunk_length(size)
            if coding in (Coding.SYSTEMATIC, Coding.IDA):
                assert lengths == {code.chunk_length(size)} == {code.max_chunk_length(size)}


def test_data_chunks_are_views_of_a_message_that_cannot_change() -> None:
    message = Random(7).randbytes(10_000)
    chunks = Code(4, 6).encode(message)
    assert all(chunk.readonly for chunk in chunks)
    assert all(chunk.obj is message for chunk in chunks[1:4])


@pytest.mark.parametrize("coding", Coding)
def test_chunks_do_not_follow_a_message_that_changes(coding: Coding) -> None:
    message = bytearray(Random(8).randbytes(10_000))
    before = bytes(message)
    code = Code(4, 6, coding)
    for view in (message, memoryview(message), memoryview(message).toreadonly()):
        chunks = code.encode(view)
        message[:] = bytes(10_000)
        assert code.decode(dict(enumerate(chunks[:4]))) == before
        message[:] = before


def test_parts_of_a_buffer_and_wider_elements_are_coded_as_their_bytes() -> None:
    whole = Random(9).randbytes(9000)
    code = Code(3, 5)
    for view in (memoryview(whole)[1000:5000], memoryview(whole).cast("I")):
        chunks = code.encode(view)
        assert code.decode({i: chunks[i] for i in (2, 3, 4)}) == view.tobytes()
    with pytest.raises(LocalError, match="not contiguous"):
        code.encode(memoryview(whole)[::2])


def test_decoding_from_all_data_chunks_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    message = Random(10).randbytes(5000)
    code = Code(5, 9)
    chunks = dict(enumerate(code.encode(message)))

    def fail(*_: object) -> None:
        raise AssertionError("a product was computed")

    monkeypatch.setattr(binary, "run", fail)
    monkeypatch.setattr(binary, "programs", fail)
    assert code.decode(chunks) == message


# --- limits and the caller's mistakes -------------------------------------------------


@pytest.mark.parametrize("coding", Coding)
@pytest.mark.parametrize(("k", "n"), [(0, 1), (-1, 4), (5, 4), (1, 0), (1, 65537)])
def test_impossible_numbers_are_refused(coding: Coding, k: int, n: int) -> None:
    with pytest.raises(LocalError):
        Code(k, n, coding)


def test_numbers_that_one_mode_cannot_have_are_refused() -> None:
    with pytest.raises(LocalError, match="at most 256"):
        Code(4, 257, Coding.MOD257)
    with pytest.raises(LocalError, match="use systematic"):
        Code(MAX_DISPERSAL + 1, MAX_DISPERSAL + 1, Coding.IDA)
    Code(256, 256, Coding.MOD257)


def test_the_most_chunks_there_can_be() -> None:
    message = Random(11).randbytes(500)
    code = Code(20, 65536)
    chunks = code.encode(message)
    some = {index: chunks[index] for index in Random(12).sample(range(65536), 20)}
    assert code.decode(some) == message


def test_matrices_too_large_to_be_kept_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "BLOCK_COEFFICIENTS", 100)
    message = Random(13).randbytes(50_000)
    for coding in (Coding.SYSTEMATIC, Coding.IDA):
        for k, n in [(30, 60), (30, 300), (300, 310)]:
            code = Code(k, n, coding)
            chunks = code.encode(message)
            assert code.decode({index: chunks[index] for index in range(n - k, n)}) == message


def test_a_message_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MAX_MESSAGE", 1000)
    code = Code(2, 3)
    assert len(code.encode(bytes(1000))) == 3
    with pytest.raises(LocalError, match="at most 1000"):
        code.encode(bytes(1001))
    with pytest.raises(LocalError):
        code.chunk_length(-1)


@pytest.mark.parametrize("coding", Coding)
def test_too_few_chunks_and_unknown_ones_are_the_caller_s_fault(coding: Coding) -> None:
    code = Code(3, 5, coding)
    chunks = dict(enumerate(code.encode(b"message")))
    with pytest.raises(LocalError, match="3 are needed"):
        code.decode({0: chunks[0], 4: chunks[4]})
    for index in (-1, 5):
        with pytest.raises(LocalError, match="there are chunks 0 to 4"):
            code.decode({0: chunks[0], 1: chunks[1], index: chunks[2]})


def test_codes_are_values_that_do_not_change() -> None:
    code = Code(2, 3)
    assert code == Code(2, 3) != Code(2, 3, Coding.IDA)
    assert len({code, Code(2, 3)}) == 1
    with pytest.raises(AttributeError):
        code.min_chunks = 1  # type: ignore[misc]


def test_a_kernel_that_the_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bruit.node.relay.coding.code.supported", lambda: (Kernel.PORTABLE,))
    Code(2, 3, kernel=Kernel.PORTABLE)
    with pytest.raises(LocalError, match="avx2"):
        Code(2, 3, kernel=Kernel.AVX2)


# --- memory and threads ------------------------------------------------------------------


def test_an_inverse_is_made_once_for_a_set_of_chunks() -> None:
    binary.remembered.cache_clear()
    code, other = Code(6, 9), Code(6, 9)
    message = Random(14).randbytes(3000)
    chunks = code.encode(message)
    some = {index: chunks[index] for index in (0, 2, 3, 5, 7, 8)}
    turned = dict(reversed(some.items()))
    made = binary.remembered.cache_info().misses
    assert code.decode(some) == other.decode(turned) == message
    assert binary.remembered.cache_info().misses == made + 1
    assert binary.remembered.cache_info().maxsize == binary.KEPT_PROGRAMS


def test_threads_do_not_disturb_each_other() -> None:
    code = Code(12, 20)
    random = Random(15)
    messages = [random.randbytes(random.randrange(200_000)) for _ in range(40)]
    choices = [random.sample(range(20), 12) for _ in messages]

    def there_and_back(message: bytes, chosen: list[int]) -> bytes:
        chunks = code.encode(message)
        return code.decode({index: chunks[index] for index in chosen})

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(there_and_back, messages, choices)) == messages


# --- hostile chunks -----------------------------------------------------------------------


@pytest.mark.parametrize("coding", [Coding.SYSTEMATIC, Coding.IDA])
def test_chunks_of_different_lengths_are_the_sender_s_fault(coding: Coding) -> None:
    code = Code(3, 6, coding)
    for size in (10, 3000):
        chunks = dict(enumerate(code.encode(bytes(size))))
        for index in (0, 2, 5):
            for wrong in (b"", bytes(chunks[index])[:-1], bytes(chunks[index]) + b"\0"):
                with pytest.raises(RemoteError):
                    code.decode(chunks | {index: wrong})


@pytest.mark.parametrize("lost", [(), (0,), (3,), (0, 1)])
def test_a_frame_that_is_wrong_is_the_sender_s_fault(lost: tuple[int, ...]) -> None:
    def chunks_of(whole: bytes) -> dict[int, bytes]:
        """The chunks of any frame, right or wrong."""
        k, n, length = 4, 6, len(whole) // 4
        data = np.frombuffer(whole, np.uint8).reshape(k, length)
        parity = np.zeros((2, length), np.uint8)
        generator = oracle.systematic(2**8, k, n)[k:]
        table = oracle.coefficient_rows(generator)
        gf = oracle.field(2**8)
        products = {c: np.array(gf(np.arange(256)) * gf(c), np.uint8) for row in table for c in row}
        for i, row in enumerate(table):
            for j, c in enumerate(row):
                parity[i] ^= products[c][data[j]]
        rows = [row.tobytes() for row in (*data, *parity)]
        return {index: row for index, row in enumerate(rows) if index not in lost}

    code = Code(4, 6)
    good = oracle.framed(b"a" * 1001, 4)
    assert good[4:7] == bytes(3)
    assert code.decode(chunks_of(good)) == b"a" * 1001
    # A byte more: of the padding that is there, one is then part of the message.
    assert code.decode(chunks_of(b"\0\0\3\xea" + good[4:])) == b"\0" + b"a" * 1001
    for wrong in (
        b"\0\0\3\xed" + good[4:],  # 1005 bytes need longer chunks
        b"\0\0\3\xe8" + good[4:],  # 1000 fit shorter ones
        good[:4] + b"\0\0\1" + good[7:],  # the padding is not zero
        b"\xff\xff\xff\xff" + good[4:],
        b"\4\0\0\1" + good[4:],  # a byte over 64 MiB
        bytes(4) + good[4:],
    ):
        with pytest.raises(RemoteError):
            code.decode(chunks_of(wrong))


@pytest.mark.parametrize("coding", Coding)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_bytes_as_chunks_give_a_message_or_the_sender_s_fault(
    coding: Coding, data: st.DataObject
) -> None:
    k, n = data.draw(st.sampled_from([(1, 1), (1, 3), (3, 5), (10, 14), (2, 300)]))
    if coding is Coding.MOD257:
        n = min(n, 256)
    code = Code(k, n, coding)
    chunks: dict[int, bytes]
    if data.draw(st.booleans()):
        length = data.draw(st.integers(0, 600))
        indices = data.draw(st.permutations(range(n)))[:k]
        chunks = {
            index: data.draw(st.binary(min_size=length, max_size=length)) for index in indices
        }
    else:
        message = data.draw(st.binary(max_size=3000))
        chunks = {index: bytes(chunk) for index, chunk in enumerate(code.encode(message))}
        for _ in range(data.draw(st.integers(1, 3))):
            index = data.draw(st.sampled_from(sorted(chunks)))
            hurt = bytearray(chunks[index])
            place = data.draw(st.integers(0, len(hurt) - 1))
            hurt[place : place + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=2))
            if hurt:
                chunks[index] = bytes(hurt)
    with suppress(RemoteError):
        assert isinstance(code.decode(chunks), bytes)


@pytest.mark.parametrize("order", [257, 65537])
def test_malformed_lists_of_large_symbols_are_the_sender_s_fault(order: int) -> None:
    code = prime.PrimeCode(2, 4, order)
    unit = code.unit
    low = bytes([0] * unit + [1] * unit + [0] * unit)

    def chunk(*positions: int, count: int | None = None) -> memoryview:
        tail = [*positions, len(positions) if count is None else count]
        return memoryview(low + b"".join(number.to_bytes(4, "big") for number in tail))

    assert code.unpack(chunk(0, 2), 0).tolist()[0] == order - 1
    for wrong in (
        chunk(2, 0),  # not rising
        chunk(0, 0),
        chunk(1),  # its low part is not zero
        chunk(3),  # there are three symbols
        chunk(0, count=2**32 - 1),
        chunk(count=1),
        memoryview(b""),
        memoryview(b"\0\0\0"),
        memoryview(b"\0\0\0\0"),
    ):
        with pytest.raises(RemoteError):
            code.unpack(wrong, 0)
