"""What is known of each connected peer."""

from collections.abc import Iterator

from bruit.node.gossip.events import Protocol
from bruit.node.gossip.params import MAX_TOPICS_PER_PEER
from bruit.topics.keys import PeerId


class Peer:
    """One connected peer. Counters are of the current heartbeat."""

    __slots__ = (
        "below",
        "id",
        "ids_announced",
        "ids_asked",
        "ids_wanted",
        "idontwants",
        "ihaves",
        "lost_control",
        "outbound",
        "protocol",
        "record",
        "topics",
        "unwanted",
    )

    def __init__(self, peer: PeerId, protocol: Protocol, outbound: bool) -> None:
        self.id = peer
        self.protocol = protocol
        self.outbound = outbound
        self.record = b""  # its signed peer record, to be handed on
        self.topics: dict[str, None] = {}
        self.below: tuple[str, ...] = ()  # thresholds that its score was below when last looked at
        self.ihaves = 0  # frames with IHAVE received
        self.ids_announced = 0  # ids of announced topics that it told us of
        self.ids_asked = 0  # ids asked of it
        self.ids_wanted = 0  # ids that it asked for
        self.idontwants = 0  # frames with IDONTWANT received
        self.lost_control: list[bytes] = []  # frames that its queue had no room for
        self.unwanted: dict[bytes, int] = {}  # id → heartbeat at which that is forgotten


class Peers:
    """All connected peers, and who of them is subscribed to what."""

    def __init__(self) -> None:
        self._peers: dict[PeerId, Peer] = {}
        self._by_topic: dict[str, dict[PeerId, Peer]] = {}
        self._outbound: dict[PeerId, Peer] = {}  # those that we dialled
        self._flooded: dict[str, dict[PeerId, Peer]] = {}  # those of them that have no mesh

    def add(self, peer: Peer) -> None:
        self._peers[peer.id] = peer
        if peer.outbound:
            self._outbound[peer.id] = peer

    def remove(self, peer: PeerId) -> Peer | None:
        gone = self._peers.pop(peer, None)
        if gone is not None:
            self._outbound.pop(peer, None)
            for topic in gone.topics:
                self._leave(peer, topic)
        return gone

    def get(self, peer: PeerId) -> Peer | None:
        return self._peers.get(peer)

    def subscribe(self, peer: Peer, topic: str) -> bool:
        """Note a subscription. False, and nothing noted, where the peer has too many."""
        if len(peer.topics) >= MAX_TOPICS_PER_PEER and topic not in peer.topics:
            return False
        peer.topics[topic] = None
        self._by_topic.setdefault(topic, {})[peer.id] = peer
        if not peer.protocol.has_mesh:
            self._flooded.setdefault(topic, {})[peer.id] = peer
        return True

    def unsubscribe(self, peer: Peer, topic: str) -> None:
        if topic in peer.topics:
            del peer.topics[topic]
            self._leave(peer.id, topic)

    def _leave(self, peer: PeerId, topic: str) -> None:
        for by_topic in (self._by_topic, self._flooded):
            subscribers = by_topic.get(topic, {})
            if subscribers.pop(peer, None) is not None and not subscribers:
                del by_topic[topic]

    def subscribed(self, topic: str) -> list[Peer]:
        """The peers subscribed to a topic, in the order in which they subscribed."""
        return list(self._by_topic.get(topic, {}).values())

    def outbound(self) -> list[Peer]:
        """The peers that we dialled, in the order in which they came."""
        return list(self._outbound.values())

    def flooded(self, topic: str) -> list[Peer]:
        """Those of them that speak only floodsub: no mesh has them, they get everything."""
        return list(self._flooded.get(topic, {}).values())

    def is_subscribed(self, peer: PeerId, topic: str) -> bool:
        return peer in self._by_topic.get(topic, ())

    def topics(self) -> dict[str, tuple[PeerId, ...]]:
        return {topic: tuple(peers) for topic, peers in self._by_topic.items()}

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._peers

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def __len__(self) -> int:
        return len(self._peers)
