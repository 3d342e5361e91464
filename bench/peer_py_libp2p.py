"""py-libp2p's own pubsub as a peer of the bench: `python -m bench.peer_py_libp2p JSON`.

Its GossipSub router over its host; PROTOCOL.md says what it is asked to do. What
differs from its defaults is said where it is set.
"""

import hashlib
import importlib.metadata
import platform
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import libp2p
import libp2p.pubsub.pubsub
import multiaddr
import trio
from libp2p.abc import ISubscriptionAPI
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.network.config import ConnectionConfig
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import PROTOCOL_ID, PROTOCOL_ID_V11, PROTOCOL_ID_V12, GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub, get_peer_and_seqno_msg_id
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.tools.anyio_service import background_trio_service

from bench.serving import Hosting, Settings, Take, start

CONNECTIONS = 1000  # default 300
MAX_FRAME = 4_194_304  # bytes; default 1 MiB
# Messages in a subscription's channel and RPCs in a peer's queue: 32 by default, beyond
# which they are dropped without a word.
QUEUE = 1_000_000
# RPCs that may wait for a peer when a message is published; publish() itself never waits.
# Measured at 1 KB: with 1,000,000 a fifth fewer messages a second, from 4 to 32 the same.
WINDOW = 32
# Seconds between heartbeats that are timed. Its own, of 120 s, would take twenty minutes.
HEARTBEAT_INTERVAL = 1.0
PACKAGES = ("libp2p", "trio", "protobuf", "pynacl", "cryptography")


class LongQueues(dict[ID, RpcQueue]):
    """A `Pubsub.peer_queues` whose queues drop nothing."""

    def __setitem__(self, peer: ID, queue: RpcQueue) -> None:
        queue._queue.max_size = QUEUE
        super().__setitem__(peer, queue)


class PyLibp2pNode:
    def __init__(self, pubsub: Pubsub, router: GossipSub, nursery: trio.Nursery) -> None:
        self.peer = str(pubsub.my_id)
        self.address = str(pubsub.host.get_addrs()[0])
        self._pubsub = pubsub
        self._router = router
        self._nursery = nursery

    async def connect(self, address: str) -> None:
        await self._pubsub.host.connect(info_from_p2p_addr(multiaddr.Multiaddr(address)))

    async def subscribe(self, topic: str, take: Take) -> None:
        self._nursery.start_soon(self._read, await self._pubsub.subscribe(topic), take)

    async def _read(self, subscription: ISubscriptionAPI, take: Take) -> None:
        own = self._pubsub.my_id.to_bytes()
        while True:
            message = await subscription.get()
            if message.from_id != own:
                take(message.data)

    def peers(self, topic: str) -> int:
        return len(self._pubsub.peer_topics.get(topic, ()))

    async def publish(self, topic: str, data: bytes) -> bool:
        """It does not tell of drops; its queues are long enough for there to be none."""
        while any(len(queue) >= WINDOW for queue in self._pubsub.peer_queues.values()):
            await trio.lowlevel.checkpoint()
        await self._pubsub.publish(topic, data)
        await trio.lowlevel.checkpoint()
        return True

    async def time_heartbeats(self, durations: list[float]) -> None:
        while True:
            await trio.sleep(HEARTBEAT_INTERVAL)
            began = time.perf_counter()
            await self._heartbeat()
            durations.append(time.perf_counter() - began)

    async def _heartbeat(self) -> None:
        """One round of the loop in `GossipSub.heartbeat`, which cannot be called by itself."""
        router: Any = self._router
        peers_to_graft, peers_to_prune = router.mesh_heartbeat()
        for topic in router.mesh:
            for peer in router._ensure_mesh_diversity(topic):
                if topic not in peers_to_graft[peer]:
                    peers_to_graft[peer].append(topic)
        router.fanout_heartbeat()
        peers_to_gossip = router.gossip_heartbeat()
        await router._emit_control_msgs(peers_to_graft, peers_to_prune, peers_to_gossip)
        router.mcache.shift()
        router.scorer.on_heartbeat()
        router._update_network_health()
        router._adapt_gossip_parameters()
        router._periodic_security_cleanup()
        for topic in list(router.mesh):
            await router._maintain_mesh_quality(topic)
        router._prune_idontwant_entries()


def id_from_content(message: rpc_pb2.Message) -> bytes:
    topic = message.topicIDs[0].encode()
    return hashlib.sha256(len(topic).to_bytes(4, "big") + topic + message.data).digest()


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[tuple[Pubsub, GossipSub]]:
    keys = create_new_key_pair()
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    host = libp2p.new_host(
        key_pair=keys,
        sec_opt={TProtocol(NOISE): noise},
        muxer_opt=libp2p.create_yamux_muxer_option(),
        # By default it dials by itself whomever it hears of, until it has 50.
        connection_config=ConnectionConfig(
            max_connections=CONNECTIONS,
            min_connections=0,
            low_watermark=0,
            high_watermark=CONNECTIONS,
        ),
    )
    router = GossipSub(
        protocols=[PROTOCOL_ID_V12, PROTOCOL_ID_V11, PROTOCOL_ID],
        # No defaults: those of the specification.
        degree=6,
        degree_low=4,
        degree_high=12,
        # By default ten messages a second per topic, own ones included; the rest is dropped.
        spam_protection_enabled=False,
    )
    signed = settings.policy == "sign"
    pubsub = Pubsub(
        host,
        router,
        # Unsigned it still writes author and seqno, which StrictNoSign leaves out.
        strict_signing=signed,
        msg_id_constructor=get_peer_and_seqno_msg_id if signed else id_from_content,
        max_inbound_rpc_size=MAX_FRAME,
    )
    pubsub.peer_queues = LongQueues()
    async with (
        host.run(listen_addrs=[multiaddr.Multiaddr("/ip4/127.0.0.1/tcp/0")]),
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        yield pubsub, router


@asynccontextmanager
async def host(settings: Settings) -> AsyncIterator[Hosting]:
    libp2p.pubsub.pubsub.SUBSCRIPTION_CHANNEL_SIZE = QUEUE
    versions = {package: importlib.metadata.version(package) for package in PACKAGES}
    versions["python"] = platform.python_version()
    async with AsyncExitStack() as stack:
        pairs = [await stack.enter_async_context(running(settings)) for _ in range(settings.nodes)]
        nursery = await stack.enter_async_context(trio.open_nursery())
        nodes = [PyLibp2pNode(pubsub, router, nursery) for pubsub, router in pairs]
        hosting = Hosting(nodes, versions)
        if settings.heartbeats:
            nursery.start_soon(nodes[0].time_heartbeats, hosting.heartbeats)
        yield hosting


if __name__ == "__main__":
    start(host)
