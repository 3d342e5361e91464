"""A stream that keeps what is written to it, and that can be held up or broken; frames on it."""

from typing import cast

import trio
from libp2p.abc import INetStream
from libp2p.network.stream.exceptions import StreamEOF, StreamReset


class Recorder:
    """Our half of an INetStream that we opened. ``net`` is itself, under that type."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.was_reset = False
        self.ended = trio.Event()  # by us
        self.answered = trio.Event()  # by the peer, with its own end
        self._open = trio.Event()
        self._open.set()
        self._pace = 0.0  # seconds that a write takes

    @property
    def net(self) -> INetStream:
        return cast(INetStream, self)

    @property
    def muxed_stream(self) -> "Recorder":
        return self

    @property
    def wire(self) -> bytes:
        return b"".join(self.writes)

    def hold(self) -> None:
        """Let no write return from now on."""
        self._open = trio.Event()

    def let_go(self) -> None:
        self._open.set()

    def take_time(self, seconds: float) -> None:
        """Let every write last so long from now on."""
        self._pace = seconds

    def break_off(self) -> None:
        """Fail this write and every later one, as a stream does whose other end is gone."""
        self.was_reset = True
        self._open.set()

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        await self._open.wait()
        await trio.sleep(self._pace)
        if self.was_reset:
            raise StreamReset
        self.writes.append(data)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.ended.set()

    async def read(self, size: int) -> bytes:
        await self.answered.wait()
        raise StreamEOF

    async def reset(self) -> None:
        await trio.lowlevel.checkpoint()
        self.break_off()


def varint(value: int) -> bytes:
    """An unsigned varint (multiformats/unsigned-varint): seven bits a byte, the lowest first."""
    sevens = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([seven | 0x80 for seven in sevens[:-1]] + sevens[-1:])


def on_the_wire(frames: list[bytes]) -> bytes:
    return b"".join(varint(len(frame)) + frame for frame in frames)
