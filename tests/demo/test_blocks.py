"""Where the demonstrated block comes from, and what tampering does to it."""

import bz2
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.demo.blocks import MAX_BLOCK, load_block, tamper_with
from bruit.topics.errors import LocalError

BLOCK = bytes(range(256)) * 4
HEADER = 80  # bytes, Bitcoin developer reference, "Block headers"


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".blk", bytes), (".bz2", bz2.compress), (".xz", lzma.compress), ("", bytes)],
)
@pytest.mark.parametrize(
    "write",
    [bytes, lambda block: block.hex().encode(), lambda block: block.hex().upper().encode() + b"\n"],
    ids=["raw", "hex", "HEX with a line end"],
)
def test_a_block_is_read_from_a_file_however_it_is_written(
    tmp_path: Path,
    suffix: str,
    pack: Callable[[bytes], bytes],
    write: Callable[[bytes], bytes],
) -> None:
    path = tmp_path / f"block{suffix}"
    path.write_bytes(pack(write(BLOCK)))
    assert load_block(path) == BLOCK


def test_hexadecimal_may_run_over_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "block.hex"
    path.write_text("\n".join(BLOCK[at : at + 32].hex() for at in range(0, len(BLOCK), 32)))
    assert load_block(path) == BLOCK


def test_a_block_of_the_largest_size_passes(tmp_path: Path) -> None:
    for name, content in (("raw", bytes(MAX_BLOCK)), ("hex", bytes(MAX_BLOCK).hex().encode())):
        path = tmp_path / name
        path.write_bytes(content)
        assert len(load_block(path)) == MAX_BLOCK


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        ("", bytes(MAX_BLOCK + 1)),
        ("", bytes(MAX_BLOCK + 1).hex().encode()),
        ("", b"00\n" * 5_000_000),
        (".bz2", bz2.compress(bytes(100_000_000))),
    ],
    ids=["raw", "hex", "lines of hex", "bomb"],
)
def test_a_file_that_is_larger_than_any_block_is_refused(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"block{suffix}"
    path.write_bytes(content)
    with pytest.raises(LocalError, match=r"is larger than any block: at most 4000000 bytes"):
        load_block(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("block.xz", b"this is not xz"),
        ("block.bz2", b"this is not bz2"),
        ("block.bz2", bz2.compress(BLOCK)[:-5]),
        ("block.xz", lzma.compress(BLOCK)[:-5]),
    ],
)
def test_a_packed_file_that_does_not_unpack_is_refused_by_its_name(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(LocalError, match=f"block file {path} cannot be read"):
        load_block(path)


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(LocalError, match=f"block file {path} cannot be read"):
            load_block(path)


@given(st.binary(min_size=90, max_size=400), st.integers())
def test_tampering_flips_exactly_one_bit_and_none_of_the_header(block: bytes, seed: int) -> None:
    changed, at = tamper_with(block, random.Random(seed))
    differing = [
        (place, old ^ new)
        for place, (old, new) in enumerate(zip(block, changed, strict=True))
        if old != new
    ]
    [(place, bits)] = differing
    assert place == at >= HEADER
    assert bits.bit_count() == 1


def test_tampering_reaches_every_byte_behind_the_transaction_count() -> None:
    rng = random.Random(1)
    places = {tamper_with(bytes(100), rng)[1] for _ in range(1000)}
    assert places == set(range(HEADER + 9, 100))  # 9: the longest CompactSize


def test_a_block_without_transactions_cannot_be_tampered_with() -> None:
    with pytest.raises(LocalError, match="a block of 89 bytes has no transaction to tamper with"):
        tamper_with(bytes(89), random.Random(1))
