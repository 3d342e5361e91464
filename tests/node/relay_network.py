"""Nodes with parts in the relay on the loopback interface, and the marketplace that joins them."""

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import trio

from bruit import Node, NodeConfig, hookimpl
from bruit.node.config.relay import ChannelConfig, RelayConfig, Role
from bruit.node.config.schema import NetworkConfig, ShutdownConfig
from bruit.node.identity import new_key
from bruit.node.relay.params import RelayParams
from bruit.node.relay.signing import address_of_secret
from bruit.node.relaying import Relay
from bruit.plugins.hookspecs import Selection
from bruit.plugins.marketplace import Cluster, Marketplace, Member, Producer
from bruit.topics.keys import KeyType, peer_id_text

TOPIC = "/marlin/test/blocks"
CHANNEL = ChannelConfig(id=7, topic=TOPIC, min_chunks=4, num_chunks=8, max_block=1 << 20)
PARAMS = RelayParams()
STAKE = 100_000_000  # tokens


class NoSettings(msgspec.Struct, frozen=True):
    pass


class First:
    """Chooses the first option."""

    Config = NoSettings

    def __init__(self, config: NoSettings) -> None:
        pass

    @hookimpl
    def select_cluster(self, selection: Selection, rng: Random) -> int:
        return selection.options[0].cluster


class Market:
    """A marketplace that a test changes; ``plugin`` is what a node asks."""

    def __init__(self) -> None:
        self.now = Marketplace()
        self._asked = trio.lowlevel.ParkingLot()

    async def asked(self) -> None:
        """Wait until a node asks again."""
        await self._asked.park()

    def plugin(self) -> type:
        market = self

        class Told:
            Config = NoSettings

            def __init__(self, config: NoSettings) -> None:
                self._told: Marketplace | None = None

            @hookimpl
            def marketplace(self) -> Marketplace | None:
                trio.from_thread.run_sync(market._asked.unpark_all)
                news = None if market.now is self._told else market.now
                self._told = market.now
                return news

        return Told


class Place:
    """Where a node is, before it is there."""

    def __init__(self) -> None:
        self.key, self.relay_key = new_key(), new_key(KeyType.SECP256K1)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        peer = peer_id_text(self.key.public_key().peer_id())
        self.multiaddr = f"/ip4/127.0.0.1/tcp/{self.port}/p2p/{peer}"
        self.address = address_of_secret(self.relay_key.secret)

    def member(self) -> Member:
        return Member(self.address, (self.multiaddr,))

    def node(
        self,
        market: Market,
        roles: Sequence[Role],
        *,
        peers: Sequence["Place"] = (),
        channel: ChannelConfig = CHANNEL,
        params: RelayParams = PARAMS,
        plugins: Mapping[str, type] = {},
        directory: Path | None = None,
    ) -> Node:
        config = NodeConfig(
            network=NetworkConfig(
                listen=(f"/ip4/127.0.0.1/tcp/{self.port}",),
                peers=tuple(each.multiaddr for each in peers),
            ),
            relay=RelayConfig(
                roles=tuple(roles),
                marketplace="market",
                selector="first",
                params=params,
                channels={"blocks": channel},
            ),
            shutdown=ShutdownConfig(grace=1.0),
        )
        return Node(
            config,
            self.key,
            plugins={"market": market.plugin(), "first": First, **plugins},
            directory=directory,
            relay_key=self.relay_key,
        )


class Network:
    """One producer, clusters of members, and consumers that are connected to every member."""

    def __init__(self, clusters: int, members: int, consumers: int) -> None:
        self.producer = Place()
        self.clusters = [[Place() for _ in range(members)] for _ in range(clusters)]
        self.members = [place for cluster in self.clusters for place in cluster]
        self.consumers = [Place() for _ in range(consumers)]
        self.market = Market()
        self.market.now = Marketplace(
            (Producer(self.producer.address, STAKE),),
            tuple(
                Cluster(number, 1, tuple(place.member() for place in cluster))
                for number, cluster in enumerate(self.clusters, 1)
            ),
        )


def relay_of(node: Node) -> Relay:
    assert node.relay is not None
    return node.relay


@asynccontextmanager
async def running(nodes: Sequence[Node]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for node in nodes:
            await stack.enter_async_context(node)
        yield
