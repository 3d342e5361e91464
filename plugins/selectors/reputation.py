"""`reputation-selector`: chance, in proportion to what a file says of the clusters.

The file holds one table from cluster id to reputation, 0 to 1: TOML, or JSON where its name ends in
.json. Ids are written as decimal text, as both formats want keys to be. It is looked at with every
question and read again when it has changed; replace it by renaming a new file into its place. While
a changed file cannot be used, the reputations read before stay in force.

A cluster of twice the reputation gets twice the chunks. Each failure in a row halves its chance
for as long as it lasts. Where no option has a chance, all are alike.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec

from bruit.plugins.hookspecs import ClusterOption, Selection, hookimpl
from bruit.plugins.watched_file import WatchedFile, read_bounded
from bruit.topics.errors import ConfigError, LocalError

NAME = "reputation-selector"
MAX_FILE = 4 * 1024 * 1024  # bytes; guess: all 65,536 ids at 64 bytes each
MAX_HALVINGS = 30  # failures in a row that still count; guess: a chance of one in a billion

Reputation = Annotated[float, msgspec.Meta(ge=0, le=1)]
ClusterId = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]


class ReputationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of reputation-selector."""

    # The table from cluster id to reputation, relative to the working directory.
    file: str

    # Reputation of a cluster that is not in the file; guess: neither good nor bad.
    unlisted: Reputation = 0.5


class ReputationSelector:
    Config = ReputationConfig

    def __init__(self, config: ReputationConfig) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._unlisted = config.unlisted
        self._file = watched(NAME, config.file, "file")

    @hookimpl
    def select_cluster(self, selection: Selection, rng: Random) -> int:
        self._file.refresh()
        chances = [self._chance(option, self._file.value) for option in selection.options]
        if not any(chances):
            return rng.choice(selection.options).cluster
        return rng.choices(selection.options, chances)[0].cluster

    def _chance(self, option: ClusterOption, reputations: Mapping[int, float]) -> float:
        reputation = reputations.get(option.cluster, self._unlisted)
        return halved(reputation, option.recent_failures)


def halved(value: float, failures: int) -> float:
    """``value``, halved for each of ``failures``."""
    return value * 0.5 ** min(failures, MAX_HALVINGS)


def watched(plugin: str, file: str, setting: str) -> WatchedFile[dict[int, float]]:
    """A reputation file. Raises ConfigError about ``setting`` where it cannot be used."""
    try:
        return WatchedFile(plugin, Path(file), read_reputations)
    except LocalError as problem:
        raise ConfigError(f"plugins.{plugin}.{setting}", str(problem)) from None


def read_reputations(file: Path) -> dict[int, float]:
    """Cluster id → reputation. Raises LocalError that says what is wrong with the file."""
    data = read_bounded(file, MAX_FILE)
    kind = "JSON" if file.suffix == ".json" else "TOML"
    try:
        table = json.loads(data) if kind == "JSON" else tomllib.loads(data.decode())
        return msgspec.convert(table, dict[ClusterId, Reputation], str_keys=True)
    except msgspec.ValidationError as problem:
        raise LocalError(
            f"{file} is no table from cluster id to a reputation of 0 to 1: {problem}"
        ) from None
    except (ValueError, RecursionError) as problem:  # json's, tomllib's and decode's own errors
        raise LocalError(f"{file} is not {kind}: {problem}") from None
