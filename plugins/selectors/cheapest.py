"""`cheapest-selector`: the lowest price; of equal prices the first in the order of the protocol.

A cluster that failed ``max_failures`` times in a row is passed over while another has not, but for
one chunk in ``1 / retry``, for which it competes like the others: one that is back is found so.
"""

from random import Random
from typing import Annotated

import msgspec

from bruit.plugins.hookspecs import Selection, hookimpl
from bruit.plugins.selectors.favourite import EXPLORE, Probability


class CheapestConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of cheapest-selector."""

    # Failures in a row from which a cluster is passed over; guess.
    max_failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3

    # Share of chunks for which failures are forgotten.
    retry: Probability = EXPLORE


class CheapestSelector:
    Config = CheapestConfig

    def __init__(self, config: CheapestConfig) -> None:
        self._config = config

    @hookimpl
    def select_cluster(self, selection: Selection, rng: Random) -> int:
        limit = self._config.max_failures
        works = [option for option in selection.options if option.recent_failures < limit]
        if not works or rng.random() < self._config.retry:
            works = list(selection.options)
        return min(works, key=lambda option: option.price).cluster
