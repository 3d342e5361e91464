"""What must hold of every router at any moment, and of the whole network once it has settled.

A test says ``assert invariants.violations(net) == []`` between its phases.
"""

from collections import Counter
from collections.abc import Iterator

from bruit.node.gossip.params import MAX_FANOUT_TOPICS, MAX_TOPICS_PER_PEER
from bruit.node.gossip.router import Router, Statistics
from bruit.node.sim.network import SimNetwork
from bruit.node.sim.nodes import SimNode


def violations(net: SimNetwork) -> list[str]:
    """Every broken invariant of every router that is up, in sentences; empty when all is well."""
    return [
        f"{node.name} at {net.now} s: {problem}"
        for node in _routers(net)
        for problem in violations_of(node, node.router.statistics())
    ]


def violations_of(node: SimNode, statistics: Statistics) -> Iterator[str]:
    """The broken invariants of one router, given its statistics.

    Its peers are its connections. Meshes and fanouts hold connected peers that
    are subscribed, and no topic has both. A mesh has at most ``d_hi`` peers that
    dialled us (those that we dialled may come on top, until the next heartbeat)
    and a fanout at most ``d``. What is remembered keeps to its bounds.
    """
    if set(statistics.peers) != set(node.channels):
        yield f"knows {len(statistics.peers)} peers, has {len(node.channels)} connections"
    for kind, group in (("mesh", statistics.mesh), ("fanout", statistics.fanout)):
        for topic, members in group.items():
            subscribers = statistics.subscribers.get(topic, ())
            for peer in members:
                if peer not in node.channels:
                    yield f"{kind} of {topic} holds {peer.hex()}, which is not connected"
                elif peer not in subscribers:
                    yield f"{kind} of {topic} holds {peer.hex()}, which is not subscribed"
    for topic in statistics.fanout:
        if topic in statistics.mesh:
            yield f"has both a mesh and a fanout for {topic}"
    yield from _degrees(node, statistics)
    yield from _bounds(node, statistics)


def asymmetric_meshes(net: SimNetwork) -> list[tuple[SimNode, SimNode, str]]:
    """Who has a peer in its mesh without being in that peer's: (node, peer, topic).

    Empty where no frame is lost, once every GRAFT and PRUNE under way has arrived.
    With losses some asymmetry stays, for nobody repeats a GRAFT.
    """
    meshes = {node.peer_id: (node, node.router.statistics().mesh) for node in _routers(net)}
    return [
        (node, meshes[peer][0], topic)
        for node, mesh in meshes.values()
        for topic, members in mesh.items()
        for peer in members
        if peer in meshes and node.peer_id not in meshes[peer][1].get(topic, ())
    ]


def _routers(net: SimNetwork) -> list[SimNode]:
    return [node for node in net.nodes if node.up and isinstance(node.machine, Router)]


def _degrees(node: SimNode, statistics: Statistics) -> Iterator[str]:
    params = node.config.params
    for topic, members in statistics.mesh.items():
        channels = [node.channels[peer] for peer in members if peer in node.channels]
        inbound = sum(1 for channel in channels if not channel.outbound)
        if inbound > params.d_hi:
            yield f"mesh of {topic} has {inbound} peers that dialled us, d_hi is {params.d_hi}"
    for topic, members in statistics.fanout.items():
        if len(members) > params.d:
            yield f"fanout of {topic} has {len(members)} peers, d is {params.d}"


def _bounds(node: SimNode, statistics: Statistics) -> Iterator[str]:
    params = node.config.params
    topics = Counter(peer for peers in statistics.subscribers.values() for peer in peers)
    for what, size, bound in (
        ("message ids seen", statistics.seen, params.seen_capacity),
        ("bytes of messages cached", statistics.cached_bytes, params.cache_bytes),
        ("fanout topics", len(statistics.fanout), MAX_FANOUT_TOPICS),
        ("topics of one peer", max(topics.values(), default=0), MAX_TOPICS_PER_PEER),
    ):
        if size > bound:
            yield f"remembers {size} {what}, the bound is {bound}"
