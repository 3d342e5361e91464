"""Frames on their way to one peer over one protocol: queued within bounds, written together."""

import math
from collections import deque

import trio
from libp2p.abc import INetStream

from bruit.node.net.host import beneath
from bruit.node.net.link import WRITE_SIZE, Traffic
from bruit.node.net.relay.turns import Turns
from bruit.topics.uvarint import encode_uvarint

IN_TURN = 16_384  # bytes gathered for a turn: small frames together; guess, TCP's buffer in trio


class Outbox:
    """Queueing never waits; only writing does.

    ``limit``: bytes queued at most. With ``turns``, large frames are written one at a time, each
    in a turn; else as many together as there are.
    """

    def __init__(self, limit: int, traffic: Traffic, turns: Turns | None = None) -> None:
        self._limit = limit
        self._turns = turns
        self._write_size = WRITE_SIZE if turns is None else IN_TURN
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
            turn = await self._turns.take() if self._turns is not None else None
            try:
                if data := self._gather():
                    with trio.fail_after(patience):
                        await wire.write(data)
            finally:
                if self._turns is not None:
                    self._turns.end(turn)

    def _gather(self) -> bytes:
        parts: list[bytes] = []
        size, now = 0, trio.current_time()
        while self._frames and size < self._write_size:
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
