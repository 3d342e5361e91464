"""What a running node tells of itself: its peers, and what it counts."""

from collections.abc import Mapping, Sequence

import msgspec

from bruit.node.gossip.events import Protocol
from bruit.node.gossip.router import Statistics
from bruit.node.net.link import Traffic
from bruit.plugins.registry import PluginStatus
from bruit.topics.keys import PeerId


class PeerTraffic(msgspec.Struct, frozen=True):
    """Bytes and frames over a peer's pubsub streams, and what waits to be sent to it."""

    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int
    queued_bytes: int = 0

    @classmethod
    def of(cls, counted: Traffic, queued: int = 0) -> "PeerTraffic":
        return cls(
            counted.bytes_in, counted.bytes_out, counted.frames_in, counted.frames_out, queued
        )


class PeerInfo(msgspec.Struct, frozen=True):
    """A connected peer."""

    peer: PeerId
    address: str  # multiaddr of its end of the connection, empty when unknown
    outbound: bool  # whether we dialled
    protocol: Protocol
    since: float  # Unix time, seconds
    score: float
    topics: tuple[str, ...]  # that it is subscribed to
    mesh: tuple[str, ...]  # those in whose mesh it is
    traffic: PeerTraffic


class NodeStatistics(msgspec.Struct, frozen=True):
    """A snapshot of a node. Counters count from its start."""

    router: Statistics
    traffic: PeerTraffic  # all peers, gone ones included
    peers: dict[PeerId, PeerTraffic]  # connected ones
    stream_faults: dict[str, int]  # why streams ended, counted
    subscribers_lost: int  # messages that slow subscribers did not get
    plugins: tuple[PluginStatus, ...]


def by_peer(by_topic: Mapping[str, Sequence[PeerId]]) -> dict[PeerId, list[str]]:
    """Turn topic → peers into peer → topics."""
    turned: dict[PeerId, list[str]] = {}
    for topic, peers in by_topic.items():
        for peer in peers:
            turned.setdefault(peer, []).append(topic)
    return turned
