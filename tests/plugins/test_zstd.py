"""Compression round trips, and every frame that a peer must not send.

Hostile frames are written by hand after RFC 8878, section 3.1.1.
"""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pluggy
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bruit.plugins.hookspecs import GROUP, HookSpecs
from bruit.plugins.zstd import ZstdConfig, ZstdPlugin
from bruit.topics.errors import RemoteError

PLUGIN = ZstdPlugin(ZstdConfig())
MIB = 1024 * 1024
MAX_BLOCK = 128 * 1024  # bytes; RFC 8878, 3.1.1.2.4

MAGIC = bytes.fromhex("28b52ffd")
SINGLE_SEGMENT, CHECKSUM = 0x20, 0x04


def raw_block(data: bytes, last: bool = True) -> bytes:
    return (len(data) << 3 | last).to_bytes(3, "little") + data


def rle_block(byte: bytes, size: int, last: bool = True) -> bytes:
    return (size << 3 | 1 << 1 | last).to_bytes(3, "little") + byte


def header(content_size: int, flags: int = SINGLE_SEGMENT, middle: bytes = b"") -> bytes:
    """A frame header with an 8-byte content size; ``middle`` is window and dictionary."""
    return MAGIC + bytes([0xC0 | flags]) + middle + content_size.to_bytes(8, "little")


def rle_blocks(size: int) -> bytes:
    """Four bytes for every 128 KiB of zeros."""
    full = [rle_block(b"\0", MAX_BLOCK, last=False)] * (size // MAX_BLOCK - 1)
    return b"".join([*full, rle_block(b"\0", MAX_BLOCK)])


def decompress(data: bytes, max_size: int = MIB) -> bytes:
    return PLUGIN.post_process("topic", data, max_size)


def assert_refused(data: bytes, reason: str, max_size: int = MIB) -> None:
    with pytest.raises(RemoteError, match=reason):
        decompress(data, max_size)


@contextmanager
def python_memory_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


# -- what is accepted


@given(st.binary(max_size=2000) | st.integers(0, 300_000).map(bytes))
def test_what_is_compressed_decompresses_to_itself(data: bytes) -> None:
    assert decompress(PLUGIN.pre_process("topic", data), len(data)) == data


@pytest.mark.parametrize("level", range(1, 23))
def test_every_level_round_trips(level: int) -> None:
    plugin = ZstdPlugin(ZstdConfig(level=level))
    data = b"a block, and a block, and another block; " * 1000
    frame = plugin.pre_process("topic", data)
    assert len(frame) < len(data) // 10
    assert decompress(frame, len(data)) == data


def test_a_compressed_frame_states_its_content_size() -> None:
    for size in (0, 1, 255, 256, 100_000):
        frame = PLUGIN.pre_process("topic", bytes(size))
        assert zstandard.get_frame_parameters(frame).content_size == size


def test_a_frame_written_by_hand_is_read() -> None:
    frame = header(8) + raw_block(b"hello", last=False) + rle_block(b"!", 3)
    assert decompress(frame) == b"hello!!!"


def test_a_result_of_exactly_the_allowed_size_is_accepted_and_one_more_refused() -> None:
    frame = PLUGIN.pre_process("topic", bytes(1000))
    assert decompress(frame, 1000) == bytes(1000)
    assert_refused(frame, "states 1000 bytes, 999 are allowed", 999)


def test_an_empty_message_round_trips_through_the_nine_bytes_of_the_format() -> None:
    empty = MAGIC + bytes([SINGLE_SEGMENT, 0]) + raw_block(b"")
    assert PLUGIN.pre_process("topic", b"") == empty
    assert zstandard.ZstdCompressor().compress(b"") == empty
    assert decompress(empty, 0) == b""


def test_a_checksum_is_accepted_when_it_is_right_and_refused_when_not() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"content" * 9)
    assert decompress(frame) == b"content" * 9
    assert_refused(frame[:-1] + bytes([frame[-1] ^ 1]), "checksum")


def test_a_window_of_8_mib_is_accepted() -> None:
    frame = header(5, flags=0, middle=bytes([(23 - 10) << 3])) + raw_block(b"hello")
    assert decompress(frame) == b"hello"


# -- what is refused


def test_an_honest_bomb_is_refused_by_its_header() -> None:
    bomb = header(1024 * MIB) + rle_blocks(1024 * MIB)
    assert len(bomb) < 33_000
    with python_memory_below(MIB):
        assert_refused(bomb, "states 1073741824 bytes, 1048576 are allowed")


