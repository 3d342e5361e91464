"""Application scores by stake: who holds more of it is trusted more.

The score of a peer is ``weight × share``, at most ``cap``, where share is its
part of all the stake in the table, 0 to 1: connected or not, everybody in the
table counts. A peer that is not in it gets 0. So a score never falls below 0,
and a validator starts with credit that a stranger has to earn.

The table stands in the configuration, or in a file of its own: TOML, or JSON
where its name ends in ``.json``, one table from peer id to amount. The file is
looked at with every question, which costs one system call, and read again when
it has changed. While a changed file cannot be used, the amounts read before
stay in force and the log says why, once for each change.

Nothing here knows where stake comes from or checks it: whoever writes the table
answers for it. Amounts are floats, so that a share is exact to 15 digits.
"""

import json
import logging
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from bruit.plugins.app_scores import MAX_APP_SCORE
from bruit.plugins.hookspecs import hookimpl
from bruit.topics.errors import ConfigError, LocalError
from bruit.topics.keys import PeerId, peer_id_from_text

MAX_AMOUNT = 1e30  # guess: all ether there is, in wei, is 1.2e26
MAX_FILE = 16 * 1024 * 1024  # bytes; guess: 200,000 holders at 80 bytes each

Amount = Annotated[float, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
Stamp = tuple[int, int, int]  # what changes when a file does: time of change, size, inode

_log = logging.getLogger(__name__)


class StakeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the stake plugin."""

    # Peer id → amount, in any unit.
    stakes: dict[str, Amount] = {}

    # The same table in a file, relative to the working directory; empty for none.
    file: str = ""

    # Score of a peer that holds all the stake.
    weight: Annotated[float, msgspec.Meta(ge=0, le=MAX_APP_SCORE)] = 100.0  # guess

    # Highest score of a peer; 0 for none.
    cap: Annotated[float, msgspec.Meta(ge=0, le=MAX_APP_SCORE)] = 0.0

    def __post_init__(self) -> None:
        if self.stakes and self.file:
            raise ValueError("stakes and file are both given: keep one")


class StakePlugin:
    """Judges peers by their share of the stake."""

    Config = StakeConfig

    def __init__(self, config: StakeConfig) -> None:
        """Raises ConfigError for a file that cannot be used and for an id that is none."""
        self._weight = config.weight
        self._cap = config.cap or math.inf
        self._file = Path(config.file) if config.file else None
        self._stamp: Stamp | None = None  # of the file as it was last looked at
        try:
            stakes = config.stakes
            if self._file is not None:
                self._stamp = _stamp(self._file)
                stakes = _read(self._file)
            self._shares = _shares(stakes)
        except LocalError as problem:
            setting = "file" if config.file else "stakes"
            raise ConfigError(f"plugins.stake.{setting}", str(problem)) from None

    @hookimpl
    def app_score(self, peer: PeerId) -> float:
        """``weight × share``, at most ``cap``; 0 for a peer without stake."""
        if self._file is not None:
            self._refresh(self._file)
        return min(self._cap, self._weight * self._shares.get(peer, 0.0))

    def _refresh(self, file: Path) -> None:
        """Read the file again if it is not as it was when last looked at."""
        stamp = None  # while there is no file
        try:
            stamp = _stamp(file)
            if stamp == self._stamp:
                return
            self._shares = _shares(_read(file))
            _log.info("stake: %s was read again: %d peers", file, len(self._shares))
        except LocalError as problem:
            if stamp != self._stamp:
                _log.warning("stake: %s; the amounts read before stay in force", problem)
        self._stamp = stamp


def _stamp(file: Path) -> Stamp:
    """Raises LocalError where there is no such file."""
    try:
        status = file.stat()
    except OSError as problem:
        raise LocalError(f"{file} cannot be read: {problem.strerror}") from None
    return status.st_ctime_ns, status.st_size, status.st_ino


def _read(file: Path) -> dict[str, float]:
    """The table in a file. Raises LocalError that says what is wrong with it."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE + 1)
    except OSError as problem:
        raise LocalError(f"{file} cannot be read: {problem.strerror}") from None
    if len(data) > MAX_FILE:
        raise LocalError(f"{file} has more than {MAX_FILE} bytes")
    kind = "JSON" if file.suffix == ".json" else "TOML"
    try:
        table = json.loads(data) if kind == "JSON" else tomllib.loads(data.decode())
        return msgspec.convert(table, dict[str, Amount])
    except msgspec.ValidationError as problem:
        raise LocalError(f"{file} is no table from peer id to amount: {problem}") from None
    except (ValueError, RecursionError) as problem:  # json's, tomllib's and decode's own errors
        raise LocalError(f"{file} is not {kind}: {problem}") from None


def _shares(stakes: Mapping[str, float]) -> dict[PeerId, float]:
    """The part of all stake that each holds.

    Raises LocalError for what is no peer id, and for a peer that is named twice.
    """
    total = math.fsum(stakes.values())
    shares: dict[PeerId, float] = {}
    for text, amount in stakes.items():
        peer = peer_id_from_text(text)
        if peer in shares:
            raise LocalError(f"{text} is named twice, in two ways of writing it: keep one")
        shares[peer] = amount / total if total else 0.0
    return shares
