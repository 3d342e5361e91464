"""Has reports of the relay written down, in a thread, in the order in which they came."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from bruit.node.audit import Audit, AuditReport
from bruit.node.relay.actions import DeliverBlock, Witnessed
from bruit.topics.errors import LocalError

BATCH = 64  # reports in one hop to a thread; guess: some milliseconds
# What waits for the disk, beyond which a chunk's or block's row is left out; guesses. Disputes,
# broadcasts and stake are never left out.
BACKLOG = 4096  # reports
BACKLOG_BYTES = 134_217_728  # of frames and blocks

Kept = Callable[[AuditReport, Path | None], None]

_log = logging.getLogger(__name__)


class Auditing:
    """``on_kept`` hears of each report when it is written, or cannot be; with its file, if any.

    Without an audit nothing is written, and everything is kept at once.
    """

    def __init__(self, audit: Audit | None, on_kept: Kept) -> None:
        self._audit = audit
        self._on_kept = on_kept
        self._waiting: deque[tuple[AuditReport, float]] = deque()
        self._bytes = 0
        self._work = trio.lowlevel.ParkingLot()
        self._written = trio.lowlevel.ParkingLot()
        self._taken = self._done = 0  # reports, since the start
        self.left_out = 0
        self.problem = ""  # of the last that could not be written

    def keep(self, report: AuditReport, now: float) -> None:
        """``now``: Unix time, seconds."""
        if self._audit is None:
            self._on_kept(report, None)
            return
        size = _size(report)
        if size and (len(self._waiting) >= BACKLOG or self._bytes + size > BACKLOG_BYTES):
            self.left_out += 1
            self._on_kept(report, None)
            return
        self._waiting.append((report, now))
        self._bytes += size
        self._taken += 1
        self._work.unpark()

    async def keep_first(self, report: AuditReport, now: float) -> None:
        """Keep a report, and wait until it is written."""
        self.keep(report, now)
        mine = self._taken
        while self._done < mine:
            await self._written.park()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while self._waiting:
                await self._write()
            await self._work.park()

    async def finish(self) -> None:
        """Write what is left, when `run` is over."""
        with trio.CancelScope(shield=True):
            while self._waiting:
                await self._write()

    async def _write(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH))]
        with trio.CancelScope(shield=True):  # a batch is written once, and wholly
            files = await trio.to_thread.run_sync(self._write_all, batch)
        self._done += len(batch)
        self._written.unpark_all()
        for (report, _), file in zip(batch, files, strict=True):
            self._bytes -= _size(report)
            self._on_kept(report, file)

    def _write_all(self, batch: Sequence[tuple[AuditReport, float]]) -> list[Path | None]:
        return [self._write_one(*each) for each in batch]

    def _write_one(self, report: AuditReport, now: float) -> Path | None:
        assert self._audit is not None  # else nothing waits
        try:
            return self._audit.keep(report, now)
        except LocalError as problem:
            if str(problem) != self.problem:
                _log.error("the audit misses a %s: %s", type(report).__name__, problem)
            self.problem = str(problem)
            return None


def _size(report: AuditReport) -> int:
    """Bytes of what may be left out; 0 for what must not."""
    match report:
        case Witnessed(checked):
            return max(len(checked.frame.chunk), 1)
        case DeliverBlock(block=block):
            return max(len(block), 1)
        case _:
            return 0
