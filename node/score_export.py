"""Appends the scores of all known peers to a file, for whoever studies them later.

A line is a JSON object: a row of `bruit.scoring.history` and, before its fields,
``row`` ("peer" or "topic") and ``schema``. A snapshot's lines stand together, and a
snapshot is written as a whole or not at all. A file that has grown over MAX_BYTES is
renamed to the same name and ``.1``, in place of the one that has that name.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec
import trio

from bruit.scoring.history import SCHEMA_VERSION, PeerScoreRow, TopicScoreRow

INTERVAL = 60.0  # seconds between snapshots; guess
MAX_BYTES = 64 * 1024 * 1024  # guess: 50 peers in 5 topics fill it in some 7 hours

Snapshot = tuple[list[PeerScoreRow], list[TopicScoreRow]]

_log = logging.getLogger(__name__)


async def export_scores(path: Path, snapshot: Callable[[], Awaitable[Snapshot]]) -> None:
    """Append a snapshot now and every INTERVAL, until cancelled. A full disk is no end."""
    failed = False
    while True:
        peers, topics = await snapshot()
        try:
            await trio.to_thread.run_sync(append, path, peers, topics)
            failed = False
        except OSError as problem:
            if not failed:  # once, not every minute
                _log.error("scores cannot be written to %s: %s", path, problem.strerror)
            failed = True
        await trio.sleep(INTERVAL)


def append(path: Path, peers: Iterable[PeerScoreRow], topics: Iterable[TopicScoreRow]) -> None:
    """Write the lines of one snapshot. Raises OSError, with the file as it was."""
    lines = [_line("peer", row) for row in peers] + [_line("topic", row) for row in topics]
    if not lines:
        return
    rest = memoryview(b"\n".join(lines) + b"\n")
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(before)
            raise
        size = file.tell()
    if size > MAX_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))


def _line(kind: str, row: msgspec.Struct) -> bytes:
    return msgspec.json.encode(
        {"row": kind, "schema": SCHEMA_VERSION} | msgspec.structs.asdict(row)
    )
