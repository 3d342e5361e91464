"""Bans on disk: one JSON file that a running node and the command line both change.

    {"version": 1, "bans": [{"target": "192.0.2.0/24", "since": 1700000000.0,
                             "until": null, "reason": "spam"}]}

Every change takes a lock, reads the file, and replaces it in one step, so that
no writer loses another's entries and no reader sees half a file. A file that
cannot be understood is never replaced: it stays for whoever can mend it.
Everything here blocks; call it from a thread.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from bruit.scoring.bans import Ban, Bans
from bruit.topics.errors import LocalError

VERSION = 1


class _Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    bans: tuple[Ban, ...]


# Modification time in nanoseconds, inode, size; None where there is no file.
_Identity: TypeAlias = tuple[int, int, int] | None


class BanFile:
    """``bans`` is what the file held when it was last read or written: nobody, before that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bans = Bans()
        self._read: _Identity = None

    def reload(self) -> bool:
        """Read the file again if it has changed; True if so. A missing file bans nobody.

        Raises LocalError where it cannot be read, once for the same contents;
        ``bans`` stays as it was.
        """
        try:
            identity = _identity(self.path.stat())
        except FileNotFoundError:
            identity = None
        except OSError as problem:
            raise self._unreadable(problem.strerror) from None
        if identity == self._read:
            return False
        self._read = identity
        self.bans = self._load()
        return True

    @contextmanager
    def edit(self) -> Iterator[Bans]:
        """The bans as the file has them now, written back when the block ends well.

        Raises LocalError, with file and ``bans`` as they were, where the file
        cannot be read or written.
        """
        with self._locked():
            bans = self._load()
            yield bans
            self._read = self._write(bans)
            self.bans = bans

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A file of its own, as the other is replaced; it stays, as whoever waits has it open.
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise LocalError(f"ban file: lock {lock} cannot be made: {problem.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)  # and so unlocks

    def _load(self) -> Bans:
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return Bans()
        except OSError as problem:
            raise self._unreadable(problem.strerror) from None
        try:
            contents = msgspec.json.decode(text, type=_Contents)
            if contents.version != VERSION:
                raise LocalError(f"version {contents.version}, of which this program knows nothing")
            return Bans(contents.bans)
        except (msgspec.DecodeError, LocalError) as problem:
            raise self._unreadable(str(problem)) from None

    def _write(self, bans: Bans) -> _Identity:
        contents = msgspec.json.format(msgspec.json.encode(_Contents(VERSION, tuple(bans))))
        new = self.path.with_name(self.path.name + ".new")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o600)  # in case one was left over from a crash
                file.write(contents + b"\n")
                file.flush()
                os.fsync(descriptor)
                identity = _identity(os.fstat(descriptor))
            new.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # the new name, too, survives a loss of power
            finally:
                os.close(folder)
            return identity
        except OSError as problem:
            raise LocalError(
                f"ban file {self.path} cannot be written: {problem.strerror}"
            ) from None

    def _unreadable(self, problem: str | None) -> LocalError:
        return LocalError(
            f"ban file {self.path} cannot be read: {problem}: correct it, "
            "or move it away to start without bans"
        )


def _identity(state: os.stat_result) -> _Identity:
    return state.st_mtime_ns, state.st_ino, state.st_size
