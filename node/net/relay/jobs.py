"""Signatures and hashes: small ones on the event loop in slices, large ones in threads.

A thread must take the GIL back after each signature and each hash, and while the event loop is
busy that lasts up to a switch interval (5 ms, `sys.getswitchinterval`). Measured: 16 checks of
chunks of 9 KB take 6 ms on the loop, and 40 to 50 ms in a thread beside a busy loop; of chunks of
125 KB 25 ms, and 100 ms in a thread, but the loop has nearly all of them for itself.
"""

import time
from collections import deque
from collections.abc import Callable

import trio

LARGE = 65_536  # bytes hashed from which on a job goes to a thread; guess, see above
SLICE = 0.002  # seconds of jobs on the loop before others get their turn; guess
THREADS = 2  # with large jobs, at a time; guess
BATCH = 16  # large jobs in one hop to a thread; guess
# Waiting and under way, beyond which readers wait; guess: several blocks' chunks
MAX_WAITING = 1024
MAX_WAITING_BYTES = 33_554_432

Job = Callable[[], Callable[[], None]]  # may run in a thread; what it returns runs on the loop


class Jobs:
    def __init__(self) -> None:
        # What others already wait for (signatures, receipts) goes before what peers send.
        self._urgent: deque[tuple[Job, int]] = deque()
        self._small: deque[tuple[Job, int]] = deque()
        self._large: deque[tuple[Job, int]] = deque()
        self.count = self._bytes = 0  # waiting and under way
        self._small_work = trio.lowlevel.ParkingLot()
        self._large_work = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    def add(self, job: Job, size: int, *, urgent: bool = False) -> None:
        """Queue a job that costs as much as hashing ``size`` bytes, beside a signature or two."""
        self.count += 1
        self._bytes += size
        if size >= LARGE:
            self._large.append((job, size))
            self._large_work.unpark()
        else:
            (self._urgent if urgent else self._small).append((job, size))
            self._small_work.unpark()

    async def room(self) -> None:
        """Wait while too much is waiting."""
        while self.count >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES:
            await self._room.park()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_small)
            for _ in range(THREADS):
                nursery.start_soon(self._serve_large)

    async def _serve_small(self) -> None:
        while True:
            until = time.perf_counter() + SLICE
            while (queue := self._urgent or self._small) and time.perf_counter() < until:
                job, size = queue.popleft()
                self._done(1, size, [job()])
            if queue:
                await trio.lowlevel.checkpoint()
            else:
                await self._small_work.park()

    async def _serve_large(self) -> None:
        while True:
            batch = [self._large.popleft() for _ in range(min(BATCH, len(self._large)))]
            if not batch:
                await self._large_work.park()
                continue
            jobs = [job for job, _ in batch]
            answers = await trio.to_thread.run_sync(_all, jobs, abandon_on_cancel=True)
            self._done(len(batch), sum(size for _, size in batch), answers)

    def _done(self, count: int, size: int, answers: list[Callable[[], None]]) -> None:
        self.count -= count
        self._bytes -= size
        for answer in answers:
            answer()
        self._room.unpark_all()


def _all(jobs: list[Job]) -> list[Callable[[], None]]:
    return [job() for job in jobs]
