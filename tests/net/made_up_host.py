"""A libp2p host without a network: what a test puts in is what the driver gets."""

import math
from functools import cache
from types import SimpleNamespace
from typing import cast

import trio
from libp2p.abc import IHost, INetConn, INetStream
from libp2p.custom_types import StreamHandlerFn, TProtocol
from libp2p.peer.envelope import Envelope
from libp2p.peer.id import ID
from libp2p.rcmgr import Direction
from libp2p.stream_muxer.exceptions import MuxedStreamEOF, MuxedStreamReset
from multiaddr import Multiaddr

from bruit.node.gossip.events import PROTOCOLS, Protocol
from bruit.node.net.streams import Streams
from bruit.topics.keys import PeerId
from tests.net.recorder import Recorder


class Outbound(Recorder):
    """A stream that we opened."""

    def __init__(self, protocol: Protocol = Protocol.GOSSIPSUB_12) -> None:
        super().__init__()
        self._protocol = protocol

    def get_protocol(self) -> TProtocol:
        return TProtocol(self._protocol.value)


class Muxer:
    """What the streams of one connection share."""

    def __init__(self, peer: PeerId) -> None:
        self.peer_id = ID(peer)


@cache
def muxer(peer: PeerId, number: int = 0) -> Muxer:
    """That of the peer's connection of this number."""
    return Muxer(peer)


class Inbound:
    """A stream that the peer opened: what a test puts into it is what is read."""

    def __init__(self, peer: PeerId, connection: int = 0) -> None:
        self.muxed_conn = muxer(peer, connection)
        self.was_reset = self.was_closed = False
        self.say, self._heard = trio.open_memory_channel[bytes](math.inf)

    @property
    def muxed_stream(self) -> "Inbound":
        return self

    @property
    def net(self) -> INetStream:
        return cast(INetStream, self)

    async def read(self, size: int) -> bytes:
        try:
            data = await self._heard.receive()
        except trio.EndOfChannel:
            raise (MuxedStreamReset if self.was_reset else MuxedStreamEOF) from None
        assert len(data) <= size
        return data

    async def close(self) -> None:
        self.was_closed = True
        await trio.lowlevel.checkpoint()

    async def reset(self) -> None:
        self.was_reset = True
        self.say.close()
        await trio.lowlevel.checkpoint()


class Host:
    """As much of a host, its network and its peer store as a driver uses: itself is all three."""

    def __init__(self) -> None:
        self.connections: dict[PeerId, list[INetConn]] = {}
        self.handlers: dict[str, StreamHandlerFn] = {}
        self.notifees: list[Streams] = []
        self.outbound: list[Outbound | Exception] = []  # what new_stream gives, in order
        self.opened = 0
        self.negotiating = trio.Event()  # whether peers answer
        self.negotiating.set()
        self.hung_up: list[PeerId] = []
        self.dialled: list[tuple[PeerId, str]] = []
        self.records: dict[PeerId, Envelope] = {}

    @property
    def host(self) -> IHost:
        return cast(IHost, self)

    def get_network(self) -> "Host":
        return self

    def get_peerstore(self) -> "Host":
        return self

    def get_peer_record(self, peer: ID) -> Envelope | None:
        return self.records.get(peer.to_bytes())

    async def dial_addr(self, address: Multiaddr, peer: ID) -> None:
        await trio.lowlevel.checkpoint()
        self.dialled.append((peer.to_bytes(), str(address)))

    def set_stream_handler(self, protocol: TProtocol, handler: StreamHandlerFn) -> None:
        self.handlers[protocol] = handler

    def register_notifee(self, notifee: Streams) -> None:
        self.notifees.append(notifee)

    def get_connections(self, peer: ID) -> list[INetConn]:
        return self.connections.get(peer.to_bytes(), [])

    async def new_stream(self, peer: ID, protocols: list[TProtocol]) -> Outbound:
        assert protocols == [protocol.value for protocol in PROTOCOLS]
        self.opened += 1
        await self.negotiating.wait()
        stream = self.outbound.pop(0)
        if isinstance(stream, Exception):
            raise stream
        return stream

    async def disconnect(self, peer: ID) -> None:
        await trio.lowlevel.checkpoint()
        self.hung_up.append(peer.to_bytes())

    def connection(self, peer: PeerId, direction: Direction) -> INetConn:
        conn = SimpleNamespace(
            muxed_conn=muxer(peer),
            direction=direction,
            is_closed=False,
            get_transport_addresses=lambda: [Multiaddr("/ip4/192.0.2.1/tcp/4001")],
        )
        self.connections.setdefault(peer, []).append(cast(INetConn, conn))
        return cast(INetConn, conn)
