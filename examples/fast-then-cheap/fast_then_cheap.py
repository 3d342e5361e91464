"""A cluster selector: as many chunks as rebuild a block go the fast way, the rest the cheap one.

In bruit.toml, once the package is installed:

    [relay]
    selector = "fast-then-cheap"

    [plugins.fast-then-cheap]
    fast = 40
"""

from random import Random
from typing import Annotated

import msgspec

from bruit.plugins.hookspecs import ClusterOption, Selection, hookimpl


class FastThenCheapConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fast: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 32  # chunks, from the first on
    explore: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05  # share that tries any cluster


class FastThenCheap:
    Config = FastThenCheapConfig

    def __init__(self, config: FastThenCheapConfig) -> None:
        self._config = config

    @hookimpl
    def select_cluster(self, selection: Selection, rng: Random) -> int:
        if rng.random() < self._config.explore:
            return rng.choice(selection.options).cluster
        fast = selection.chunk_index < self._config.fast
        return min(selection.options, key=_slowness if fast else _cost).cluster


def _slowness(option: ClusterOption) -> tuple[int, float]:
    return option.recent_failures, 1.0 if option.latency is None else option.latency


def _cost(option: ClusterOption) -> tuple[int, int]:
    return option.recent_failures, option.price
