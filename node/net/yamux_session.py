"""yamux as a state machine: frames, windows and who has ended what. Bytes in, bytes out.

The protocol is hashicorp's yamux as the libp2p specification takes it over; where
both leave a choice, go-yamux is followed. What a peer can make this hold is bounded
by the constants below: more than that costs it the stream, or the connection.
"""

from collections import deque
from struct import Struct

from libp2p.stream_muxer.exceptions import MuxedConnError

_HEADER = Struct(">BBHII")  # version, type, flags, stream, length; yamux, "Framing"
HEADER_SIZE = _HEADER.size
DATA, WINDOW_UPDATE, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8
NORMAL, PROTOCOL_ERROR = range(2)  # why a session ends; yamux, "Go Away"

MAX_BODY = 65_507  # bytes of a frame that we write: with its header it fills one noise record
INITIAL_WINDOW = 256 * 1024  # yamux, "Flow Control"
MAX_WINDOW = 4 * 1024 * 1024  # of one stream; guess: a gossipsub frame of the largest size
MAX_GROWTH = 8 * 1024 * 1024  # that windows exceed the initial one, in sum; guess
MAX_UNREAD = 16 * 1024 * 1024  # bytes that wait to be read, of all streams; guess
MAX_INCOMING = 256  # streams that a peer has open with us at a time; py-libp2p's number for ours
MAX_OUTGOING = 256  # that we have open; py-libp2p
MAX_LINGERING = 256  # that we have ended and the peer has not; guess
MAX_REFUSALS = 1024  # resets that wait to be written; guess
MAX_PONGS = 8  # pings that wait to be answered; go-yamux keeps one
ROOM = 256 * 1024  # bytes waiting to be written, beyond which writers wait; guess, twice is alike
MAX_QUEUED = 2 * ROOM  # with the frames that wait for no room, beyond which no stream is taken
LAST_ID = 2**32 - 1


class ProtocolViolationError(MuxedConnError):
    """The peer broke the rules of yamux; the session is over."""


class SessionEndedError(MuxedConnError):
    """The peer said that it goes away. As rust-yamux and py-libp2p do, we do not wait for more."""


class Flow:
    """One stream's state. Whoever drives the session reads these, and changes none."""

    __slots__ = (
        "acknowledged",
        "closed",
        "credit",
        "ended",
        "id",
        "lost",
        "ours",
        "reset",
        "target",
        "unread",
        "window",
    )

    def __init__(self, stream_id: int, ours: bool) -> None:
        self.id = stream_id
        self.ours = ours  # we opened it
        self.acknowledged = ours  # the peer knows that we accepted it
        self.credit = INITIAL_WINDOW  # bytes that we may write
        self.window = INITIAL_WINDOW  # bytes that the peer may write
        self.target = INITIAL_WINDOW  # what its window is raised to
        self.unread = bytearray()
        self.closed = False  # we write no more
        self.ended = False  # the peer writes no more
        self.reset = False  # either side broke it off
        self.lost = False  # the connection ended

    @property
    def gone(self) -> bool:
        """No more is sent, either way. What has come may still be read."""
        return self.reset or self.lost or (self.closed and self.ended)


