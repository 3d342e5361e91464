"""A peer that keeps to no rule: a bare libp2p host, and bytes."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo

from bruit.node.gossip.events import PROTOCOLS, Protocol
from bruit.node.gossip.rpc_pb2 import Rpc, Subscription
from bruit.node.identity import new_key
from bruit.node.net.host import NETWORK_ERRORS, listening, new_host, parse_address
from bruit.topics.keys import PeerId
from tests.net.recorder import on_the_wire

GOSSIPSUB = TProtocol(Protocol.GOSSIPSUB_12.value)


class Hostile:
    def __init__(self, host: IHost, peer: PeerId, address: str) -> None:
        self.host = host
        self.peer = peer
        victim, self._where = parse_address(address, "victim")
        self._victim = ID(victim)
        self._opened, self._to_us = trio.open_memory_channel[INetStream](math.inf)

    async def connect(self) -> None:
        await self.host.connect(PeerInfo(self._victim, [self._where]))

    async def take(self, stream: INetStream) -> None:
        """Accept a stream of the victim, and leave it at that."""
        self._opened.send_nowait(stream)
        await trio.sleep_forever()

    async def stream_of_the_victim(self) -> INetStream:
        return await self._to_us.receive()

    async def open(self) -> INetStream:
        """A gossipsub stream to the victim."""
        return await self.host.new_stream(self._victim, [GOSSIPSUB])

    async def subscribe(self, stream: INetStream, topic: str) -> None:
        frame = Rpc(subscriptions=[Subscription(subscribe=True, topic=topic)])
        await stream.write(on_the_wire([frame.SerializeToString()]))


@asynccontextmanager
async def hostile_peer(
    address: str, *, accepts: bool = True, connect: bool = True
) -> AsyncIterator[Hostile]:
    """A host connected to the node at an address. Unless it ``accepts``, it speaks no gossipsub."""
    key = new_key()
    host = new_host(key, 10)
    hostile = Hostile(host, key.public_key().peer_id(), address)
    if accepts:
        for protocol in PROTOCOLS:
            host.set_stream_handler(TProtocol(protocol.value), hostile.take)
    async with listening(host, []):
        if connect:
            await hostile.connect()
        yield hostile


async def until_reset(stream: INetStream) -> None:
    """Wait until the other end has had enough of a stream."""
    try:
        while await stream.read(65_536):
            pass
    except NETWORK_ERRORS:
        return
