"""Connections and streams: from libp2p's notifications to links.

Every peer gets one stream that we open and write, and opens one that we read.
Which protocol the peer speaks is what our stream was negotiated to. A peer that
speaks none of them stays connected and is none of our business.
"""

from collections.abc import Callable

import trio
from libp2p.abc import IHost, INetConn, INetStream, INetwork, INotifee
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.rcmgr import Direction
from multiaddr import Multiaddr

from bruit.node.gossip.events import (
    PROTOCOLS,
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    Protocol,
)
from bruit.node.net.framing import FrameSplitter
from bruit.node.net.host import NETWORK_ERRORS
from bruit.node.net.judging import Judging
from bruit.node.net.link import Link, Traffic
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId

READ_SIZE = 262_144  # bytes asked of a stream at a time: yamux's initial window; measured
HELLO_TIMEOUT = 30.0  # seconds a peer may leave our stream unnegotiated; guess
OPEN_ATTEMPTS = 3  # of opening our stream on one connection, before giving the peer up; guess
OPEN_PAUSE = 1.0  # seconds between them, doubling; guess


class Streams(INotifee):
    """All links of one host. ``feed`` hands an event to the router."""

    def __init__(
        self,
        host: IHost,
        judging: Judging,
        feed: Callable[[Event], None],
        max_frame: int,
        max_peers: int,
    ) -> None:
        self._host = host
        self._judging = judging
        self._feed = feed
        self._max_frame = max_frame
        self._max_peers = max_peers
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
        self._link(conn.muxed_conn.peer_id, conn)

    async def disconnected(self, network: INetwork, conn: INetConn) -> None:
        peer_id = conn.muxed_conn.peer_id
        link = self.links.get(peer_id.to_bytes())
        if link is None:
            return
        if self._connections(peer_id):
            link.wake()  # our stream may have been on the connection that is gone
        else:
            link.close()

    async def opened_stream(self, network: INetwork, stream: INetStream) -> None:
        return None

    async def closed_stream(self, network: INetwork, stream: INetStream) -> None:
        return None

    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None:
        return None

    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None:
        return None

    def _connections(self, peer_id: ID) -> list[INetConn]:
        return [
            conn for conn in self._host.get_network().get_connections(peer_id) if not conn.is_closed
        ]

    def _link(self, peer_id: ID, conn: INetConn | None) -> Link | None:
        """The peer's link, begun where there is none yet. None where we take no more."""
        peer = peer_id.to_bytes()
        if peer in self.links and not self.links[peer].closed:
            return self.links[peer]
        if self._nursery is None:
            return None
        if len(self.links) >= self._max_peers:
            self._count("too many peers")
            self._nursery.start_soon(self._host.disconnect, peer_id)
            return None
        link = self.links[peer] = Link(peer)
        self._nursery.start_soon(self._serve, link, peer_id, conn)
        return link

    # Writing

    async def _serve(self, link: Link, peer_id: ID, conn: INetConn | None) -> None:
        """Open our stream and keep it written for as long as the peer is connected."""
        try:
            with link.scope:
                pause = OPEN_PAUSE
                for attempt in range(OPEN_ATTEMPTS):
                    if attempt:
                        await trio.sleep(pause)
                        pause *= 2
                    if not self._connections(peer_id):
                        return
                    stream = await self._open(peer_id)
                    if stream is not None:
                        await self._write(link, stream, conn)
                        link.reset()
        finally:
            link.close()
            if self.links.get(link.peer) is link:
                del self.links[link.peer]
            self.past_traffic.add(link.traffic)

    async def _open(self, peer_id: ID) -> INetStream | None:
        try:
            with trio.fail_after(HELLO_TIMEOUT):
                return await self._host.new_stream(
                    peer_id, [TProtocol(protocol.value) for protocol in PROTOCOLS]
                )
        except (*NETWORK_ERRORS, trio.TooSlowError):
            self._count("stream not opened")
            return None

    async def _write(self, link: Link, stream: INetStream, conn: INetConn | None) -> None:
        protocol = Protocol(stream.get_protocol())
        outbound = conn is not None and getattr(conn, "direction", None) == Direction.OUTBOUND
        self._feed(PeerConnected(link.peer, protocol, outbound, self._address(conn)))
        link.ready.set()
        try:
            await link.write_frames(stream)
        except NETWORK_ERRORS:
            self._count("write failed")
        finally:
            self._feed(PeerDisconnected(link.peer))
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                try:
                    await stream.reset()
                except NETWORK_ERRORS:
                    self._count("reset failed")

    def _address(self, conn: INetConn | None) -> str:
        addresses = conn.get_transport_addresses() if conn is not None else []
        return str(addresses[0]) if addresses else ""

    # Reading

    async def _read(self, stream: INetStream) -> None:
        """Take frames from a stream that a peer opened, until it ends or breaks the rules."""
        peer_id = stream.muxed_conn.peer_id
        link = self._link(peer_id, None)
        if link is None:
            await stream.reset()
            return
        # One at a time, as in go-libp2p-pubsub: every stream may hold half a frame.
        previous, link.inbound = link.inbound, stream
        if previous is not None:
            self._count("second stream")
            await previous.reset()
        try:
            with trio.fail_after(HELLO_TIMEOUT):
                await link.ready.wait()
            await self._read_frames(stream, link)
        except RemoteError:
            self._count("malformed frame length")
            await stream.reset()
        except trio.TooSlowError:
            self._count("peer with no stream for us")
            await stream.reset()
        except NETWORK_ERRORS:
            self._count("read failed")
        finally:
            if link.inbound is stream:
                link.inbound = None

    async def _read_frames(self, stream: INetStream, link: Link) -> None:
        splitter = FrameSplitter(self._max_frame)
        traffic, feed, settle = link.traffic, self._feed, self._judging.settle
        while data := await stream.read(READ_SIZE):
            frames = splitter.feed(data)
            traffic.bytes_in += len(data)
            traffic.frames_in += len(frames)
            for frame in frames:
                feed(FrameReceived(link.peer, frame))
            await settle()

    def _count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1
