"""What the plugins of a node together think of a peer (P5 of its score)."""

import math
from collections.abc import Sequence

from bruit.plugins.containment import ContainedHook
from bruit.topics.errors import PluginError
from bruit.topics.keys import PeerId

MAX_APP_SCORE = 1e12  # either way, of one plugin; guess: far over any threshold, far from overflow


class AppScorer:
    """Calls one hook after the other; for one thread at a time. Falsy without hooks."""

    def __init__(self, hooks: Sequence[ContainedHook[float]]) -> None:
        self._hooks = hooks

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def __call__(self, peer: PeerId) -> float:
        """The sum of all contributions. A plugin that fails or is switched off adds 0."""
        total = 0.0
        for hook in self._hooks:
            try:
                total += hook(peer)
            except PluginError:  # counted and logged where it was raised
                continue
        return total


def checked_score(result: object) -> float:
    """``result`` as a float; TypeError or ValueError when it is no number that can be added up."""
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise TypeError(f"returned {type(result).__name__} where a number is due")
    score = float(result)
    if not math.isfinite(score) or abs(score) > MAX_APP_SCORE:
        raise ValueError(f"returned {score}, which is not within ±{MAX_APP_SCORE:g}")
    return score
