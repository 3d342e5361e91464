"""Frames on their way to one peer over one protocol: queued within bounds, written together."""

import math
from collections import deque

import trio
from libp2p.abc import INetStream

from bruit.node.net.host import beneath
from bruit.node.net.link import WRITE_SIZE, Traffic
from bruit.topics.uvarint import encode_uvarint


class Outbox:
    """Queueing never waits; only writing does. ``limit``: bytes queued at most."""

    def __init__(self, limit: int, traffic: Traffic) -> None:
        self._limit = limit
        self._traffic = traffic
        self._frames: deque[tuple[bytes, float]] = deque()  # and until when it is of use
        self._bytes = 0
        self.late = 0  # frames that were of no use any more when their turn came
        self._work = trio.lowlevel.ParkingLot()
        self._closed = False

    def push(self, frame: bytes, until: float = math.inf) -> bool:
        """Queue a frame, to be dropped when it is not written ``until`` then, on trio's clock.

        False where there is no room for it; an empty queue takes any.
        """
        if self._closed or (self._frames and self._bytes + len(frame) > self._limit):
            return False
        self._frames.append((frame, until))
        self._bytes += len(frame)
        self._work.unpark()
        return True

    def close(self) -> None:
        """Take no more; `write` returns when all is written."""
        self._closed = True
        self._work.unpark_all()

    async def write(self, stream: INetStream, *, idle: float, patience: float) -> None:
        """Write what is queued, until `close`, or there has been nothing for ``idle`` seconds.

        Raises TooSlowError where the peer takes longer than ``patience`` seconds over a write.
        """
        wire = beneath(stream)
        while True:
            if not self._frames and not self._closed:
                with trio.move_on_after(idle):
                    await self._work.park()
            if not self._frames:
                self._closed = True  # idle: who comes now needs another
                return
            if data := self._gather():
                with trio.fail_after(patience):
                    await wire.write(data)

    def _gather(self) -> bytes:
        parts: list[bytes] = []
        size, now = 0, trio.current_time()
        while self._frames and size < WRITE_SIZE:
            frame, until = self._frames.popleft()
            self._bytes -= len(frame)
            if until < now:
                self.late += 1
                continue
            prefix = encode_uvarint(len(frame))
            parts += (prefix, frame)
            size += len(prefix) + len(frame)
            self._traffic.frames_out += 1
        self._traffic.bytes_out += size
        return b"".join(parts)
