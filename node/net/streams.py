"""Connections and streams: from libp2p's notifications to links.

Every peer gets one stream that we open and write, and opens one that we read.
Which protocol the peer speaks is what our stream was negotiated to. A peer that
speaks none of them stays connected and is none of our business.
"""

from collections.abc import Callable
from contextlib import suppress

import trio
from libp2p.abc import IHost, INetConn, INetStream, INetwork, INotifee
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.rcmgr import Direction
from libp2p.stream_muxer.exceptions import MuxedStreamEOF
from multiaddr import Multiaddr

from bruit.node.gossip.events import (
    PROTOCOLS,
    Event,
    FramesDropped,
    FramesReceived,
    PeerConnected,
    PeerDisconnected,
    PeerRenewed,
    Protocol,
)
from bruit.node.net.framing import FrameSplitter
from bruit.node.net.host import NETWORK_ERRORS, beneath, open_connections, remote_addresses
from bruit.node.net.judging import Judging
from bruit.node.net.link import FAREWELL, Link, Traffic
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId

TURN = 64  # frames handed to the router before their signatures go to be checked; guess
READ_SIZE = 262_144  # bytes asked of a stream at a time; guess: one read of the socket
HELLO_TIMEOUT = 30.0  # seconds a peer may leave our stream unnegotiated; guess
OPEN_ATTEMPTS = 3  # of keeping our stream open on one connection, before giving it up; guess
OPEN_PAUSE = 1.0  # seconds between them, doubling; guess
STEADY = 60.0  # seconds after which a stream's end does not count against the peer; guess
REOPEN_TIMEOUT = 10.0  # seconds that a peer has to replace its stream to us; guess


