"""`random-selector`: every option alike.

What a cluster does earns it nothing here, so nobody can buy or earn more than its share of a block.
"""

from random import Random

import msgspec

from bruit.plugins.hookspecs import Selection, hookimpl


class RandomConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of random-selector: none."""


class RandomSelector:
    Config = RandomConfig

    def __init__(self, config: RandomConfig) -> None:
        pass

    @hookimpl
    def select_cluster(self, selection: Selection, rng: Random) -> int:
        return rng.choice(selection.options).cluster
