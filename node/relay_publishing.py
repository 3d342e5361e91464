"""Chunks on their way to a channel's topic: signed and published in order, several at a time."""

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from bruit.node.net.driver import Driver
from bruit.topics.message import Message

WAITING_BYTES = 67_108_864  # frames that wait to be published; guess: two largest blocks
BATCH = 32  # frames published at once; guess: the chunks of a block
BATCH_BYTES = 4_194_304  # of those; guess


class RelayPublishing:
    """``write`` signs a message for a topic, in a thread where that takes long."""

    def __init__(self, driver: Driver, write: Callable[[str, bytes], Awaitable[Message]]) -> None:
        self._driver = driver
        self._write = write
        self._waiting: deque[tuple[str, bytes, float]] = deque()  # and until when it is of use
        self._bytes = 0
        self._work = trio.lowlevel.ParkingLot()
        self.published = 0  # chunks
        self.unpublished = 0  # chunks for which there was no room, no time, or nobody

    def publish(self, topic: str, frame: bytes, until: float) -> None:
        """Queue a frame, of use ``until`` then, on trio's clock. Without room it is dropped."""
        if self._waiting and self._bytes + len(frame) > WAITING_BYTES:
            self.unpublished += 1
            return
        self._waiting.append((topic, frame, until))
        self._bytes += len(frame)
        self._work.unpark()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while self._waiting:
                batch = [(await self._write(*each), each[1]) for each in self._take()]
                if not batch:
                    continue
                outcomes = await self._driver.publish(batch)
                reached = sum(bool(outcome.peers) for outcome in outcomes)
                self.published += reached
                self.unpublished += len(outcomes) - reached
            await self._work.park()

    def _take(self) -> list[tuple[str, bytes]]:
        batch: list[tuple[str, bytes]] = []
        size, now = 0, trio.current_time()
        while self._waiting and len(batch) < BATCH and size < BATCH_BYTES:
            topic, frame, until = self._waiting.popleft()
            self._bytes -= len(frame)
            if until < now:  # a replay by now: whoever published it would be to blame
                self.unpublished += 1
                continue
            batch.append((topic, frame))
            size += len(frame)
        return batch
