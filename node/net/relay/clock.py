"""Unix time that never goes back: what the relay's machines are told."""

import time

import trio


class UnixClock:
    """The wall clock as it was when this was made, and trio's clock since.

    Whoever sets the wall clock meanwhile is not followed: a machine's time must not go back.
    """

    def __init__(self) -> None:
        self._ahead = time.time() - trio.current_time()

    def now(self) -> float:
        """Unix time, seconds."""
        return trio.current_time() + self._ahead

    def on_trio(self, at: float) -> float:
        """Unix time ``at`` on trio's clock."""
        return at - self._ahead
