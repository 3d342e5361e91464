"""bruit.Node with its defaults: strict signing, Ed25519, noise and yamux over TCP."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from bruit import Node, NodeConfig, Subscription
from bruit.node.config.schema import NetworkConfig

TOPIC = "/bench/local/relay/blocks/proposed"


@asynccontextmanager
async def subscriber() -> AsyncIterator[tuple[str, AsyncIterator[bytes]]]:
    """A subscribed node: its address, and the payloads that reach it."""
    config = NodeConfig(network=NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",)))
    async with Node(config) as node, node.subscribe(TOPIC) as subscription:
        yield node.addresses[0], _payloads(subscription)


async def _payloads(subscription: Subscription) -> AsyncIterator[bytes]:
    async for message in subscription:
        yield message.data


@asynccontextmanager
async def publisher(
    address: str, member: bool
) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """A node that knows of the subscription: its publish function, which raises for a drop."""
    config = NodeConfig(network=NetworkConfig(listen=()))
    async with Node(config) as node, trio.open_nursery() as nursery:
        if member:
            nursery.start_soon(_read_all, node.subscribe(TOPIC))
        await node.connect(address)
        await node.wait_for_peers(TOPIC)

        async def publish(payload: bytes) -> None:
            outcome = await node.publish(TOPIC, payload)
            if outcome.problem:
                raise RuntimeError(f"not published: {outcome.problem}")

        yield publish
        nursery.cancel_scope.cancel()


async def _read_all(subscription: Subscription) -> None:
    async for _ in subscription:
        pass