class Streams(INotifee):
    """All links of one host. ``feed`` hands an event to the router."""

    def __init__(
        self,
        host: IHost,
        judging: Judging,
        feed: Callable[[Event], None],
        max_frame: int,
        max_peers: int,
        admit: Callable[[PeerId, tuple[str, ...]], str],
    ) -> None:
        self._host = host
        self._judging = judging
        self._feed = feed
        self._max_frame = max_frame
        self._max_peers = max_peers
        self._admit = admit
        self._nursery: trio.Nursery | None = None
        self.links: dict[PeerId, Link] = {}
        self.past_traffic = Traffic()  # of links that are gone
        self.faults: dict[str, int] = {}  # why streams were reset, counted

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve peers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for protocol in PROTOCOLS:
                self._host.set_stream_handler(TProtocol(protocol.value), self._read)
            self._host.get_network().register_notifee(self)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    # What libp2p tells

    async def connected(self, network: INetwork, conn: INetConn) -> None:
        peer_id = conn.muxed_conn.peer_id
        if peer_id.to_bytes() not in self.links:
            self._link(peer_id)
        elif self._admit(peer_id.to_bytes(), remote_addresses([conn])):
            self._count("connection not admitted")
            await conn.close()

    async def disconnected(self, network: INetwork, conn: INetConn) -> None:
        peer_id = conn.muxed_conn.peer_id
        link = self.links.get(peer_id.to_bytes())
        if link is None:
            return
        if self._connections(peer_id):
            link.wake()  # our stream may have been on the connection that is gone
        else:
            self._let_go(link)

    async def opened_stream(self, network: INetwork, stream: INetStream) -> None:
        return None

    async def closed_stream(self, network: INetwork, stream: INetStream) -> None:
        return None

    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None:
        return None

    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None:
        return None

    def _connections(self, peer_id: ID) -> list[INetConn]:
        return open_connections(self._host, peer_id.to_bytes())

    def _link(self, peer_id: ID) -> Link | None:
        """The peer's link, begun where there is none yet. None where we take no more."""
        peer = peer_id.to_bytes()
        if peer in self.links:
            return self.links[peer]
        if self._nursery is None:
            return None
        if len(self.links) >= self._max_peers:
            self._count("too many peers")
            self._nursery.start_soon(self._hang_up, peer_id)
            return None
        if self._admit(peer, self._origin(peer_id)[1]):
            self._count("not admitted")
            self._nursery.start_soon(self._hang_up, peer_id)
            return None
        link = self.links[peer] = Link(peer)
        self._nursery.start_soon(self._serve, link, peer_id)
        return link

    def admits(self, peer_id: ID) -> bool:
        """Whether a peer may speak with us over any protocol. Hangs up on it where it may not."""
        return self._link(peer_id) is not None

    def disconnect(self, peer: PeerId) -> None:
        """Close the connection to a peer, if there is one."""
        link = self.links.get(peer)
        if link is not None and self._nursery is not None:
            self._nursery.start_soon(self._hang_up, ID(peer))
            self._let_go(link)

    def _let_go(self, link: Link) -> None:
        """End a link. The router hears of it at once: the peer may be back before we are done."""
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
            self.past_traffic.add(link.traffic)
            if link.ready.is_set():
                self._feed(PeerDisconnected(link.peer))
        link.close()

    # Writing

    async def _serve(self, link: Link, peer_id: ID) -> None:
        """Keep our stream to a peer open and written for as long as it is connected.

        A stream that ends is replaced, and the peer told everything again. Where
        that fails, a peer that spoke with us before is hung up on: half a
        conversation would leave both sides waiting for ever.
        """
        gave_up = False
        try:
            with link.scope:
                failures = 0
                while failures < OPEN_ATTEMPTS and self._connections(peer_id):
                    if link.finishing:
                        await trio.sleep_forever()
                    if failures:
                        await trio.sleep(OPEN_PAUSE * 2 ** (failures - 1))
                    stream = await self._open(peer_id)
                    if stream is None:
                        failures += 1
                        continue
                    opened = trio.current_time()
                    await self._write(link, peer_id, stream)
                    steady = trio.current_time() - opened > STEADY
                    failures = 1 if steady else failures + 1
                gave_up = link.ready.is_set()
            if gave_up:  # outside of the scope, which hanging up cancels
                await self._hang_up(peer_id)
        finally:
            self._let_go(link)

    async def _open(self, peer_id: ID) -> INetStream | None:
        try:
            with trio.fail_after(HELLO_TIMEOUT):
                return await self._host.new_stream(
                    peer_id, [TProtocol(protocol.value) for protocol in PROTOCOLS]
                )
        except (*NETWORK_ERRORS, trio.TooSlowError):
            self._count("stream not opened")
            return None

    async def _write(self, link: Link, peer_id: ID, stream: INetStream) -> None:
        if link.ready.is_set():
            self._feed(PeerRenewed(link.peer, self._origin(peer_id)[1]))
        else:
            protocol = Protocol(stream.get_protocol())
            link.ready.set()  # first: the router may know the peer and hang up on it at once
            self._feed(PeerConnected(link.peer, protocol, *self._origin(peer_id)))
        link.outbound, link.ended = stream, trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.watch, stream, nursery.cancel_scope)
                try:
                    await link.write_frames(stream)
                except NETWORK_ERRORS:
                    self._count("write failed")
                nursery.cancel_scope.cancel()
            lost, control = link.lose()
            if lost:
                self._feed(FramesDropped(link.peer, lost, control))
        finally:
            link.outbound = None
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                try:
                    await stream.reset()
                except NETWORK_ERRORS:
                    self._count("reset failed")

    def _origin(self, peer_id: ID) -> tuple[bool, tuple[str, ...]]:
        """Whether we dialled the peer's oldest connection, and the address of each."""
        connections = self._connections(peer_id)
        outbound = [getattr(conn, "direction", None) == Direction.OUTBOUND for conn in connections]
        return any(outbound[:1]), remote_addresses(connections)

    # Reading

    async def _read(self, stream: INetStream) -> None:
        """Take frames from a stream that a peer opened, until it ends or breaks the rules."""
        peer_id = stream.muxed_conn.peer_id
        link = self._link(peer_id)
        if link is None:
            await stream.reset()
            return
        # One for each connection: every stream may hold half a frame. Not one for each
        # peer: rust-libp2p writes on all connections, and loses what a reset stream held.
        connection = stream.muxed_conn
        previous = link.inbound.get(connection)
        renewed = previous is not None or (link.inbound_count > 0 and not link.inbound)
        link.inbound[connection] = stream
        link.inbound_count += 1
        try:
            if previous is not None:
                self._count("second stream")
                await previous.reset()
            with trio.fail_after(HELLO_TIMEOUT):
                await link.ready.wait()
            if renewed:
                self._feed(PeerRenewed(link.peer, self._origin(peer_id)[1]))
            await self._read_frames(stream, link)
        except RemoteError:
            self._count("malformed frame length")
            await stream.reset()
        except trio.TooSlowError:
            self._count("peer with no stream for us")
            await stream.reset()
        except MuxedStreamEOF:
            with trio.move_on_after(FAREWELL), suppress(*NETWORK_ERRORS):
                await stream.close()  # tells the peer that we have read all of it
        except NETWORK_ERRORS:
            self._count("read failed")
            await stream.reset()
        finally:
            if link.inbound.get(connection) is stream:
                del link.inbound[connection]
                if self._nursery is not None:
                    self._nursery.start_soon(self._expect_another, link, peer_id)

    async def _expect_another(self, link: Link, peer_id: ID) -> None:
        """Hang up on a peer that has ended its stream to us and opens no other."""
        count = link.inbound_count
        await trio.sleep(REOPEN_TIMEOUT)
        if link.inbound_count == count and not link.inbound and not link.closed:
            await self._hang_up(peer_id)

    async def _hang_up(self, peer_id: ID) -> None:
        self._count("hung up")
        try:
            await self._host.disconnect(peer_id)
        except NETWORK_ERRORS:
            self._count("hanging up failed")

    async def _read_frames(self, stream: INetStream, link: Link) -> None:
        splitter = FrameSplitter(self._max_frame)
        traffic, feed, judging = link.traffic, self._feed, self._judging
        wire = beneath(stream)
        while data := await wire.read(READ_SIZE):
            frames = splitter.feed(data)
            traffic.bytes_in += len(data)
            traffic.frames_in += len(frames)
            for start in range(0, len(frames), TURN):
                await judging.room()
                feed(FramesReceived(link.peer, tuple(frames[start : start + TURN])))
                judging.settle()

    def _count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1
