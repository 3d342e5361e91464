"""yamux over a secured connection: the tasks that read and write, and what streams wait for.

A stream puts whole frames into the session's queue and one task writes them, so a
stream can be cancelled wherever it waits: no frame is ever cut.
"""

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import trio
from libp2p.abc import IMuxedConn, IMuxedStream, ISecureConn
from libp2p.connection_types import ConnectionType
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IOException
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import (
    MuxedConnError,
    MuxedConnUnavailable,
    MuxedStreamClosed,
    MuxedStreamEOF,
    MuxedStreamReset,
)
from libp2p.stream_muxer.muxer_multistream import MuxerMultistream
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID
from multiaddr import Multiaddr

from bruit.node.net.secure import SecureConnection
from bruit.node.net.yamux_session import (
    NORMAL,
    PROTOCOL_ERROR,
    Flow,
    ProtocolViolationError,
    Session,
)

YAMUX = TProtocol(PROTOCOL_ID)
PATIENCE = 0.5  # seconds a peer has to take what is queued when we close; guess
MANY_FRAMES = 256  # in one record, after which other tasks get their turn; guess
_BROKEN = (IOException, OSError, trio.BrokenResourceError, trio.ClosedResourceError)

logger = logging.getLogger(__name__)


class YamuxConnection(IMuxedConn):
    """All streams with a peer over one connection."""

    def __init__(self, conn: ISecureConn, peer_id: ID) -> None:
        self.peer_id = peer_id
        self.secured_conn = conn
        self.event_started = trio.Event()
        self.event_closed = trio.Event()
        self.on_close: Callable[[], Awaitable[Any]] | None = None  # set by py-libp2p's swarm
        self._session = Session(conn.is_initiator)
        self._streams: dict[Flow, YamuxStream] = {}
        self._closing = False
        self._running = False
        self._written = trio.Event()  # nothing more will be
        self._work = trio.lowlevel.ParkingLot()  # the writer, while there is nothing to write
        self._crowd: dict[YamuxStream, None] = {}  # those that wait for room in the queue
        self._slots = trio.lowlevel.ParkingLot()  # who wants to open a stream beyond the limit
        self._arrivals = trio.lowlevel.ParkingLot()  # who accepts streams

    @property
    def is_initiator(self) -> bool:
        return self.secured_conn.is_initiator

    @property
    def is_established(self) -> bool:
        return self.event_started.is_set() and not self._session.over

    @property
    def is_closed(self) -> bool:
        return self.event_closed.is_set()

    def get_remote_address(self) -> tuple[str, int] | None:
        return self.secured_conn.get_remote_address()

    def get_transport_addresses(self) -> list[Multiaddr]:
        return self.secured_conn.get_transport_addresses()

    def get_connection_type(self) -> ConnectionType:
        return self.secured_conn.get_connection_type()

    # The tasks

    async def start(self) -> None:
        """Serve the connection until either side ends it."""
        if self.event_started.is_set():
            return
        self.event_started.set()
        try:
            if not self._closing:
                await self._run()
        except Exception:  # the fault of one connection must not end the host
            logger.exception("yamux of %s failed", self.peer_id)
        finally:
            await self._end()
        await self._tell()

    async def _run(self) -> None:
        self._running = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_frames, nursery.cancel_scope)
                if await self._read_frames():
                    await self._flush(PROTOCOL_ERROR)
                nursery.cancel_scope.cancel()
        finally:
            self._running = False

    async def _read_frames(self) -> bool:
        """Dispatch what the peer writes. True where it broke the rules."""
        try:
            while data := await self.secured_conn.read():
                frames = self._session.receive(data)
                self._settle()
                if frames > MANY_FRAMES:
                    await trio.lowlevel.checkpoint()
        except ProtocolViolationError as problem:
            logger.info("yamux of %s: %s", self.peer_id, problem)
            return True
        except (*_BROKEN, MuxedConnError) as problem:
            logger.debug("yamux of %s ended: %s", self.peer_id, problem)
        return False

    async def _write_frames(self, both: trio.CancelScope) -> None:
        try:
            while True:
                data = self._take()
                if data or self._unwritten():
                    await self.secured_conn.write(data)
                    if self._session.waiting:
                        await trio.lowlevel.checkpoint()  # the socket may not have yielded
                elif self._closing:
                    return
                else:
                    await self._work.park()
        except _BROKEN as problem:
            logger.debug("yamux of %s cannot be written: %s", self.peer_id, problem)
            both.cancel()
        finally:
            self._written.set()

    def _take(self) -> bytes:
        """What the session has to write; whoever waits for its queue may go on."""
        data = b"".join(self._session.take())
        if data:
            for stream in self._crowd:
                stream.changed.unpark_all()
            self._crowd.clear()
        return data

    def _unwritten(self) -> bool:
        return isinstance(self.secured_conn, SecureConnection) and self.secured_conn.unwritten

    def write_now(self) -> None:
        """Write what is queued without a pass of the scheduler, where the writer is idle."""
        conn = self.secured_conn
        if self._work and isinstance(conn, SecureConnection) and conn.write_now(self._take()):
            return
        self._work.unpark()

    def _settle(self) -> None:
        """Wake whom the last change concerns."""
        session = self._session
        for flow in session.changed:
            stream = self._streams.get(flow)
            if stream is not None:
                stream.changed.unpark_all()
                if flow.gone:
                    del self._streams[flow]
        session.changed.clear()
        if session.waiting:
            self._work.unpark()
        if session.accepted:
            self._arrivals.unpark_all()
        if session.can_open:
            self._slots.unpark_all()

    # The end

    async def close(self) -> None:
        """Write what is queued, as far as the peer takes it, and hang up."""
        if self._closing:
            await self.event_closed.wait()
            return
        try:
            await self._flush(NORMAL)
        finally:
            await self._end()
        await self._tell()

    async def _flush(self, code: int) -> None:
        self._session.go_away(code)
        self._closing = True
        self._work.unpark()
        if self._running:
            with trio.move_on_after(PATIENCE):
                await self._written.wait()

    async def _end(self) -> None:
        self._closing = True
        self._session.fail()
        self._settle()
        for lot in (self._work, self._slots, self._arrivals):
            lot.unpark_all()
        with trio.CancelScope(shield=True):
            try:
                await self.secured_conn.close()
            except _BROKEN as problem:
                logger.debug("closing the connection of %s: %s", self.peer_id, problem)
        self.event_closed.set()

    async def _tell(self) -> None:
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            try:
                await on_close()
            except Exception:  # as above
                logger.exception("yamux of %s: closing failed", self.peer_id)

    # Streams

    async def open_stream(self) -> "YamuxStream":
        session = self._session
        while not session.over and not session.can_open:
            await self._slots.park()
        if session.over:
            raise MuxedConnUnavailable("the connection is closed")
        stream = self._stream(session.open())
        self._settle()
        return stream

    async def accept_stream(self) -> "YamuxStream":
        session = self._session
        while not session.over:
            while session.accepted:
                flow = session.accepted.popleft()
                if not flow.reset:
                    return self._stream(flow)
            await self._arrivals.park()
        raise MuxedConnUnavailable("the connection is closed")

    def _stream(self, flow: Flow) -> "YamuxStream":
        stream = YamuxStream(self, flow)
        if not flow.gone:
            self._streams[flow] = stream
        return stream

    # What streams do with the session

    def room(self, flow: Flow) -> int:
        return self._session.room(flow)

    def write_at_once(self, flow: Flow, data: bytes) -> None:
        taken = self._session.write(flow, memoryview(data))
        assert taken == len(data)  # who writes minds the room
        self.write_now()

    def write_some(self, flow: Flow, data: memoryview) -> int:
        taken = self._session.write(flow, data)
        if taken:
            self._work.unpark()
        return taken

    def read_some(self, flow: Flow, size: int) -> bytes:
        data = self._session.read(flow, size)
        if self._session.waiting:
            self._work.unpark()
        return data

    @property
    def is_over(self) -> bool:
        return self._session.over

    def wants_room(self, stream: "YamuxStream") -> None:
        """Have ``stream`` woken when the queue is empty again."""
        self._crowd[stream] = None

    def close_stream(self, flow: Flow) -> None:
        self._session.close(flow)
        self._settle()

    def reset_stream(self, flow: Flow) -> None:
        self._session.reset(flow)
        self._settle()


