"""How a selector that has a favourite finds out about the others."""

from collections.abc import Sequence
from random import Random
from typing import Annotated

import msgspec

from bruit.plugins.hookspecs import ClusterOption

Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]

# Share of chunks that explore. Guess: two or three of the 48 chunks of a broadcast, which a code
# that can miss 16 does not feel.
EXPLORE = 0.05


def is_known(option: ClusterOption) -> bool:
    """Whether a chunk has ever been sent through this cluster."""
    return option.acknowledgement_rate is not None


def explored(options: Sequence[ClusterOption], explore: float, rng: Random) -> ClusterOption | None:
    """With probability ``explore`` an option whatever its worth, else None.

    Those that have never been used come first; among them, or all where none is left, chance
    decides. One of them also where no option has been used at all.
    """
    unknown = [option for option in options if not is_known(option)]
    if rng.random() < explore or len(unknown) == len(options):
        return rng.choice(unknown or options)
    return None
