"""Frames on a stream: however it is cut, and whatever a peer writes into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.net.framing import MAX_PREFIX, FrameSplitter
from bruit.topics.errors import RemoteError
from tests.net.recorder import on_the_wire, varint

LIMIT = 300  # bytes; needs a prefix of two


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = [*sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    starts = [0, *ends[:-1]]
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


frame_lists = st.lists(st.binary(max_size=LIMIT), max_size=20)


def test_lengths_are_the_varints_of_the_specification() -> None:
    # multiformats/unsigned-varint, README.md: 1, 127, 128, 255, 300
    assert [varint(value).hex() for value in (1, 127, 128, 255, 300)] == [
        "01",
        "7f",
        "8001",
        "ff01",
        "ac02",
    ]
    assert FrameSplitter(LIMIT).feed(bytes.fromhex("ac02") + bytes(300)) == [bytes(300)]


@given(frame_lists, st.lists(st.integers(min_value=0), max_size=30))
def test_any_way_of_cutting_a_stream_gives_the_same_frames(
    frames: list[bytes], cuts: list[int]
) -> None:
    splitter, found = FrameSplitter(LIMIT), list[bytes]()
    for piece in pieces(on_the_wire(frames), cuts):
        found += splitter.feed(piece)
    assert found == frames
    assert splitter.buffered == 0


@given(frame_lists)
def test_a_frame_comes_out_with_its_last_byte_and_no_later(frames: list[bytes]) -> None:
    splitter = FrameSplitter(LIMIT)
    for frame in frames:
        *most, last = (bytes([byte]) for byte in varint(len(frame)) + frame)
        assert [splitter.feed(byte) for byte in most] == [[]] * len(most)
        assert splitter.feed(last) == [frame]


@given(st.binary(max_size=LIMIT), st.integers(min_value=1))
def test_half_a_frame_is_kept_and_no_more_than_that(frame: bytes, cut: int) -> None:
    wire = varint(len(frame)) + frame
    half = wire[: cut % len(wire)]
    splitter = FrameSplitter(LIMIT)
    assert splitter.feed(on_the_wire([b"whole"]) + half) == [b"whole"]
    assert splitter.buffered == len(half)


@given(st.integers(min_value=LIMIT + 1, max_value=2 ** (7 * MAX_PREFIX) - 1))
def test_a_length_over_the_limit_is_refused_before_its_frame_is_waited_for(length: int) -> None:
    splitter = FrameSplitter(LIMIT)
    with pytest.raises(RemoteError, match=f"frame of {length} bytes: the limit is {LIMIT}"):
        splitter.feed(varint(length))


def test_a_frame_of_exactly_the_limit_passes() -> None:
    assert FrameSplitter(LIMIT).feed(varint(LIMIT) + bytes(LIMIT)) == [bytes(LIMIT)]


@given(st.lists(st.integers(min_value=0x80, max_value=0xFF), min_size=5, max_size=200))
def test_a_length_that_never_ends_is_refused_at_its_fifth_byte(endless: list[int]) -> None:
    splitter = FrameSplitter(LIMIT)
    assert splitter.feed(bytes(endless[: MAX_PREFIX - 1])) == []
    with pytest.raises(RemoteError, match="frame length of more than 5 bytes"):
        splitter.feed(bytes(endless[MAX_PREFIX - 1 :]))


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_any_bytes_are_cut_or_refused_and_never_kept_beyond_one_frame(chunks: list[bytes]) -> None:
    splitter, seen, found = FrameSplitter(LIMIT), 0, 0
    try:
        for chunk in chunks:
            seen += len(chunk)
            for frame in splitter.feed(chunk):
                assert len(frame) <= LIMIT
                found += 1 + len(frame)
            assert splitter.buffered <= MAX_PREFIX + LIMIT
            assert splitter.buffered + found <= seen
    except RemoteError:
        pass  # what it says is tested above
