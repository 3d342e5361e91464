"""A producer's own stake: which tokens back which broadcast, and when they are free again.

Stake attached at timestamp t may be attached again at t + refresh interval, not before: two
attestations over the same tokens whose timestamps are nearer than that are evidence against the
producer. A broadcast gets one piece of stake, or none.
"""

import math
from collections.abc import Iterator

import msgspec


class Allocation(msgspec.Struct, frozen=True):
    """Tokens from ``start`` to before ``end``, attached at ``timestamp``."""

    start: int
    end: int
    timestamp: int  # Unix time, seconds


class StakeBook:
    """Who calls hands in timestamps that may go back, but by less than the refresh interval."""

    def __init__(self, refresh_interval: float) -> None:
        self.stake = 0  # tokens that may be attached: those from 0 to before this one
        self._interval = math.ceil(refresh_interval)  # timestamps are whole seconds
        self._live: list[Allocation] = []  # by start

    def attach(self, size: int, timestamp: int) -> Allocation | None:
        """Take the first ``size`` ≥ 1 tokens that are free in one piece, or None."""
        start = self._gap(size, timestamp)
        if start is None:
            return None
        allocation = Allocation(start, start + size, timestamp)
        self.restore(allocation)
        return allocation

    def restore(self, allocation: Allocation) -> None:
        """Enter what an earlier run has attached."""
        self._live.append(allocation)
        self._live.sort(key=lambda each: each.start)

    def forget(self, timestamp: int) -> None:
        """Drop what is free again at ``timestamp``; nothing earlier will be asked for."""
        self._live = list(self._backing(timestamp))

    def free(self, timestamp: int) -> int:
        """Tokens free at ``timestamp``, in however many pieces."""
        return sum(end - start for start, end in self._gaps(timestamp))

    def free_at(self, size: int, timestamp: int) -> int | None:
        """When ``size`` tokens will be free in one piece, or None: there are not so many."""
        times = sorted(each.timestamp + self._interval for each in self._backing(timestamp))
        return next(
            (at for at in (timestamp, *times) if self._gap(size, at) is not None),
            None,
        )

    def _backing(self, timestamp: int) -> Iterator[Allocation]:
        """What may not be attached anew at ``timestamp``, by start."""
        return (each for each in self._live if timestamp - each.timestamp < self._interval)

    def _gap(self, size: int, timestamp: int) -> int | None:
        return next(
            (start for start, end in self._gaps(timestamp) if end - start >= size),
            None,
        )

    def _gaps(self, timestamp: int) -> Iterator[tuple[int, int]]:
        """Every piece that is free, by start."""
        free_from = 0
        for each in self._backing(timestamp):
            end = min(each.start, self.stake)  # the stake may have shrunk since
            if end > free_from:
                yield free_from, end
            free_from = max(free_from, each.end)
        if self.stake > free_from:
            yield free_from, self.stake
