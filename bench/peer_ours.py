"""`bruit.Node` as a peer of the bench: `python -m bench.peer_ours JSON`, see PROTOCOL.md.

Beside its defaults: as many connections as come, none kept up by itself.
"""

import importlib.metadata
import platform
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import trio

import bruit
from bench.serving import Hosting, Settings, Take, start
from bruit import Node, NodeConfig, Subscription
from bruit.node.config.schema import GossipConfig, NetworkConfig
from bruit.node.gossip.events import Event, TimerFired
from bruit.topics.message import SignaturePolicy

# Connections: beyond the default of 50, for 200 peers. Its send queues need no raising:
# publish() waits while one is full.
MAX_PEERS = 1000
PACKAGES = ("libp2p", "trio", "protobuf", "pynacl", "cryptography")


class OurNode:
    def __init__(self, node: Node, nursery: trio.Nursery) -> None:
        self.peer = node.peer_id_text
        self.address = node.addresses[0]
        self._node = node
        self._nursery = nursery
        self.connect = node.connect

    async def subscribe(self, topic: str, take: Take) -> None:
        self._nursery.start_soon(self._read, self._node.subscribe(topic), take)

    async def _read(self, subscription: Subscription, take: Take) -> None:
        own = self._node.peer_id
        async for message in subscription:
            if message.source != own:
                take(message.data)

    def peers(self, topic: str) -> int:
        return len(self._node.statistics().router.subscribers.get(topic, ()))

    async def publish(self, topic: str, data: bytes) -> bool:
        outcome = await self._node.publish(topic, data)
        return not outcome.problem and not outcome.dropped


@asynccontextmanager
async def host(settings: Settings) -> AsyncIterator[Hosting]:
    signed = settings.policy == "sign"
    policy = SignaturePolicy.STRICT_SIGN if signed else SignaturePolicy.STRICT_NO_SIGN
    listen = f"/ip4/{settings.listen}/tcp/0"
    config = NodeConfig(
        network=NetworkConfig(listen=(listen,), max_peers=MAX_PEERS, min_peers=0),
        gossip=GossipConfig(signature_policy=policy),
    )
    versions = {"bruit": bruit.__version__, "python": platform.python_version()}
    versions |= {package: importlib.metadata.version(package) for package in PACKAGES}
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(config)) for _ in range(settings.nodes)]
        nursery = await stack.enter_async_context(trio.open_nursery())
        hosting = Hosting([OurNode(node, nursery) for node in nodes], versions)
        if settings.heartbeats:
            time_heartbeats(nodes[0], hosting.heartbeats)
        yield hosting


def time_heartbeats(node: Node, durations: list[float]) -> None:
    """Note how long the driver works on each: the router's part, and putting into the queues.

    The timer of a heartbeat makes the driver first look for signed records, then feed
    the router, without a pause in between.
    """
    driver = node._started_driver()
    feed, learn_records = driver.feed, driver._learn_records
    began = 0.0

    def timed_learn_records() -> None:
        nonlocal began
        began = time.perf_counter()
        learn_records()

    def timed_feed(event: Event) -> None:
        feed(event)
        if isinstance(event, TimerFired) and event.timer.name == "heartbeat":
            durations.append(time.perf_counter() - began)

    driver._learn_records = timed_learn_records  # type: ignore[method-assign]
    driver.feed = timed_feed  # type: ignore[method-assign]


if __name__ == "__main__":
    start(host)
