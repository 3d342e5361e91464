"""One node among peers played by hand, and networks to send messages through.

The times are binary fractions, so that sums of them are exact: a link takes
1/64 s one way, and with `beating` the heartbeats are at 1 s, 2 s, 3 s, …
"""

from collections.abc import Sequence
from typing import Any

from bruit.node.gossip.events import Protocol
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.sim import LinkModel, PeerStub, SimNetwork, SimNode
from bruit.topics.keys import PeerId

TOPIC = "foobar"
LATENCY = 1 / 64  # seconds
STEP = 1 / 16  # seconds: enough to dial, or for a question and its answer


def network(seed: int = 1, detection_delay: float = 10.0) -> SimNetwork:
    return SimNetwork(seed=seed, link=LinkModel(latency=LATENCY), detection_delay=detection_delay)


def beating(**params: Any) -> RouterConfig:
    """The defaults, but for ``params`` and heartbeats at 1 s, 2 s, 3 s, …"""
    clock = {"heartbeat_delay": 1.0, "heartbeat_interval": 1.0}
    return RouterConfig(params=GossipParams(**(clock | params)))


def introduce(
    net: SimNetwork,
    node: SimNode,
    names: Sequence[str],
    *,
    topics: Sequence[str] = (TOPIC,),
    dialled: bool = False,
    protocol: Protocol = Protocol.GOSSIPSUB_12,
) -> list[PeerStub]:
    """Connect one stub per name and have it subscribe; ``dialled`` by the node. Takes 2 steps."""
    stubs = [net.add_peer_stub(name, protocol=protocol) for name in names]
    for stub in stubs:
        if dialled:
            net.connect(node, stub)
        else:
            stub.connect(node)
    net.run_for(STEP)
    for stub in stubs:
        stub.subscribe(node, *topics)
    net.run_for(STEP)
    return stubs


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def ids(nodes: Sequence[SimNode]) -> set[PeerId]:
    return {node.peer_id for node in nodes}


def mesh(node: SimNode, topic: str = TOPIC) -> set[PeerId]:
    """Who is in the node's mesh; empty for a topic that it is not subscribed to."""
    return set(node.router.statistics().mesh.get(topic, ()))


def fanout(node: SimNode, topic: str = TOPIC) -> set[PeerId]:
    return set(node.router.statistics().fanout.get(topic, ()))


def payloads(node: SimNode, topic: str = TOPIC) -> list[bytes]:
    """What the node's application got, in order, repetitions included."""
    return [delivery.payload for delivery in node.deliveries(topic)]


def publish_from_anyone(
    net: SimNetwork,
    authors: Sequence[SimNode],
    count: int,
    pause: float,
    topic: str = TOPIC,
) -> list[bytes]:
    """Publish ``count`` messages, each by one of ``authors``, one every ``pause`` seconds."""
    said = [b"message %d" % number for number in range(count)]
    for data in said:
        net.publish(net.rng.choice(authors), topic, data)
        net.run_for(pause)
    return said