class YamuxStream(IMuxedStream):
    """One stream. Any task may read, write, close or reset it, and be cancelled in it."""

    def __init__(self, conn: YamuxConnection, flow: Flow) -> None:
        self.muxed_conn: YamuxConnection = conn
        self.changed = trio.lowlevel.ParkingLot()  # who waits for data, window or room
        self._flow = flow

    @property
    def stream_id(self) -> int:
        return self._flow.id

    async def read(self, n: int | None = None) -> bytes:
        """Up to ``n`` bytes, or whatever there is, as soon as there is any.

        Raises MuxedStreamEOF when the peer has ended its half and all is read, and
        MuxedStreamReset where either side, or the connection, broke off.
        """
        flow = self._flow
        if n == 0:
            return b""
        while not flow.unread:
            if flow.reset:
                raise MuxedStreamReset("the stream was reset")
            if flow.ended:
                raise MuxedStreamEOF("the peer has ended the stream")
            if flow.lost:
                raise MuxedStreamReset("the connection is closed")
            await self.changed.park()
        return self.muxed_conn.read_some(flow, len(flow.unread) if n is None or n < 0 else n)

    async def write(self, data: bytes) -> None:
        """Queue ``data``, waiting for window and room. The frames queued are always whole."""
        flow, conn = self._flow, self.muxed_conn
        rest = memoryview(bytes(data))  # no copy, where it is bytes already
        while True:
            if flow.reset or flow.lost or conn.is_over:
                raise MuxedStreamReset("the stream was reset")
            if flow.closed:
                raise MuxedStreamClosed("the stream is closed for writing")
            rest = rest[conn.write_some(flow, rest) :]
            if not rest:
                return
            if flow.credit:
                conn.wants_room(self)
            await self.changed.park()

    @property
    def room(self) -> int:
        """Bytes that `write_now` takes: none where nothing can be written any more."""
        flow = self._flow
        if flow.closed or flow.gone or self.muxed_conn.is_over:
            return 0
        return self.muxed_conn.room(flow)

    def write_now(self, data: bytes) -> None:
        """Write ``data``, of which there is no more than `room`, without waiting."""
        self.muxed_conn.write_at_once(self._flow, data)

    async def close(self) -> None:
        """End our half; the peer's can still be read."""
        self.muxed_conn.close_stream(self._flow)
        await trio.lowlevel.checkpoint()

    async def reset(self) -> None:
        self.muxed_conn.reset_stream(self._flow)
        await trio.lowlevel.checkpoint()

    def set_deadline(self, ttl: int) -> None:
        raise NotImplementedError("yamux has no deadlines; use a cancel scope")

    def get_remote_address(self) -> tuple[str, int] | None:
        return self.muxed_conn.get_remote_address()

    async def __aenter__(self) -> "YamuxStream":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.close()


class Muxers(MuxerMultistream):
    """py-libp2p's negotiation of a muxer, which makes its own yamux whatever class it is given."""

    def __init__(self) -> None:
        super().__init__({YAMUX: YamuxConnection})

    async def new_conn(self, conn: ISecureConn, peer_id: ID) -> IMuxedConn:
        protocol, muxer = await self._selector.select(
            conn, conn.is_initiator, self.negotiate_timeout
        )
        return self._annotate_connection(muxer(conn, peer_id), conn, protocol)
