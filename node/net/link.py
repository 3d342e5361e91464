"""One peer on the wire: its send queue, and the loop that empties it."""

from contextlib import suppress

import trio
from libp2p.abc import IMuxedStream, INetStream

from bruit.node.gossip.actions import Lane
from bruit.node.gossip.sendqueue import SendQueue
from bruit.node.net.framing import MAX_PREFIX
from bruit.node.net.host import NETWORK_ERRORS, beneath
from bruit.node.net.yamux import YamuxStream
from bruit.node.net.yamux_session import MAX_BODY
from bruit.topics.keys import PeerId
from bruit.topics.uvarint import encode_uvarint

FAREWELL = 1.0  # seconds a peer has to read the last of what we wrote; guess
WRITE_SIZE = 4 * MAX_BODY  # bytes gathered at a time: whole frames of yamux; guess


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
        self.outbound: INetStream | None = None  # the stream that is written
        self.ended = trio.Event()  # the peer has ended its half of that stream
        self.finishing = False  # we have ended ours, for good
        self.inbound: dict[object, INetStream] = {}  # connection → the stream that is read there
        self.inbound_count = 0  # how many there have been
        self.slow = False  # has kept a publisher waiting, and has not caught up since
        self._wire: IMuxedStream | None = None  # beneath `outbound`
        self._writing = 0  # frames in the write under way
        self._writing_control: list[bytes] = []  # the control frames among them
        self._work = trio.lowlevel.ParkingLot()  # the writer, while there is nothing to write
        self._room = trio.lowlevel.ParkingLot()  # publishers, while there is no room

    def send_control(self, frame: bytes) -> bool:
        return self.queue.push_control(frame)

    def send_message(self, message_id: bytes, frame: bytes, lane: Lane) -> bool:
        return self.queue.push_message(message_id, frame, lane)

    def go(self) -> None:
        """Have what was queued written, at once where the writer is idle and little is to do.

        That spares two passes of the scheduler, most of what forwarding one message costs.
        """
        wire, queue = self._wire, self.queue
        if self._work and isinstance(wire, YamuxStream):
            size = queue.byte_count + MAX_PREFIX * len(queue)
            if 0 < size <= wire.room:
                wire.write_now(self._gather())
                self._written()
                return
        self._work.unpark()

    async def write_frames(self, stream: INetStream) -> None:
        """Write what is queued, many frames at a time, until cancelled or the stream fails."""
        wire = beneath(stream)
        self._wire = wire
        while True:
            if self.queue.empty:
                self.slow = False
                await self._work.park()
            await wire.write(self._gather())  # of nothing, too: see wake
            self._written()

    def _written(self) -> None:
        self._writing = 0
        self._writing_control.clear()
        self._room.unpark_all()

    async def watch(self, stream: INetStream, writing: trio.CancelScope) -> None:
        """End the writing when the peer ends its half of our stream, on which it says nothing.

        rust-libp2p does so where it refuses a frame, and drops what comes after silently.
        """
        with suppress(*NETWORK_ERRORS):
            await stream.read(1)
        self.ended.set()
        writing.cancel()

    def _gather(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while size < WRITE_SIZE and not self.queue.empty:
            is_control, frame = self.queue.has_control, self.queue.pop()
            assert frame is not None  # the queue is not empty
            prefix = encode_uvarint(len(frame))
            parts += (prefix, frame)
            size += len(prefix) + len(frame)
            self._writing += 1
            if is_control:
                self._writing_control.append(frame)
        self.traffic.frames_out += self._writing
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

    async def finish(self) -> None:
        """End our stream when all is written, and wait until the peer has read it.

        It then ends its half, as go-libp2p-pubsub does. What a peer has not read
        when the connection ends is lost to it, where it runs py-libp2p.
        """
        await self.flush()
        stream, ended = self.outbound, self.ended  # which may be gone before it has answered
        if stream is None:
            return
        self.finishing = True
        with trio.move_on_after(FAREWELL), suppress(*NETWORK_ERRORS):
            await stream.close()
            await ended.wait()

    def wake(self) -> None:
        """Have the writer write what is queued, or find out whether its stream still works."""
        self._work.unpark()

    def lose(self) -> tuple[int, tuple[bytes, ...]]:
        """Our stream is gone: how many frames may be lost with it, and the control frames."""
        self._wire = None
        count, control = self._writing, self._writing_control
        while not self.queue.empty:
            is_control, frame = self.queue.has_control, self.queue.pop()
            if is_control and frame is not None:
                control.append(frame)
            count += 1
        self._writing, self._writing_control = 0, []
        self._room.unpark_all()
        return count, tuple(control)

    def close(self) -> None:
        """Stop serving the peer and release whoever waits for it."""
        self.slow = True
        self.lose()
        self.scope.cancel()

    @property
    def closed(self) -> bool:
        return self.scope.cancel_called
