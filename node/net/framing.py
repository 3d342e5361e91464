"""Frames on a stream: each preceded by its length as an unsigned varint.

Source: libp2p specs, pubsub/README.md ("The RPC"). Nothing is allocated for a
length before it is known to be within the limit.
"""

from bruit.topics.errors import RemoteError

MAX_PREFIX = 5  # bytes: a length of 35 bits, more than any frame may have


class FrameSplitter:
    """Cuts a stream of bytes into frames of at most ``max_frame`` bytes."""

    def __init__(self, max_frame: int) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._needed = 0  # bytes the buffer must hold before another cut is worth trying

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that ``data`` completes.

        Raises RemoteError for a length that is too large or no varint; the
        stream is unusable after that.
        """
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._needed:
            return []
        frames: list[bytes] = []
        start, end = 0, len(buffer)
        self._needed = 0
        while start < end:
            length, body = self._length_at(start)
            if body < 0:
                break
            if body + length > end:
                self._needed = body - start + length
                break
            frames.append(bytes(buffer[body : body + length]))
            start = body + length
        if start:
            del buffer[:start]
        return frames

    def _length_at(self, start: int) -> tuple[int, int]:
        """The length there and where its frame begins, or -1 where the prefix is not complete."""
        length = shift = 0
        for at in range(start, min(start + MAX_PREFIX, len(self._buffer))):
            byte = self._buffer[at]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if length > self._max_frame:
                    raise RemoteError(f"frame of {length} bytes: the limit is {self._max_frame}")
                return length, at + 1
            shift += 7
        if len(self._buffer) - start >= MAX_PREFIX:
            raise RemoteError(f"frame length of more than {MAX_PREFIX} bytes")
        return 0, -1

    @property
    def buffered(self) -> int:
        return len(self._buffer)
