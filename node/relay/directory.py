"""Lookups over one marketplace: who is who, and which clusters a chunk may go through."""

from bisect import bisect_left

from bruit.node.relay.keccak import keccak256
from bruit.plugins.marketplace import Cluster, Marketplace, Member, Producer
from bruit.topics.keys import PeerId, peer_id_from_text

_RING = 1 << 256  # places a hash can have


class Directory:
    """A marketplace, indexed. Immutable: a change of the marketplace is another directory."""

    def __init__(self, marketplace: Marketplace) -> None:
        self.marketplace = marketplace
        self._producers = {producer.address: producer for producer in marketplace.producers}
        self._clusters = {cluster.id: cluster for cluster in marketplace.clusters}
        self._homes = {
            member.address: cluster.id
            for cluster in marketplace.clusters
            for member in cluster.members
        }
        self._peers = {
            peer_of(member): member.address
            for cluster in marketplace.clusters
            for member in cluster.members
        }
        # Clusters without members lead nowhere, and are no options.
        self._ring = sorted(
            (place_of(cluster.id), cluster.id)
            for cluster in marketplace.clusters
            if cluster.members
        )

    def producer(self, address: bytes) -> Producer | None:
        return self._producers.get(address)

    def cluster(self, number: int) -> Cluster | None:
        return self._clusters.get(number)

    def cluster_of(self, member: bytes) -> int | None:
        """The cluster that a member belongs to, by the member's 20-byte id."""
        return self._homes.get(member)

    def member_at(self, peer: PeerId) -> bytes | None:
        """The 20-byte id of the member behind a peer."""
        return self._peers.get(peer)

    def options(self, message_id: bytes, chunk: int, count: int) -> tuple[int, ...]:
        """The ``count`` clusters nearest to Keccak-256 of message id and chunk, nearest first.

        Marlin, §Get cluster options for a chunk, whose routine returns from inside its loop,
        runs below the list's start and favours whoever stands at its ends. Here: cluster ids
        and chunks lie on a ring of 2^256 places (`place_of`), the distance is the shorter way
        around, and of two clusters that are equally far the one with the lower id comes first.
        """
        ring = self._ring
        if not ring:
            return ()
        here = int.from_bytes(keccak256(message_id, chunk.to_bytes(2, "big")), "big")
        right = bisect_left(ring, (here, -1))
        near = range(right - count, right + count)  # no further away on either side
        found = {ring[at % len(ring)] for at in near}
        nearest = sorted(
            (min((place - here) % _RING, (here - place) % _RING), number) for place, number in found
        )
        return tuple(number for _, number in nearest[:count])


def place_of(cluster: int) -> int:
    """Where a cluster stands on the ring: Keccak-256 of its 2-byte id.

    Ids themselves have two bytes (Marlin, §Acknowledgement) and would all lie at one point.
    """
    return int.from_bytes(keccak256(cluster.to_bytes(2, "big")), "big")


def peer_of(member: Member) -> PeerId:
    """The libp2p peer behind a member."""
    return peer_id_from_text(member.addresses[0].rpartition("/p2p/")[2])
