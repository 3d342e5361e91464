"""Turns at an uplink: a few write at a time, in the order in which they asked.

Where all chunks of a block are written at once, they share the uplink, and none is out before
most of them are. In turns the first are passed on while the last are written. Who is slow over it
does not keep the others waiting: its turn ends, and it writes on beside the next.
"""

import trio


class Turns:
    """``count`` at a time, each for ``length`` seconds at most."""

    def __init__(self, count: int, length: float) -> None:
        self._count = count
        self._length = length
        self._line = trio.StrictFIFOLock()
        self._taken: dict[object, float] = {}  # turn → when it ends by itself, on trio's clock
        self._ended = trio.lowlevel.ParkingLot()

    async def take(self) -> object:
        """Wait for a turn."""
        async with self._line:
            while True:
                now = trio.current_time()
                self._taken = {turn: until for turn, until in self._taken.items() if until > now}
                if len(self._taken) < self._count:
                    turn = object()
                    self._taken[turn] = now + self._length
                    return turn
                with trio.move_on_at(min(self._taken.values())):
                    await self._ended.park()

    def end(self, turn: object) -> None:
        """Let the next one write, if the turn is not over already."""
        if self._taken.pop(turn, None) is not None:
            self._ended.unpark()
