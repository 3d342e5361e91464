"""Compression of a topic's messages with Zstandard (RFC 8878).

The wire form is stricter than the RFC: exactly one frame, which states its
content size and uses no dictionary. So the size is known before a byte is
decompressed, and nothing may follow the frame. Skippable frames, several
frames in a row and frames of unstated size are refused; every encoder states
the size when it is given the whole input at once.
"""

from typing import Annotated

import msgspec
import zstandard

from bruit.plugins.hookspecs import hookimpl
from bruit.topics.errors import RemoteError

MAGIC = bytes.fromhex("28b52ffd")  # RFC 8878, 3.1.1

# RFC 8878, 3.1.1.1.2 recommends that decoders support windows of at least 8 MiB
# and that encoders stay below. A window as large as the result is harmless too,
# for that much is allocated anyway.
RECOMMENDED_WINDOW = 8 * 1024 * 1024

# An empty message has this one form: single segment, size 0, one empty raw last
# block. The library does not look past the header of an empty frame.
EMPTY_FRAME = bytes.fromhex("28b52ffd2000010000")


class ZstdConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the zstd plugin."""

    # Compression level, 1 (fast) to 22 (small, slow, and hungry for memory).
    level: Annotated[int, msgspec.Meta(ge=1, le=22)] = 3


class ZstdPlugin:
    """Compresses what is published and decompresses what arrives."""

    Config = ZstdConfig

    def __init__(self, config: ZstdConfig) -> None:
        self._level = config.level

    # One context per call: a context may not be used by two threads at once,
    # and topics that share this plugin run in different threads.

    @hookimpl
    def pre_process(self, topic: str, data: bytes) -> bytes:
        """``data`` as one frame that states its size."""
        if not data:
            return EMPTY_FRAME
        return zstandard.ZstdCompressor(level=self._level).compress(data)

    @hookimpl
    def post_process(self, topic: str, data: bytes, max_size: int) -> bytes:
        """The content of the one frame in ``data``, at most ``max_size`` bytes.

        Memory is bounded by ``max_size`` and a fixed context: the frame header
        is checked before anything is allocated, and decompression stops at the
        stated size. Raises RemoteError for whatever is not such a frame.
        """
        if not data.startswith(MAGIC):
            raise RemoteError(f"not a zstd frame: begins with {data[:4].hex() or 'nothing'}")
        try:
            frame = zstandard.get_frame_parameters(data)
            if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
                raise RemoteError("zstd frame does not state its content size")
            if frame.content_size > max_size:
                raise RemoteError(
                    f"zstd frame states {frame.content_size} bytes, {max_size} are allowed"
                )
            if frame.window_size > max(max_size, RECOMMENDED_WINDOW):
                raise RemoteError(f"zstd frame needs a window of {frame.window_size} bytes")
            if frame.dict_id:
                raise RemoteError(f"zstd frame needs dictionary {frame.dict_id}")
            if frame.content_size == 0:
                if data != EMPTY_FRAME:
                    raise RemoteError("zstd frame of no content has more than its nine bytes")
                return b""
            return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise RemoteError(f"bad zstd frame: {error}") from None
