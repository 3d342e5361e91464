"""What a connection is worth, and whom to hang up on when there are too many.

The worth is go-libp2p-pubsub's (tag_tracer.go): 20 for every mesh of ours that
the peer is in, and a counter per topic of the messages that it was first, or
nearly first, to bring. go protects the peers of its meshes outright nowadays;
under a hard limit that would let whoever is grafted first keep the place for
ever, so that here they are merely worth more. Direct peers are never hung up on.
"""

import random

from bruit.topics.keys import PeerId

MESH_PEER = 20  # per mesh (go: GossipSubConnTagValueMeshPeer)
DELIVERY = 1  # per message (go: GossipSubConnTagBumpMessageDelivery)
DELIVERY_CAP = 15  # per topic (go: GossipSubConnTagMessageDeliveryCap)
DECAY_INTERVAL = 600.0  # seconds (go: GossipSubConnTagDecayInterval)
DECAY = 1  # per topic and interval (go: GossipSubConnTagDecayAmount)
GRACE = 60.0  # seconds a newcomer is spared (the default of go-libp2p's connmgr)
NEWCOMERS = 8  # one place in so many is theirs; guess: a flood of them gets no more


class _Connection:
    __slots__ = ("deliveries", "meshes", "outbound", "since")

    def __init__(self, outbound: bool, since: float) -> None:
        self.outbound = outbound
        self.since = since
        self.meshes: dict[str, None] = {}
        self.deliveries: dict[str, int] = {}  # topic → messages, decayed; never 0

    def worth(self) -> int:
        return MESH_PEER * len(self.meshes) + sum(self.deliveries.values())


class Tags:
    """The connected peers by worth. Times are seconds on the clock of the router."""

    def __init__(self, rng: random.Random, delivery_cap: int = DELIVERY_CAP) -> None:
        self._rng = rng
        self._delivery_cap = delivery_cap
        self._connections: dict[PeerId, _Connection] = {}  # in the order of arrival
        self._direct: dict[PeerId, None] = {}
        self._decayed: float | None = None  # when the last decay was due; None before any

    def connected(self, peer: PeerId, outbound: bool, now: float) -> None:
        self._connections.setdefault(peer, _Connection(outbound, now))

    def disconnected(self, peer: PeerId) -> None:
        self._connections.pop(peer, None)

    def protect(self, peer: PeerId) -> None:
        """Never hang up on the peer: it is a direct one. It need not be connected."""
        self._direct[peer] = None

    def unprotect(self, peer: PeerId) -> None:
        self._direct.pop(peer, None)

    def grafted(self, peer: PeerId, topic: str) -> None:
        if peer in self._connections:
            self._connections[peer].meshes[topic] = None

    def pruned(self, peer: PeerId, topic: str) -> None:
        if peer in self._connections:
            self._connections[peer].meshes.pop(topic, None)

    def delivered(self, peers: list[PeerId], topic: str) -> None:
        """A message proved valid: who brought it before that was known, the first one included."""
        for peer in peers:
            if peer in self._connections:
                deliveries = self._connections[peer].deliveries
                count = deliveries.get(topic, 0) + DELIVERY
                deliveries[topic] = min(count, self._delivery_cap)

    def left(self, topic: str) -> None:
        """We are no longer subscribed: what was brought there counts no more."""
        for connection in self._connections.values():
            connection.deliveries.pop(topic, None)
            connection.meshes.pop(topic, None)

    def refresh(self, now: float) -> None:
        """Decay what is due. Cheap to call often; the first call starts the clock."""
        if self._decayed is None:
            self._decayed = now
        steps = int((now - self._decayed) / DECAY_INTERVAL)
        if not steps:
            return
        self._decayed += steps * DECAY_INTERVAL
        for connection in self._connections.values():
            connection.deliveries = {
                topic: count - steps * DECAY
                for topic, count in connection.deliveries.items()
                if count > steps * DECAY
            }

    def worth(self, peer: PeerId) -> int:
        """0 for a stranger; that of a direct peer says nothing of its protection."""
        connection = self._connections.get(peer)
        return 0 if connection is None else connection.worth()

    def surplus(self, limit: int, now: float) -> list[PeerId]:
        """Whom to hang up on so that ``limit`` peers are left, the least worth first.

        Among equals those who dialled us go first, then the dice decide: no peer
        can choose its place. The newcomers longest here are spared, as many as
        their share of the places; the rest of them are judged like anybody else.
        Fewer are returned where only direct peers would be left. Whoever is hung up
        on must be said to be disconnected before this is asked again.
        """
        excess = len(self._connections) - limit
        if excess <= 0:
            return []
        candidates = [peer for peer in self._connections if peer not in self._direct]
        newcomers = [p for p in candidates if now - self._connections[p].since < GRACE]
        spared = dict.fromkeys(newcomers[: limit // NEWCOMERS])
        judged = [peer for peer in candidates if peer not in spared]
        self._rng.shuffle(judged)
        judged.sort(key=lambda p: (self._connections[p].worth(), self._connections[p].outbound))
        return [*judged, *reversed(spared)][:excess]
