"""Random choices among peers, without looking at more of them than are chosen."""

import random
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def some_of(pool: list[T], count: int, rng: random.Random, accept: Callable[[T], bool]) -> list[T]:
    """Up to ``count`` of ``pool``, drawn until enough are accepted. ``pool`` is used up."""
    chosen: list[T] = []
    left = len(pool)
    while left and len(chosen) < count:
        # Not randrange, of which this is the tenth part; what it favours is below 2^-40.
        at = int(rng.random() * left)
        drawn = pool[at]
        left -= 1
        pool[at] = pool[left]
        if accept(drawn):
            chosen.append(drawn)
    return chosen
