"""What is kept for a reader that is behind, as an async iterator."""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

import trio

Item = TypeVar("Item")


class Backlog(Generic[Item]):
    """An async iterator over what is put in; leave it as a context manager.

    Not a memory channel: that takes a pass of the scheduler for each item, in which a reader
    puts in dozens. Who derives from it decides how much it holds, and counts the rest as lost.
    """

    def __init__(self, on_close: Callable[[], None]) -> None:
        self.lost = 0
        self._on_close = on_close
        self._items: deque[Item] = deque()
        self._arrived = trio.lowlevel.ParkingLot()
        self._closed = False

    def _put(self, item: Item) -> None:
        self._items.append(item)
        if self._arrived:
            self._arrived.unpark()

    def close(self) -> None:
        """End the iteration after what has been put in."""
        self._closed = True
        self._arrived.unpark_all()
        self._on_close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        if self._items:
            await trio.lowlevel.checkpoint_if_cancelled()
        while not self._items:
            if self._closed:
                raise StopAsyncIteration
            await self._arrived.park()
        return self._items.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
