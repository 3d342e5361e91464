"""py-libp2p's own pubsub: its GossipSub router over its host.

What differs from its defaults, and why, is said in README.md.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import libp2p
import multiaddr
import trio
from libp2p.abc import ISubscriptionAPI
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import PROTOCOL_ID, PROTOCOL_ID_V11, PROTOCOL_ID_V12, GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.tools.anyio_service import background_trio_service

TOPIC = "/bench/local/relay/blocks/proposed"
PATIENCE = 30.0  # seconds for the two to know of each other


@asynccontextmanager
async def _pubsub() -> AsyncIterator[Pubsub]:
    keys = create_new_key_pair()
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    host = libp2p.new_host(
        key_pair=keys,
        sec_opt={TProtocol(NOISE): noise},
        muxer_opt=libp2p.create_yamux_muxer_option(),
    )
    router = GossipSub(
        protocols=[PROTOCOL_ID_V12, PROTOCOL_ID_V11, PROTOCOL_ID],
        degree=6,
        degree_low=4,
        degree_high=12,
        spam_protection_enabled=False,
    )
    pubsub = Pubsub(host, router)
    listen = [multiaddr.Multiaddr("/ip4/127.0.0.1/tcp/0")]
    async with (
        host.run(listen_addrs=listen),
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        yield pubsub


@asynccontextmanager
async def subscriber() -> AsyncIterator[tuple[str, AsyncIterator[bytes]]]:
    """A subscribed host: its address, and the payloads that reach it."""
    async with _pubsub() as pubsub:
        subscription = await pubsub.subscribe(TOPIC)

        async def received() -> AsyncIterator[bytes]:
            while True:
                yield (await subscription.get()).data

        yield str(pubsub.host.get_addrs()[0]), received()


@asynccontextmanager
async def publisher(
    address: str, member: bool
) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """A host that knows of the subscription: its publish function, which tells of no drop."""
    async with _pubsub() as pubsub, trio.open_nursery() as nursery:
        if member:
            nursery.start_soon(_read_all, await pubsub.subscribe(TOPIC))
        peer = info_from_p2p_addr(multiaddr.Multiaddr(address))
        await pubsub.host.connect(peer)
        await pubsub.wait_for_peer(peer.peer_id, timeout=PATIENCE)
        await pubsub.wait_for_subscription(peer.peer_id, TOPIC, timeout=PATIENCE)

        async def publish(payload: bytes) -> None:
            await pubsub.publish(TOPIC, payload)

        yield publish
        nursery.cancel_scope.cancel()


async def _read_all(subscription: ISubscriptionAPI) -> None:
    while True:
        await subscription.get()
