"""`qos-selector`: the cluster from which an acknowledgement is expected soonest.

What a cluster acknowledges, and passes on, with probability p after L seconds, and what else costs
a time-out of T seconds before the next attempt, is expected after

    L + T · ((1 − p) / p + recent failures)

where p is the acknowledgement rate times the delivery rate, as far as that has been observed, and
each failure since the last success counts as one more time-out: the decayed rates alone would
notice an outage late. Of equals, the first in the order of the protocol.

One chunk in ``1 / explore`` goes elsewhere: to a cluster that has never been used, or to any option
where all have been (`favourite.explored`). Without it a cluster that was slow once would be
slow for ever.
"""

from random import Random
from typing import Annotated

import msgspec

from bruit.plugins.hookspecs import ClusterOption, Selection, hookimpl
from bruit.plugins.selectors.favourite import EXPLORE, Probability, explored, is_known

MIN_RATE = 0.01  # a rate below counts as this; guess: keeps the expectation finite


class QosConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of qos-selector."""

    # Seconds that a chunk without acknowledgement costs: the relay's acknowledgement time-out.
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 1.5

    # Share of chunks that find out about other clusters.
    explore: Probability = EXPLORE


class QosSelector:
    Config = QosConfig

    def __init__(self, config: QosConfig) -> None:
        self._config = config

    @hookimpl
    def select_cluster(self, selection: Selection, rng: Random) -> int:
        found = explored(selection.options, self._config.explore, rng)
        if found is None:
            known = [option for option in selection.options if is_known(option)]
            found = min(known, key=self._expected)
        return found.cluster

    def _expected(self, option: ClusterOption) -> float:
        """Seconds until an acknowledgement of what is passed on."""
        timeout = self._config.timeout
        latency = timeout if option.latency is None else option.latency  # None: never acknowledged
        delivery = 1.0 if option.delivery_rate is None else option.delivery_rate
        rate = max(MIN_RATE, (option.acknowledgement_rate or 0.0) * delivery)
        return latency + timeout * ((1 - rate) / rate + option.recent_failures)
