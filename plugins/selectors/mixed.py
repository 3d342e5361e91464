"""`mixed-selector`: a weighted sum of what speaks for a cluster.

Each criterion gives every option a mark from 0 to 1:

- price and latency: 1 for the lowest of the options, 0 for the highest, in between in proportion;
- acknowledgement rate, delivery rate and reputation: as they are;
- score: the peer scores of its members, the newest counting most (`recent`), 1 for the highest
  of the options, 0 for the lowest.

Where a value is missing, the mark is 0.5. The highest sum of weight × mark wins, halved for each
failure in a row; of equals, the first in the order of the protocol. Explores as `qos` does.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Annotated

import msgspec

from bruit.plugins.hookspecs import ClusterOption, Selection, hookimpl
from bruit.plugins.selectors.favourite import EXPLORE, Probability, explored
from bruit.plugins.selectors.reputation import halved, watched

NAME = "mixed-selector"
UNSAID = 0.5  # the mark where a value is missing; guess: neither good nor bad
FADING = 0.5  # weight of a score against the one after it; guess: the last three or four count

Weight = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class MixedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of mixed-selector. All default weights are guesses."""

    # What a criterion counts, against the others.
    price: Weight = 1.0
    latency: Weight = 1.0
    acknowledgement_rate: Weight = 2.0
    delivery_rate: Weight = 2.0
    reputation: Weight = 0.0
    score: Weight = 1.0

    # As of reputation-selector; needed where reputation has a weight.
    reputation_file: str = ""

    # Share of chunks that find out about other clusters.
    explore: Probability = EXPLORE

    def __post_init__(self) -> None:
        if bool(self.reputation) != bool(self.reputation_file):
            raise ValueError("reputation and reputation_file: give both or none")
        weights = (self.price, self.latency, self.acknowledgement_rate, self.delivery_rate)
        if not any((*weights, self.reputation, self.score)):
            raise ValueError("all weights are 0: give one criterion a weight")


class MixedSelector:
    Config = MixedConfig

    def __init__(self, config: MixedConfig) -> None:
        """Raises ConfigError for a reputation file that cannot be used."""
        self._config = config
        self._file = (
            watched(NAME, config.reputation_file, "reputation_file")
            if config.reputation_file
            else None
        )

    @hookimpl
    def select_cluster(self, selection: Selection, rng: Random) -> int:
        options = selection.options
        found = explored(options, self._config.explore, rng)
        if found is not None:
            return found.cluster
        sums = self._sums(options)
        best = max(
            range(len(options)), key=lambda at: halved(sums[at], options[at].recent_failures)
        )
        return options[best].cluster

    def _sums(self, options: Sequence[ClusterOption]) -> list[float]:
        config = self._config
        criteria = (
            (config.price, _lowest([option.price for option in options])),
            (config.latency, _lowest([option.latency for option in options])),
            (config.acknowledgement_rate, [option.acknowledgement_rate for option in options]),
            (config.delivery_rate, [option.delivery_rate for option in options]),
            (config.reputation, [self._reputation(option.cluster) for option in options]),
            (config.score, _highest([recent(option.score_history) for option in options])),
        )
        return [
            sum(weight * _said(marks[at]) for weight, marks in criteria)
            for at in range(len(options))
        ]

    def _reputation(self, cluster: int) -> float | None:
        if self._file is None:
            return None
        self._file.refresh()
        return self._file.value.get(cluster)


def _said(mark: float | None) -> float:
    return UNSAID if mark is None else mark


def recent(scores: Sequence[float]) -> float | None:
    """Mean of scores, each weighing `FADING` of the one after it; None without any."""
    total = weights = 0.0
    for score in scores:
        total = total * FADING + score
        weights = weights * FADING + 1
    return total / weights if weights else None


def _lowest(values: Sequence[float | None]) -> list[float | None]:
    """1 for the lowest value, 0 for the highest."""
    return _marks(values, lambda value, low, high: (high - value) / (high - low))


def _highest(values: Sequence[float | None]) -> list[float | None]:
    """1 for the highest value, 0 for the lowest."""
    return _marks(values, lambda value, low, high: (value - low) / (high - low))


def _marks(
    values: Sequence[float | None], mark: Callable[[float, float, float], float]
) -> list[float | None]:
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if low == high:  # nothing to tell them apart by
        return [None if value is None else 1.0 for value in values]
    return [None if value is None else mark(value, low, high) for value in values]
