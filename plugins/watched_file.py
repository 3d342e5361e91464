"""What a file says, read again whenever the file has changed.

Looking costs one system call. While a changed file cannot be used, what was read before stays in
force, and the log says why, once for each change. A writer should rename a new file into place:
one that is written where it stands may be read half-written.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from bruit.topics.errors import LocalError

Value = TypeVar("Value")
Stamp = tuple[int, int, int]  # what changes when a file does: time of change, size, inode

_log = logging.getLogger(__name__)


class BusyFileError(LocalError):
    """A file that cannot be read just now, because somebody is writing it."""


class WatchedFile(Generic[Value]):
    """A file and what it said when it was last good. For one thread at a time."""

    def __init__(
        self,
        plugin: str,
        file: Path,
        read: Callable[[Path], Value],
        companions: Sequence[Path] = (),
    ) -> None:
        """``plugin``: for the log. ``companions``: files that hold part of it while they exist.

        Raises what ``read`` raises, LocalError, for a file that cannot be used.
        """
        self._plugin = plugin
        self._file = file
        self._read = read
        self._companions = tuple(companions)
        self._stamps = self._look()  # before reading: a change meanwhile is seen next time
        self.value = read(file)

    def refresh(self) -> None:
        """Read the file again if it is not as it was when last looked at."""
        stamps = self._look()
        if stamps == self._stamps:
            return
        before, self._stamps = self._stamps, stamps
        try:
            self.value = self._read(self._file)
        except BusyFileError:
            self._stamps = before  # so that it is read next time
        except LocalError as problem:
            _log.warning("%s: %s; what was read before stays in force", self._plugin, problem)
        else:
            _log.info("%s: %s was read again", self._plugin, self._file)

    def _look(self) -> tuple[Stamp | None, ...]:
        return tuple(_stamp(file) for file in (self._file, *self._companions))


def _stamp(file: Path) -> Stamp | None:
    """None where there is no such file, or none that can be looked at."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ctime_ns, status.st_size, status.st_ino


def read_bounded(file: Path, max_size: int) -> bytes:
    """The bytes of a file. Raises LocalError where it cannot be read or is longer."""
    try:
        with file.open("rb") as stream:
            data = stream.read(max_size + 1)
    except OSError as problem:
        raise LocalError(f"{file} cannot be read: {problem.strerror}") from None
    if len(data) > max_size:
        raise LocalError(f"{file} has more than {max_size} bytes")
    return data