def test_a_bomb_that_states_less_than_it_holds_is_stopped_at_what_it_states() -> None:
    bomb = header(1000) + rle_blocks(1024 * MIB)
    with python_memory_below(MIB):
        assert_refused(bomb, "bad zstd frame")
    window = header(1000, flags=0, middle=b"\x00") + rle_blocks(1024 * MIB)
    with python_memory_below(MIB):
        assert_refused(window, "bad zstd frame")


def test_a_bomb_that_states_no_size_is_refused() -> None:
    bomb = MAGIC + b"\x00\x58" + rle_blocks(1024 * MIB)
    with python_memory_below(MIB):
        assert_refused(bomb, "does not state its content size")


def test_a_bomb_behind_a_small_frame_is_refused() -> None:
    bomb = header(1024 * MIB) + rle_blocks(1024 * MIB)
    small = header(5) + raw_block(b"hello")
    with python_memory_below(MIB):
        assert_refused(small + bomb, "unused data")


def test_two_frames_in_a_row_are_refused() -> None:
    frame = PLUGIN.pre_process("topic", b"once")
    assert_refused(frame + frame, "unused data")


def test_a_byte_after_the_frame_is_refused() -> None:
    assert_refused(PLUGIN.pre_process("topic", b"once") + b"\0", "unused data")
    assert_refused(PLUGIN.pre_process("topic", b"") + b"\0", "more than its nine bytes")


def test_an_empty_frame_in_another_form_is_refused() -> None:
    assert_refused(header(0) + raw_block(b""), "more than its nine bytes")
    assert_refused(header(0) + rle_blocks(1024 * MIB), "more than its nine bytes")


def test_a_skippable_frame_is_refused() -> None:
    skippable = bytes.fromhex("502a4d18") + (4).to_bytes(4, "little") + b"skip"
    assert_refused(skippable, "not a zstd frame: begins with 502a4d18")
    assert_refused(skippable + PLUGIN.pre_process("topic", b"data"), "not a zstd frame")


@pytest.mark.parametrize("log", [24, 27, 31, 41])
def test_a_hostile_window_is_refused(log: int) -> None:
    frame = header(5, flags=0, middle=bytes([(log - 10) << 3])) + raw_block(b"hello")
    assert_refused(frame, "window|bad zstd frame")


def test_a_frame_that_needs_a_dictionary_is_refused() -> None:
    frame = header(5, flags=SINGLE_SEGMENT | 1, middle=b"\x07") + raw_block(b"hello")
    assert_refused(frame, "needs dictionary 7")


def test_a_content_size_that_is_not_that_of_the_content_is_refused() -> None:
    for stated in (1, 4, 6, 1000):
        assert_refused(header(stated) + raw_block(b"hello"), "bad zstd frame")


def test_a_frame_cut_off_anywhere_is_refused() -> None:
    for content in (b"", b"x", bytes(range(256)) * 8):
        frame = PLUGIN.pre_process("topic", content)
        for end in range(len(frame)):
            with pytest.raises(RemoteError):
                decompress(frame[:end])


def test_what_is_no_frame_is_refused() -> None:
    assert_refused(b"", "begins with nothing")
    assert_refused(b"plain text", "begins with 706c6169")


@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_give_a_bounded_result_or_are_refused(data: bytes, max_size: int) -> None:
    for frame in (data, MAGIC + data, header(max_size) + data):
        try:
            assert len(decompress(frame, max_size)) <= max_size
        except RemoteError:
            continue


@given(st.binary(max_size=300), st.data())
def test_a_damaged_frame_gives_a_bounded_result_or_is_refused(
    content: bytes, data: st.DataObject
) -> None:
    frame = bytearray(PLUGIN.pre_process("topic", content))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    try:
        assert len(decompress(bytes(frame), 400)) <= 400
    except RemoteError:
        return


# -- the plugin as a plugin


def test_the_plugin_fits_the_hook_specifications() -> None:
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(HookSpecs)
    manager.register(ZstdPlugin(ZstdConfig(level=1)))
    manager.check_pending()
    frame = manager.hook.pre_process(topic="topic", data=b"data")
    assert manager.hook.post_process(topic="topic", data=frame, max_size=4) == b"data"


@pytest.mark.parametrize("config", [{"level": 0}, {"level": 23}, {"level": "3"}, {"lvl": 3}])
def test_a_wrong_configuration_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(config, ZstdPlugin.Config)
