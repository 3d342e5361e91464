"""One peer on the wire: its send queue, and the loop that empties it."""

import trio
from libp2p.abc import INetStream

from bruit.node.gossip.actions import Lane
from bruit.node.gossip.sendqueue import SendQueue
from bruit.node.gossip.wire import encode_uvarint
from bruit.topics.keys import PeerId

WRITE_SIZE = 65_536  # bytes gathered into one write: what fits one noise record, nearly


class Traffic:
    """Bytes and frames over one peer's streams, both ways, length prefixes included."""

    __slots__ = ("bytes_in", "bytes_out", "frames_in", "frames_out")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = 0

    def add(self, other: "Traffic") -> None:
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.frames_in += other.frames_in
        self.frames_out += other.frames_out


class Link:
    """What the driver keeps for a connected peer. Queueing never waits; only writing does."""

    def __init__(self, peer: PeerId) -> None:
        self.peer = peer
        self.queue = SendQueue()
        self.traffic = Traffic()
        self.ready = trio.Event()  # our stream to it is open and the router knows
        self.scope = trio.CancelScope()  # of everything that serves the peer
        self.inbound: INetStream | None = None  # the stream that is read
        self.slow = False  # has kept a publisher waiting, and has not caught up since
        self._writing = False
        self._work = trio.lowlevel.ParkingLot()  # the writer, while there is nothing to write
        self._room = trio.lowlevel.ParkingLot()  # publishers, while there is no room

    def send_control(self, frame: bytes) -> bool:
        queued = self.queue.push_control(frame)
        self._work.unpark()
        return queued

    def send_message(self, message_id: bytes, frame: bytes, lane: Lane) -> bool:
        queued = self.queue.push_message(message_id, frame, lane)
        self._work.unpark()
        return queued

    async def write_frames(self, stream: INetStream) -> None:
        """Write what is queued, many frames at a time, until cancelled or the stream fails."""
        while True:
            if self.queue.empty:
                self.slow = False
                await self._work.park()
            self._writing = True
            await stream.write(self._gather())
            self._writing = False
            self._room.unpark_all()

    def _gather(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while size < WRITE_SIZE and (frame := self.queue.pop()) is not None:
            prefix = encode_uvarint(len(frame))
            parts += (prefix, frame)
            size += len(prefix) + len(frame)
            self.traffic.frames_out += 1
        self.traffic.bytes_out += size
        return b"".join(parts)

    async def wait_for_room(self, size: int, patience: float) -> None:
        """Wait until an own message of ``size`` bytes fits, or the peer proves slow.

        A peer that takes longer than ``patience`` seconds is not waited for again
        until it has read everything.
        """
        with trio.move_on_after(patience):
            while not self.slow and not self.queue.has_room(Lane.OWN, size):
                await self._room.park()
            return
        self.slow = True

    async def flush(self) -> None:
        """Wait until all that was queued is written."""
        while self._writing or not self.queue.empty:
            await self._room.park()

    def wake(self) -> None:
        """Have the writer find out whether its stream still works."""
        self._work.unpark()

    def reset(self) -> None:
        """Our stream is gone, and with it what was queued."""
        self.ready = trio.Event()
        self.queue = SendQueue()
        self._writing = False
        self._room.unpark_all()

    def close(self) -> None:
        """Stop serving the peer and release whoever waits for it."""
        self.slow = True
        self.reset()
        self.scope.cancel()

    @property
    def closed(self) -> bool:
        return self.scope.cancel_called
