"""Virtual time: what is due, and when.

Time stands still while things happen and jumps to the next one afterwards.
What is due at the same time happens in the order in which it was asked for.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from bruit.topics.errors import LocalError

Function = Callable[[Any, Any], None]


class Clock:
    """The time in seconds, ``now``, and a heap of calls that are due later.

    A call is a function and its two arguments rather than a closure, because
    there is one for every frame.
    """

    __slots__ = ("_due", "_order", "happened", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0  # calls made so far
        self._due: list[tuple[float, int, Function, Any, Any]] = []
        self._order = count()

    def at(self, time: float, function: Function, subject: object, argument: object) -> None:
        """Call ``function(subject, argument)`` at ``time``; now, if that has passed."""
        if time < self.now:
            time = self.now
        heapq.heappush(self._due, (time, next(self._order), function, subject, argument))

    def run_until(self, time: float) -> None:
        """Let everything happen that is due until ``time``, inclusive, and stop there."""
        if not time >= self.now:
            raise LocalError(f"it is {self.now} s: time cannot go on to {time} s")
        due, pop = self._due, heapq.heappop
        while due and due[0][0] <= time:
            self.now, _, function, subject, argument = pop(due)
            self.happened += 1
            function(subject, argument)
        self.now = time
