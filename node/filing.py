"""A folder of JSON files that people may take away: evidence, and proofs of broadcast.

A file is whole or not there: it is written under another name, brought to the disk and renamed.
Its name is the time, what it is, and the message's id. The folder is bounded, the oldest files
go first; files under other names are left alone. Everything here blocks; call it from a thread.
"""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from bruit.topics.errors import LocalError

MAX_FILES = 10_000  # in a folder; guess: a directory that tools still list at once
MAX_BYTES = 1 << 30  # of all files in a folder; guess: some hundred disputes over large blocks
STALE = 3600.0  # seconds after which an unfinished file is a crash's, not another writer's; guess

_OURS = re.compile(r"\d{8}T\d{6}\.\d{6}Z-[a-z-]+-[0-9a-f]+(-\d+)?\.json")
_UNFINISHED = ".new"  # end of the name of what is being written


class Filing:
    """One writer's view of one folder. Not for several threads at once."""

    def __init__(self, folder: Path, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES):
        """Raises LocalError where ``folder`` cannot be made or read."""
        self.folder = folder
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._sizes: dict[str, int] = {}  # oldest first
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with os.scandir(folder) as entries:
                found = sorted((entry.name, entry.stat()) for entry in entries)
        except OSError as problem:
            raise self._unusable(problem) from None
        for name, state in found:
            if _OURS.fullmatch(name):
                self._sizes[name] = state.st_size
            elif _OURS.fullmatch(name.removesuffix(_UNFINISHED)) and _is_stale(state):
                with suppress(OSError):
                    (folder / name).unlink()
        self._bytes = sum(self._sizes.values())

    def write(self, data: bytes, kind: str, message_id: bytes, now: float) -> Path:
        """Where ``data`` is now. ``now``: Unix time. Raises LocalError, with nothing written."""
        name = self._name(kind, message_id, now)
        path = self.folder / name
        new = self.folder / (name + _UNFINISHED)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have tidied up
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)  # meant to be shown, whatever the umask says
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            new.rename(path)
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)  # the new name, too, survives a loss of power
            finally:
                os.close(folder)
        except OSError as problem:
            with suppress(OSError):
                new.unlink()
            raise self._unusable(problem) from None
        self._sizes[name] = len(data)
        self._bytes += len(data)
        self._make_room(name)
        return path

    def _name(self, kind: str, message_id: bytes, now: float) -> str:
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        stem = f"{moment}.{int(now % 1 * 1e6):06d}Z-{kind}-{message_id.hex()}"
        name, number = f"{stem}.json", 2
        while name in self._sizes:
            name, number = f"{stem}-{number}.json", number + 1
        return name

    def _make_room(self, newest: str) -> None:
        while len(self._sizes) > self._max_files or self._bytes > self._max_bytes:
            oldest = next(iter(self._sizes))
            if oldest == newest:  # larger than all there may be: it stays until the next
                return
            with suppress(OSError):
                (self.folder / oldest).unlink()
            self._bytes -= self._sizes.pop(oldest)

    def _unusable(self, problem: OSError) -> LocalError:
        return LocalError(
            f"{self.folder} cannot be written to: {problem.strerror}: make room there, or correct "
            "its owner and mode"
        )


def _is_stale(state: os.stat_result) -> bool:
    return time.time() - state.st_mtime > STALE