class Session:
    """All streams of one connection.

    After each call, ``changed`` names the flows that somebody may wait for, and
    ``waiting`` says whether there is something to write; the driver empties both.
    """

    def __init__(self, is_initiator: bool) -> None:
        self._next_id = 1 if is_initiator else 2
        self.flows: dict[int, Flow] = {}  # those that are not gone
        self.accepted: deque[Flow] = deque()  # the peer's, not handed out yet
        self.changed: dict[Flow, None] = {}
        self.incoming = self.outgoing = 0  # streams that count against the limits
        self.unread = 0  # bytes
        self.growth = 0  # bytes by which windows exceed the initial one
        self.over = False
        self._lingering: dict[Flow, None] = {}  # the longest first
        # Received
        self._header = bytearray()  # part of one
        self._body = 0  # bytes of the current frame that are still to come
        self._flow: Flow | None = None  # whose they are; None: nobody's
        self._flags = 0  # that count after them
        # To be written
        self._updates: dict[Flow, int] = {}
        self._refusals: list[bytes] = []
        self._pongs: list[bytes] = []
        self._queue: list[bytes | memoryview] = []
        self.queued = 0  # bytes of it

    # Reading

    def receive(self, data: bytes) -> int:
        """Take what the peer wrote; how many frames began in it. Raises ProtocolViolationError."""
        view, position, end, frames = memoryview(data), 0, len(data), 0
        while position < end:
            if self._body:
                size = min(self._body, end - position)
                if self._flow is not None:
                    self._take(self._flow, view[position : position + size])
                position += size
                self._body -= size
                if not self._body and self._flow is not None:
                    self._end(self._flow, self._flags)
                continue
            if self._header or end - position < HEADER_SIZE:
                missing = HEADER_SIZE - len(self._header)
                self._header += view[position : position + missing]
                position += missing
                if len(self._header) < HEADER_SIZE:
                    break
                fields = _HEADER.unpack(self._header)
                self._header.clear()
            else:
                fields = _HEADER.unpack_from(view, position)
                position += HEADER_SIZE
            frames += 1
            self._begin(*fields)
        return frames

    def _begin(self, version: int, kind: int, flags: int, stream_id: int, length: int) -> None:
        if version != 0:
            raise ProtocolViolationError(f"yamux version {version}")
        if kind == DATA:
            flow = self._addressed(stream_id, flags)
            if flow is not None and not flow.ended:
                if length > flow.window:
                    raise ProtocolViolationError(f"{length} bytes for a window of {flow.window}")
            else:  # what was under way when the stream ended
                flow = None
                if length > MAX_WINDOW:
                    raise ProtocolViolationError(f"{length} bytes for no stream")
            self._flow, self._body, self._flags = flow, length, flags
            if not length and flow is not None:
                self._end(flow, flags)
        elif kind == WINDOW_UPDATE:
            flow = self._addressed(stream_id, flags)
            if flow is not None:
                flow.credit += length
                self.changed[flow] = None
                self._end(flow, flags)
        elif kind == PING:
            if flags & SYN and len(self._pongs) < MAX_PONGS:
                self._pongs.append(_HEADER.pack(0, PING, ACK, 0, length))
        elif kind == GO_AWAY:
            raise SessionEndedError(f"the peer ended the yamux session with code {length}")
        else:
            raise ProtocolViolationError(f"yamux frame type {kind}")

    def _addressed(self, stream_id: int, flags: int) -> Flow | None:
        """The flow that a frame is for. None: of a stream that is gone, or refused."""
        if not flags & SYN:
            return self.flows.get(stream_id)
        if stream_id == 0 or stream_id % 2 == self._next_id % 2:
            raise ProtocolViolationError(f"stream id {stream_id} is not the peer's to give")
        if stream_id in self.flows:
            raise ProtocolViolationError(f"stream {stream_id} opened twice")
        if self.queued > MAX_QUEUED:
            raise ProtocolViolationError("streams opened by a peer that reads nothing")
        if self.over or max(self.incoming, len(self.accepted)) >= MAX_INCOMING:
            if len(self._refusals) >= MAX_REFUSALS:
                raise ProtocolViolationError("streams opened beyond the limit, without end")
            self._refusals.append(_HEADER.pack(0, WINDOW_UPDATE, RST, stream_id, 0))
            return None
        flow = self.flows[stream_id] = Flow(stream_id, ours=False)
        self.incoming += 1
        self.accepted.append(flow)
        self._updates[flow] = 0  # the acknowledgement
        return flow

    def _take(self, flow: Flow, data: memoryview) -> None:
        if flow.gone:
            return
        flow.unread += data
        flow.window -= len(data)
        self.unread += len(data)
        self.changed[flow] = None
        if self.unread > MAX_UNREAD:
            self.reset(flow)

    def _end(self, flow: Flow, flags: int) -> None:
        """What a frame's flags say about the end of its stream."""
        if flow.gone:
            return
        if flags & RST:
            self._break_off(flow)
        elif flags & FIN:
            flow.ended = True
            self.changed[flow] = None
            if flow.closed:
                self._forget(flow)

    def read(self, flow: Flow, size: int) -> bytes:
        """Up to so many bytes of what has come, and more window for the peer where it is due."""
        unread = flow.unread
        if size >= len(unread):
            data, flow.unread = bytes(unread), bytearray()
        else:
            data = bytes(memoryview(unread)[:size])
            del unread[:size]
        if not flow.gone:
            self.unread -= len(data)
            self._widen(flow)
        return data

    def _widen(self, flow: Flow) -> None:
        """Raise the peer's window again when it has used half of it, and double it then."""
        due = flow.target - flow.window - len(flow.unread)
        if flow.ended or 2 * due < flow.target:
            return
        growth = min(flow.target, MAX_WINDOW - flow.target, MAX_GROWTH - self.growth)
        flow.target += growth
        flow.window += due + growth
        self.growth += growth
        self._updates[flow] = self._updates.get(flow, 0) + due + growth

    # Writing

    def open(self) -> Flow:
        """A stream of ours. The caller minds ``can_open``."""
        if self._next_id > LAST_ID:
            raise MuxedConnError("no stream ids are left")
        flow = self.flows[self._next_id] = Flow(self._next_id, ours=True)
        self._next_id += 2
        self.outgoing += 1
        self._enqueue(_HEADER.pack(0, WINDOW_UPDATE, SYN, flow.id, 0))
        return flow

    @property
    def can_open(self) -> bool:
        return self.outgoing < MAX_OUTGOING

    def room(self, flow: Flow) -> int:
        """Bytes that `write` takes whole, where there are no more of them than one frame has."""
        return min(MAX_BODY, flow.credit) if self.queued < ROOM else 0

    def write(self, flow: Flow, data: memoryview) -> int:
        """How many bytes of ``data`` window and queue take. They are whole frames then."""
        taken, size = 0, len(data)
        while taken < size and flow.credit and self.queued < ROOM:
            body = min(MAX_BODY, flow.credit, size - taken)
            self._enqueue(_HEADER.pack(0, DATA, 0, flow.id, body))
            self._enqueue(data[taken : taken + body])
            flow.credit -= body
            taken += body
        return taken

    def close(self, flow: Flow) -> None:
        """End our half."""
        if flow.closed or flow.gone:
            return
        flow.closed = True
        self.changed[flow] = None
        self._enqueue(_HEADER.pack(0, WINDOW_UPDATE, FIN, flow.id, 0))
        if flow.ended:
            self._forget(flow)
            return
        if flow.ours:
            self.outgoing -= 1
        self._lingering[flow] = None
        if len(self._lingering) > MAX_LINGERING:
            self.reset(next(iter(self._lingering)))

    def reset(self, flow: Flow) -> None:
        """Break the stream off, both ways."""
        if not flow.gone:
            self._enqueue(_HEADER.pack(0, WINDOW_UPDATE, RST, flow.id, 0))
        self._break_off(flow)

    def go_away(self, code: int) -> None:
        """Announce the end. What is queued goes out before it."""
        if not self.over:
            self._enqueue(_HEADER.pack(0, GO_AWAY, 0, 0, code))
            self.over = True

    def fail(self) -> None:
        """The connection is gone: so are all streams, with what has come still to be read."""
        self.over = True
        for flow in list(self.flows.values()):
            flow.lost = True
            self._forget(flow)

    @property
    def waiting(self) -> bool:
        return bool(self._queue or self._updates or self._pongs or self._refusals)

    def take(self) -> list[bytes | memoryview]:
        """All there is to write, in whole frames."""
        parts: list[bytes | memoryview] = [*self._pongs, *self._refusals]
        for flow, increment in self._updates.items():
            flags = 0 if flow.acknowledged else ACK
            flow.acknowledged = True
            parts.append(_HEADER.pack(0, WINDOW_UPDATE, flags, flow.id, increment))
        parts += self._queue
        for queue in (self._pongs, self._refusals, self._updates, self._queue):
            queue.clear()
        self.queued = 0
        return parts

    def _enqueue(self, part: bytes | memoryview) -> None:
        self._queue.append(part)
        self.queued += len(part)

    def _break_off(self, flow: Flow) -> None:
        if not flow.gone:
            self._forget(flow)
        flow.reset = True
        flow.unread = bytearray()

    def _forget(self, flow: Flow) -> None:
        """Release what the flow takes of the session's limits."""
        del self.flows[flow.id]
        if not flow.ours:
            self.incoming -= 1
        elif flow not in self._lingering:
            self.outgoing -= 1
        self._lingering.pop(flow, None)
        self._updates.pop(flow, None)
        self.unread -= len(flow.unread)
        self.growth -= flow.target - INITIAL_WINDOW
        self.changed[flow] = None
