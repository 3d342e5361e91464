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
        # What is not yet a frame. A large one comes in many pieces, joined once.
        self._pieces: list[bytes] = []
        self._held = 0  # bytes of those
        self._needed = 0  # bytes to hold before another cut is worth trying

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that ``data`` completes.

        Raises RemoteError for a length that is too large or no varint; the
        stream is unusable after that.
        """
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return []
        buffer = data if len(self._pieces) == 1 else b"".join(self._pieces)
        frames: list[bytes] = []
        start, end = 0, len(buffer)
        self._needed = 0
        while start < end:
            length, body = self._length_at(buffer, start)
            if body < 0:
                break
            stop = body + length
            if stop > end:
                self._needed = stop - start
                break
            frames.append(buffer[body:stop])
            start = stop
        self._pieces = [buffer[start:]] if start < end else []
        self._held = end - start
        return frames

    def _length_at(self, buffer: bytes, start: int) -> tuple[int, int]:
        """The length there and where its frame begins, or -1 where the prefix is not complete."""
        length = shift = 0
        for at in range(start, min(start + MAX_PREFIX, len(buffer))):
            byte = buffer[at]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if length > self._max_frame:
                    raise RemoteError(f"frame of {length} bytes: the limit is {self._max_frame}")
                return length, at + 1
            shift += 7
        if len(buffer) - start >= MAX_PREFIX:
            raise RemoteError(f"frame length of more than {MAX_PREFIX} bytes")
        return 0, -1

    @property
    def buffered(self) -> int:
        return self._held
